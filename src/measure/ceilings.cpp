#include "measure/ceilings.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <omp.h>

#include "measure/ceiling_kernels.h"
#include "measure/sampler.h"

namespace saccade::measure {
namespace {

constexpr double kFmaRunSeconds = 0.05;
constexpr std::align_val_t kAlignment{4096};

// Results of the loops end here, where the compiler must assume that someone reads them.
std::atomic<std::uint32_t> sink;

/// The seconds between the barriers around `work(thread)`: starting the threads is not part of the ceiling.
double timed_parallel(int threads, const std::function<void(int)>& work) {
  double begin = 0, end = 0;
#pragma omp parallel num_threads(threads)
  {
#pragma omp barrier
#pragma omp master
    begin = steady_seconds();
    work(omp_get_thread_num());
#pragma omp barrier
#pragma omp master
    end = steady_seconds();
  }
  return end - begin;
}

double fma_rate(int threads, bool wide, std::int64_t iterations, double& seconds) {
  seconds = timed_parallel(threads, [&](int) {
    sink.fetch_add(static_cast<std::uint32_t>(fma_loop(wide, iterations)), std::memory_order_relaxed);
  });
  return fma_flops_per_iteration(wide) * static_cast<double>(iterations) * threads / seconds;
}

/// A page-aligned buffer in equal parts, each first touched by its own thread.
class ThreadBuffer {
 public:
  ThreadBuffer(std::size_t bytes, int threads)
      : part_(std::max(bytes / static_cast<std::size_t>(threads) / kReadBlock, std::size_t{1}) * kReadBlock),
        total_(part_ * static_cast<std::size_t>(threads)),
        data_(static_cast<std::byte*>(::operator new(total_, kAlignment)), Delete{}) {
    timed_parallel(threads, [&](int thread) { std::memset(part(thread), thread + 1, part_); });
  }

  [[nodiscard]] std::byte* part(int thread) const {
    return data_.get() + part_ * static_cast<std::size_t>(thread);
  }
  [[nodiscard]] std::size_t part_bytes() const { return part_; }
  [[nodiscard]] std::size_t total_bytes() const { return total_; }

 private:
  struct Delete {
    void operator()(std::byte* data) const { ::operator delete(data, kAlignment); }
  };
  std::size_t part_;
  std::size_t total_;
  std::unique_ptr<std::byte, Delete> data_;
};

/// The least seconds that one pass took over all `ways` of doing it, taking turns until the budget ends.
double best_seconds(const BandwidthOptions& options, int ways,
                    const std::function<void(int way, int thread)>& pass) {
  constexpr int kFewestTurns = 3;
  // Warm passes over a small footprint are shorter than a barrier, so many of them make one measurement.
  constexpr double kBytesPerMeasurement = 64 << 20;
  const bool cold = static_cast<bool>(options.before_repetition);
  const double fitting = kBytesPerMeasurement / static_cast<double>(std::max<std::size_t>(options.bytes, 1));
  const int passes = cold ? 1 : static_cast<int>(std::clamp(fitting, 1.0, 1e5));
  double best = std::numeric_limits<double>::infinity();
  const double begin = steady_seconds();
  for (int turn = 0; turn < kFewestTurns || steady_seconds() - begin < options.budget_seconds; ++turn) {
    for (int way = 0; way < ways; ++way) {
      if (cold) options.before_repetition();
      const double seconds = timed_parallel(options.threads, [&](int thread) {
        for (int i = 0; i < passes; ++i) pass(way, thread);
      });
      best = std::min(best, seconds / passes);
    }
  }
  return best;
}

}  // namespace

FmaCeiling measure_fma(int threads, int runs) {
  FmaCeiling ceiling{.threads = threads};
  double seconds = 0;
  for (const bool wide : {false, true}) {
    std::int64_t iterations = 1'000'000;
    do {
      iterations *= 2;
      ceiling.flops_per_second =
          std::max(ceiling.flops_per_second, fma_rate(threads, wide, iterations, seconds));
    } while (seconds < kFmaRunSeconds);
    for (int run = 1; run < runs; ++run) {
      ceiling.flops_per_second =
          std::max(ceiling.flops_per_second, fma_rate(threads, wide, iterations, seconds));
    }
  }
  return ceiling;
}

double measure_read(const BandwidthOptions& options) {
  const ThreadBuffer buffer(options.bytes, options.threads);
  const double seconds = best_seconds(options, 3, [&](int way, int thread) {
    const std::uint32_t x = read_loop(buffer.part(thread), buffer.part_bytes(), 1 << way);
    sink.fetch_add(x, std::memory_order_relaxed);
  });
  return static_cast<double>(buffer.total_bytes()) / seconds;
}

double measure_copy(const BandwidthOptions& options) {
  const ThreadBuffer from(options.bytes / 2, options.threads);
  const ThreadBuffer to(options.bytes / 2, options.threads);
  const double seconds = best_seconds(options, 2, [&](int way, int thread) {
    copy_loop(from.part(thread), to.part(thread), from.part_bytes(), way == 1);
  });
  return 2 * static_cast<double>(from.total_bytes()) / seconds;
}

}  // namespace saccade::measure
