// Timing several candidates side by side: interleaved in random order, warm or cold, until the medians are
// sharp.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "measure/statistics.h"

namespace saccade::measure {

/// Makes `calls` calls back to back and returns the seconds they took together. Host and device timers differ
/// only in how such a function measures.
using TimedCalls = std::function<double(int calls)>;

/// Times calls by the host's steady clock, from just before the first to just after the last.
[[nodiscard]] TimedCalls host_timer(std::function<void()> call);

/// Seconds on the host's steady clock.
[[nodiscard]] double steady_seconds();

struct Candidate {
  std::string name;
  TimedCalls time;
};

struct SamplerOptions {
  std::uint64_t seed = 1;
  double budget_seconds = 2;  ///< for all candidates together; each still gets a few samples
  StoppingRule stop;
  /// Calls shorter than this are timed in batches, because the clock itself would show.
  double shortest_sample_seconds = 20e-6;
  /// Runs untimed before every sample; set it to measure cold caches. Samples are then single calls.
  std::function<void()> before_sample;
  std::function<double()> now = steady_seconds;  ///< the budget's clock
};

struct Samples {
  std::string name;
  std::vector<double> seconds;  ///< per call, in the order of the rounds
  int calls_per_sample = 1;
  bool converged = false;  ///< the stopping rule was met before the budget ended
};

/// Rounds over all candidates, shuffled each time, until each meets the stopping rule or the budget ends. In
/// a round every candidate that still takes part gives one sample. A candidate much slower than the fastest
/// leaves when its share of the budget is spent, but never before the third sample; the others then still get
/// theirs.
[[nodiscard]] std::vector<Samples> sample(std::span<const Candidate> candidates,
                                          const SamplerOptions& options);

}  // namespace saccade::measure
