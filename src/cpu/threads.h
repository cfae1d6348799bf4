// How many threads a problem is worth.
#pragma once

#include <algorithm>

#include <saccade/problem.h>

namespace saccade {

/// Waking a thread costs a few microseconds, the time one core takes for about this many operations.
inline constexpr double kFlopsPerThread = 5e5;

/// The threads that pay for this problem, at most `available`.
inline int worthwhile_threads(const Problem& p, int available) {
  const double worth = flops(p) / kFlopsPerThread;
  return worth >= available ? available : std::max(1, static_cast<int>(worth));
}

}  // namespace saccade
