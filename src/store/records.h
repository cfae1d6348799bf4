// A benchmark run and its measurements as values. What queries ask for is a field, all else rides along as
// JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <saccade/status.h>

#include "measure/statistics.h"

namespace saccade::store {

using Json = nlohmann::ordered_json;

/// One call of a command that measured something.
struct Run {
  std::string id;        ///< hexadecimal, from new_run_id()
  std::string started;   ///< UTC, ISO 8601, so that text order is time order
  std::string finished;  ///< likewise; empty: still at work, or ended early
  std::string commit;
  bool dirty = false;
  std::uint64_t seed = 0;
  std::string command_line;
  std::string machine;            ///< the CPU's or GPU's model: what may be compared with what
  Json provenance;                ///< in full
  Json details = Json::object();  ///< what belongs to the run as a whole, such as its ceilings
};

/// The run that a provenance (measure::Provenance as JSON) describes, not yet begun; an error names the key
/// that is missing or of the wrong type.
[[nodiscard]] Result<Run> describe_run(Json provenance, std::string machine);

enum class Caches { warm, cold };
enum class Timer { host, device };

/// One kernel on one shape: timed, or why not.
struct Measurement {
  std::string shape{};
  std::string kernel{};
  std::string config{};
  int threads = 0;
  Caches caches = Caches::warm;
  Timer timer = Timer::host;
  std::string not_timed{};         ///< why there are no times; empty when there are
  std::optional<bool> verified{};  ///< whether it passed; absent: not verified
  double flops = 0;
  double bytes = 0;
  double flops_ceiling = 0;  ///< per second, measured around this shape; 0: unknown
  double bytes_ceiling = 0;  ///< likewise
  int calls_per_sample = 1;
  bool converged = false;
  measure::Summary seconds{};     ///< per call
  std::vector<double> samples{};  ///< seconds per call, in order; empty when only the summary was kept
  Json details = Json::object();
};

/// Whether every stored bit is the same.
[[nodiscard]] bool same(const Run& a, const Run& b);
[[nodiscard]] bool same(const Measurement& a, const Measurement& b);

/// A run with everything that was measured in it, in the order in which it was added.
struct WholeRun {
  Run run;
  std::vector<Measurement> measurements;
};

/// A run in a list.
struct RunEntry {
  Run run;
  std::int64_t measurements = 0;
};

/// A measurement among those of other runs.
struct HistoryEntry {
  Run run;
  Measurement measurement;
};

}  // namespace saccade::store
