// What this machine can do at most, measured in the same process as the kernels that are held against it.
#pragma once

#include <cstddef>
#include <functional>

namespace saccade::measure {

/// The best rate of float32 fused multiply-adds, in floating-point operations a second.
struct FmaCeiling {
  double flops_per_second = 0;
  int threads = 0;
};

/// Runs `runs` times about 50 ms of nothing but FMAs on `threads` threads and returns the best.
[[nodiscard]] FmaCeiling measure_fma(int threads, int runs = 5);

struct BandwidthOptions {
  std::size_t bytes = 0;  ///< the footprint, so that what fits a cache is compared with that cache
  int threads = 1;
  double budget_seconds = 0.3;
  std::function<void()> before_repetition{};  ///< untimed; evicts caches for the cold ceiling
};

/// Best read bandwidth over a footprint, in bytes a second: every byte once, several ways of walking, best of
/// all repetitions. Each thread reads the part that it touched first.
[[nodiscard]] double measure_read(const BandwidthOptions& options);

/// Best copy bandwidth, in bytes read plus written a second; the footprint is source and target together.
[[nodiscard]] double measure_copy(const BandwidthOptions& options);

}  // namespace saccade::measure
