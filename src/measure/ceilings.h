// What this machine can do at most, measured in the same process as the kernels that are held against it.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "measure/sampler.h"

namespace saccade::measure {

/// The best rate of float32 fused multiply-adds, in floating-point operations a second.
struct FmaCeiling {
  double flops_per_second = 0;
  int threads = 0;
};

/// Runs `runs` times about 50 ms of nothing but FMAs on `threads` threads, and as long again in short runs,
/// and returns the best.
[[nodiscard]] FmaCeiling measure_fma(int threads, int runs = 5);

struct BandwidthOptions {
  std::size_t bytes = 0;  ///< the footprint, so that what fits a cache is compared with that cache
  int threads = 1;
  double budget_seconds = 0.3;
  std::function<void()> before_repetition{};  ///< untimed; evicts caches for the cold ceiling
};

/// Best read bandwidth over a footprint, in bytes a second: every byte once, several ways of walking, best of
/// all repetitions. Each thread reads the part that it touched first, in pages of the system's usual size.
[[nodiscard]] double measure_read(const BandwidthOptions& options);

/// A ceiling as a candidate for the sampler. Timed in the same rounds as the kernels, it rises and falls with
/// the clock and the neighbours just as they do, so the ratio of medians means something on a machine that is
/// not quiet.
struct Probe {
  TimedCalls time;
  double work_per_call = 0;  ///< floating-point operations or bytes
};

/// Nothing but FMAs, about `seconds_per_call` a call, in the variant that was fastest just now. A call should
/// take as long as one of the kernel's: a short one slips between two interruptions, a long one takes its
/// share of them.
[[nodiscard]] Probe fma_probe(int threads, double seconds_per_call);

/// One pass over `memory` a call, each thread its share, in the way that was fastest just now. Given the
/// kernels' own tensors, it finds them in the same caches as the kernels do. Shares are whole blocks of 4
/// KiB; memory too small for that is replaced by a buffer of one block a thread. `options.bytes` is not used.
[[nodiscard]] Probe read_probe(std::span<const std::span<const std::byte>> memory,
                               const BandwidthOptions& options);

/// Best copy bandwidth, in bytes read plus written a second; the footprint is source and target together.
[[nodiscard]] double measure_copy(const BandwidthOptions& options);

}  // namespace saccade::measure
