// What Nsight Compute is asked, what its answers mean, and reading them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace saccade::cli {

struct NcuMetric {
  enum class Kind { percent, bytes, nanoseconds, number };
  std::string_view name;  ///< Nsight's
  std::string_view title;
  Kind kind;
  std::string_view meaning;
};

// Metrics that have more readers than the table.
inline constexpr std::string_view kNcuDuration = "gpu__time_duration.sum";
inline constexpr std::string_view kNcuDramBytes = "dram__bytes.sum";

/// In the order of printing.
[[nodiscard]] std::span<const NcuMetric> ncu_metrics();

/// Why warps could not issue. The value is the warps that wait for this reason, on average, whenever an
/// instruction is issued.
[[nodiscard]] std::span<const NcuMetric> ncu_stalls();

/// One launch as Nsight saw it. What it had no number for is not there.
struct NcuKernel {
  std::string name, grid, block;
  std::map<std::string, double, std::less<>> values;
};

/// Reads the output of `ncu --csv --page raw --print-units base`; lines of other kinds are skipped.
[[nodiscard]] std::vector<NcuKernel> parse_ncu_csv(std::string_view text);

/// The metrics of `names` that ncu says it does not know.
[[nodiscard]] std::vector<std::string> unknown_metrics(std::string_view log,
                                                       std::span<const std::string> names);

}  // namespace saccade::cli
