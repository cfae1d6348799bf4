#include "measure/ceilings.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <omp.h>
#include <vector>

#include "measure/ceiling_kernels.h"
#include "measure/sampler.h"

namespace saccade::measure {
namespace {

constexpr double kFmaRunSeconds = 0.05;
constexpr int kShortRuns = 16;  // as long as one run together
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

/// The best of all `ways` of making one pass, taking turns until the budget ends; `best` is the least
/// seconds.
int best_seconds(const BandwidthOptions& options, int ways,
                 const std::function<void(int way, int thread)>& pass, double& best) {
  constexpr int kFewestTurns = 3;
  // Warm passes over a small footprint are shorter than a barrier, so many of them make one measurement.
  constexpr double kBytesPerMeasurement = 64 << 20;
  const bool cold = static_cast<bool>(options.before_repetition);
  const double fitting = kBytesPerMeasurement / static_cast<double>(std::max<std::size_t>(options.bytes, 1));
  const int passes = cold ? 1 : static_cast<int>(std::clamp(fitting, 1.0, 1e5));
  int best_way = 0;
  const double begin = steady_seconds();
  for (int turn = 0; turn < kFewestTurns || steady_seconds() - begin < options.budget_seconds; ++turn) {
    for (int way = 0; way < ways; ++way) {
      if (cold) options.before_repetition();
      const double seconds = timed_parallel(options.threads, [&](int thread) {
        for (int i = 0; i < passes; ++i) pass(way, thread);
      });
      if (seconds / passes < best) {
        best = seconds / passes;
        best_way = way;
      }
    }
  }
  return best_way;
}

constexpr int kReadWays = 12;  // 1, 2, 4 or 8 streams, each with every kind of prefetch

void read_bytes(std::span<const std::byte> memory, int way) {
  const std::uint32_t x =
      read_loop(memory.data(), memory.size(), 1 << (way / 3), static_cast<Prefetch>(way % 3));
  sink.fetch_add(x, std::memory_order_relaxed);
}

}  // namespace

FmaCeiling measure_fma(int threads, int runs) {
  FmaCeiling ceiling{.threads = threads};
  for (const bool wide : {false, true}) {
    double seconds = 0;
    const auto try_once = [&](std::int64_t iterations) {
      ceiling.flops_per_second =
          std::max(ceiling.flops_per_second, fma_rate(threads, wide, iterations, seconds));
    };
    std::int64_t iterations = 1'000'000;
    for (try_once(iterations); seconds < kFmaRunSeconds; try_once(iterations)) iterations *= 2;
    for (int run = 1; run < runs; ++run) try_once(iterations);
    // Short runs find the gaps between other programs on a busy machine.
    for (int run = 0; run < kShortRuns * runs; ++run) try_once(iterations / kShortRuns);
  }
  return ceiling;
}

double measure_read(const BandwidthOptions& options) {
  const ThreadBuffer buffer(options.bytes, options.threads);
  const auto pass = [&](int way, int thread) { read_bytes({buffer.part(thread), buffer.part_bytes()}, way); };
  double best = std::numeric_limits<double>::infinity();
  best_seconds(options, kReadWays, pass, best);
  return static_cast<double>(buffer.total_bytes()) / best;
}

Probe fma_probe(int threads, double seconds_per_call) {
  double best_rate = 0;
  bool best_wide = false;
  std::int64_t iterations = 0;
  for (const bool wide : {false, true}) {
    double seconds = 0;
    for (int run = 0; run < 5; ++run) {
      constexpr std::int64_t kTrial = 200'000;
      if (const double rate = fma_rate(threads, wide, kTrial, seconds); rate > best_rate) {
        best_rate = rate;
        best_wide = wide;
        iterations = static_cast<std::int64_t>(kTrial * std::max(seconds_per_call / seconds, 0.01)) + 1;
      }
    }
  }
  const auto time = [threads, best_wide, iterations](int calls) {
    double seconds = 0;
    fma_rate(threads, best_wide, iterations * calls, seconds);
    return seconds;
  };
  return {time, fma_flops_per_iteration(best_wide) * static_cast<double>(iterations) * threads};
}

Probe read_probe(std::span<const std::span<const std::byte>> memory, const BandwidthOptions& options) {
  const auto threads = static_cast<std::size_t>(options.threads);
  std::vector<std::vector<std::span<const std::byte>>> shares(threads);
  std::size_t total = 0;
  for (const std::span<const std::byte> part : memory) {
    const std::size_t share = part.size() / threads / kReadBlock * kReadBlock;
    for (std::size_t thread = 0; thread < threads; ++thread) {
      if (share > 0) shares[thread].push_back(part.subspan(thread * share, share));
    }
    total += share * threads;
  }
  std::shared_ptr<ThreadBuffer> buffer;
  if (total == 0) {
    buffer = std::make_shared<ThreadBuffer>(kReadBlock * threads, options.threads);
    for (std::size_t thread = 0; thread < threads; ++thread) {
      shares[thread].emplace_back(buffer->part(static_cast<int>(thread)), buffer->part_bytes());
    }
    total = buffer->total_bytes();
  }
  const auto read = [shares, buffer](int way, int thread) {
    for (const auto& share : shares[static_cast<std::size_t>(thread)]) read_bytes(share, way);
  };
  BandwidthOptions trial = options;
  trial.bytes = total;
  double best = std::numeric_limits<double>::infinity();
  const int way = best_seconds(trial, kReadWays, read, best);
  const auto time = [read, way, count = options.threads](int calls) {
    return timed_parallel(count, [&](int thread) {
      for (int call = 0; call < calls; ++call) read(way, thread);
    });
  };
  return {time, static_cast<double>(total)};
}

double measure_copy(const BandwidthOptions& options) {
  const ThreadBuffer from(options.bytes / 2, options.threads);
  const ThreadBuffer to(options.bytes / 2, options.threads);
  double best = std::numeric_limits<double>::infinity();
  const auto pass = [&](int way, int thread) {
    copy_loop(from.part(thread), to.part(thread), from.part_bytes(), way == 1);
  };
  best_seconds(options, 2, pass, best);
  return 2 * static_cast<double>(from.total_bytes()) / best;
}

}  // namespace saccade::measure
