#include "verify/load.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace saccade {
namespace {

constexpr std::size_t kSweptBytes = std::size_t{4} << 20;

// What the threads calculate ends here, so that the compiler cannot leave it out.
std::atomic<std::uint64_t> sink;

void compute(const std::stop_token& stop) {
  std::uint64_t x = 1;
  while (!stop.stop_requested()) {
    for (int i = 0; i < 1000; ++i) x = x * 6364136223846793005U + 1442695040888963407U;
  }
  sink.fetch_add(x, std::memory_order_relaxed);
}

void sweep(const std::stop_token& stop) {
  constexpr std::size_t kLine = 64;
  std::vector<unsigned char> memory(kSweptBytes);
  while (!stop.stop_requested()) {
    for (std::size_t at = 0; at < memory.size() && !stop.stop_requested(); at += kLine) ++memory[at];
  }
  sink.fetch_add(memory[0], std::memory_order_relaxed);
}

}  // namespace

Load::Load() {
  const unsigned cpus = std::max(std::thread::hardware_concurrency(), 1U);
  for (unsigned cpu = 0; cpu < cpus; ++cpu) {
    threads_.emplace_back(compute);
    threads_.emplace_back(sweep);
  }
}

}  // namespace saccade
