// Benchmarking one problem: verify, time interleaved, compare with the machine's ceilings.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cases.h"
#include "kernel_choice.h"
#include "measure/cache.h"
#include "measure/sampler.h"
#include "measure/statistics.h"
#include "verify/verify.h"

namespace saccade::cli {

struct BenchOptions {
  std::vector<KernelChoice> kernels;
  std::string baseline;       ///< a label among the kernels; empty: the last kernel that was timed
  int threads = 0;            ///< 0: all
  double budget_seconds = 3;  ///< of sampling, for each shape
  bool cold = false;
  bool verify = true;
  std::int64_t verify_rows = 256;
  std::uint64_t seed = 1;
};

/// One kernel on one problem.
struct KernelResult {
  std::string kernel;               ///< as chosen: name, or name:settings
  std::string config;               ///< complete, as the plan has it
  std::string not_timed;            ///< why there are no times; empty when there are
  bool rejected = false;            ///< the reason is the kernel's own: it does not take this problem
  std::optional<Verdict> verified;  ///< absent: not verified
  std::string repro;                ///< repeats a failed verification
  measure::Samples samples;
  measure::Summary seconds;
  std::optional<measure::Speedup> speedup;  ///< against the baseline; absent for the baseline itself
  std::size_t workspace_bytes = 0;
  std::optional<std::size_t> grown_bytes;  ///< measured growth of the process beyond the workspace

  [[nodiscard]] bool timed() const { return not_timed.empty(); }
  [[nodiscard]] bool failed() const { return verified && !verified->passed(); }
};

/// All kernels on one problem.
struct ShapeResult {
  Case of;
  Device device;
  int threads = 0;
  bool cold = false;
  std::string baseline;  ///< empty: nothing to compare
  std::string chosen;    ///< the planner's kernel: whom the bars are for
  std::vector<KernelResult> kernels;
  double fma_flops_per_second = 0;   ///< median of the FMA (on a GPU: matrix) loop in the kernels' own rounds
  double read_bytes_per_second = 0;  ///< median of reading its K and V, in the same rounds

  [[nodiscard]] bool any_timed() const { return std::ranges::any_of(kernels, &KernelResult::timed); }
};

/// Benchmarks shapes one after the other.
class Bench {
 public:
  using Report = std::function<void(const std::string& what)>;

  explicit Bench(BenchOptions options);

  /// Verifies and times every kernel that takes the problem. `report` hears of each step.
  [[nodiscard]] ShapeResult run(const Case& each, const Report& report);

  [[nodiscard]] const BenchOptions& options() const { return options_; }
  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] int threads() const { return threads_; }
  /// The best FMA (on a GPU: matrix) rate before the first shape: what this machine gives when it is let
  /// alone.
  [[nodiscard]] double fma_flops_per_second() const { return fma_flops_per_second_; }
  /// Copy bandwidth over memory larger than the caches, in bytes a second.
  [[nodiscard]] double copy_bytes_per_second() const { return copy_bytes_per_second_; }

 private:
  struct Work;
  /// Plans; adds to the work unless the kernel rejects the problem or is too slow for the budget.
  KernelResult prepare(const Problem& problem, const KernelChoice& kernel, std::vector<Work>& work,
                       const Report& report) const;
  /// Takes what fails out of the work.
  void verify(const Problem& problem, std::vector<Work>& work, ShapeResult& result) const;
  void time(const Problem& problem, std::vector<Work>& work, ShapeResult& result) const;
  void time_on_gpu(const Problem& problem, std::vector<Work>& work, ShapeResult& result) const;
  /// Samples the kernels and the two ceilings, and writes down what they gave.
  void sample(const std::vector<Work>& work, const std::vector<measure::Candidate>& candidates,
              const std::array<double, 2>& ceiling_work, ShapeResult& result) const;
  void measure_gpu_ceilings();
  void compare(ShapeResult& result) const;

  BenchOptions options_;
  Device device_;
  int threads_;
  double fma_flops_per_second_ = 0;
  double copy_bytes_per_second_ = 0;
  std::shared_ptr<measure::CacheEvictor> evictor_;  ///< only for cold caches
};

}  // namespace saccade::cli
