// The scheduler: which fiber runs next, when deferred work completes, and the launch of a whole grid.
#include <algorithm>
#include <atomic>
#include <exception>
#include <fmt/format.h>
#include <mutex>
#include <new>
#include <thread>

#include "emu/thread.h"

namespace saccade::emu {
namespace {

thread_local Thread* running = nullptr;

std::uint64_t mix(std::uint64_t x) {  // the finaliser of splitmix64
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  return x ^ x >> 31;
}

constexpr std::size_t kSharedAlignment = 1024;  // what the widest swizzle of the copy engine asks for

std::byte* allocate_shared(std::size_t bytes) {
  auto* memory = static_cast<std::byte*>(
      ::operator new[](std::max<std::size_t>(bytes, 1), std::align_val_t{kSharedAlignment}));
  std::memset(memory, kPoisonByte, bytes);
  return memory;
}

void release_shared(std::byte* memory) {
  ::operator delete[](memory, std::align_val_t{kSharedAlignment});
}

}  // namespace

Thread& this_thread() {
  if (running == nullptr) throw Error("a device primitive was called outside of a launch");
  return *running;
}

Block::Block(Cluster& its_cluster, Dim3 its_index, std::uint32_t its_rank)
    : cluster(its_cluster),
      index(its_index),
      rank(its_rank),
      live(its_cluster.shape.block),
      memory_(allocate_shared(its_cluster.shape.shared_bytes), release_shared) {
  shared = {memory_.get(), cluster.shape.shared_bytes};
  shadow = std::make_unique<Shadow>(shared.size(), cluster.warps, cluster.fences);
  const std::uint32_t warp_count = cluster.shape.block / kWarpThreads;
  for (std::uint32_t n = 0; n < warp_count; ++n) {
    auto& warp = warps.emplace_back(std::make_unique<Warp>());
    warp->agent = rank * warp_count + n;
    warp->clock.raise(warp->agent, warp->epoch);
    warp->block = this;
  }
  warpgroups.resize((warp_count + kWarpgroupWarps - 1) / kWarpgroupWarps);
  for (Warpgroup& group : warpgroups) group.registers = cluster.shape.registers;
  free_registers = 0;
  for (std::uint32_t n = 0; n < cluster.shape.block; ++n)
    threads.push_back(std::make_unique<Thread>(*this, n));
}

Cluster::Cluster(const Shape& its_shape, const GlobalMemory& its_memory, const Options& its_options,
                 std::uint64_t its_number, const std::function<void()>& thread_main)
    : shape(its_shape),
      memory(its_memory),
      options(its_options),
      number(its_number),
      warps(its_shape.cluster * (its_shape.block / kWarpThreads)),
      fences(std::size_t{its_shape.cluster} * its_shape.block),
      mbarrier_fences(fences.size()),
      arrived_fences(fences.size()),
      thread_main_(thread_main),
      random_(mix(its_options.seed) ^ mix(~its_number)),
      timing_(static_cast<Timing>(random_() % 3)),
      next_agent_(3 * warps) {
  const std::uint64_t first = number * shape.cluster;
  for (std::uint32_t rank = 0; rank < shape.cluster; ++rank) {
    const std::uint64_t linear = first + rank;
    const Dim3 index{static_cast<std::uint32_t>(linear % shape.grid.x),
                     static_cast<std::uint32_t>(linear / shape.grid.x % shape.grid.y),
                     static_cast<std::uint32_t>(linear / shape.grid.x / shape.grid.y)};
    blocks.push_back(std::make_unique<Block>(*this, index, rank));
  }
  counters.blocks = shape.cluster;
}

void Cluster::run() {
  std::exception_ptr failure;
  for (auto& block : blocks) {
    for (auto& thread : block->threads) {
      thread->fiber = std::make_unique<Fiber>([this, &failure] {
        try {
          thread_main_();
        } catch (const std::exception&) {
          failure = std::current_exception();
        }
      });
      runnable_.push_back(thread.get());
    }
  }
  std::size_t live = runnable_.size();
  while (live > 0 && failure == nullptr) {
    const bool complete = timing_ == Timing::random && chance(8);
    if (!deferred_.empty() && (runnable_.empty() || complete)) {
      try {
        complete_one_deferred();
      } catch (const std::exception&) {
        failure = std::current_exception();
      }
      continue;
    }
    if (runnable_.empty()) report_deadlock();
    std::swap(runnable_[random_() % runnable_.size()], runnable_.back());
    Thread& thread = *runnable_.back();
    runnable_.pop_back();
    thread.waiting_for = nullptr;
    running = &thread;
    thread.fiber->resume();
    running = nullptr;
    if (thread.fiber->done()) {
      --live;
      --thread.block.live;
    }
  }
  if (failure != nullptr) {
    for (auto& block : blocks) block->threads.clear();  // unwinds every fiber while its machine still stands
    std::rethrow_exception(failure);
  }
  while (!deferred_.empty()) complete_one_deferred();
  for (auto& block : blocks) {
    for (auto& warp : block->warps) warp->traffic.flush(counters);
  }
}

void Cluster::wake_all(std::vector<Thread*>& threads) {
  for (Thread* thread : threads) wake(*thread);
  threads.clear();
}

void Cluster::defer(std::function<void()> work) {
  if (timing_ == Timing::at_once || (timing_ == Timing::random && chance(2))) {
    work();
  } else {
    deferred_.push_back(std::move(work));
  }
}

void Cluster::complete_one_deferred() {
  std::swap(deferred_[random_() % deferred_.size()], deferred_.back());
  const std::function<void()> work = std::move(deferred_.back());
  deferred_.pop_back();
  work();
}

void Cluster::report_deadlock() const {
  // Many threads wait at one place: say each place once.
  std::map<std::string, std::pair<std::uint32_t, std::string>> places;
  for (const auto& block : blocks) {
    for (const auto& thread : block->threads) {
      if (thread->fiber->done()) continue;
      const std::string place = fmt::format("{} at {}", thread->waiting_for, to_string(thread->waiting_at));
      auto& [count, first] = places[place];
      if (count++ == 0) first = fmt::format("block {} thread {}", block->rank, thread->index);
    }
  }
  std::string text =
      fmt::format("{}: cluster {} is deadlocked (seed {})", shape.kernel, number, options.seed);
  for (const auto& [place, threads] : places) {
    text += fmt::format("; {} threads from {} on wait for {}", threads.first, threads.second, place);
  }
  throw Error(text);
}

Counters launch(const Shape& shape, const GlobalMemory& memory, const Options& options,
                const std::function<void()>& thread_main) {
  if (shape.block == 0 || shape.block % kWarpThreads != 0 || shape.block > 1024) {
    throw Error(fmt::format("{}: a block of {} threads; it takes a multiple of 32 up to 1024", shape.kernel,
                            shape.block));
  }
  if (shape.shared_bytes > kMaxSharedBytes) {
    throw Error(fmt::format("{}: {} bytes of shared memory; a block has {} at most", shape.kernel,
                            shape.shared_bytes, kMaxSharedBytes));
  }
  if (shape.cluster == 0 || shape.cluster > 16 || shape.grid.x % shape.cluster != 0) {
    throw Error(fmt::format("{}: clusters of {} blocks do not divide a grid of {} (x)", shape.kernel,
                            shape.cluster, shape.grid.x));
  }
  if (shape.grid.y > 65535 || shape.grid.z > 65535) {
    throw Error(fmt::format("{}: a grid of {} x {} (y, z); it has 65535 at most", shape.kernel, shape.grid.y,
                            shape.grid.z));
  }
  const std::uint64_t clusters = std::uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z / shape.cluster;
  const auto cores = static_cast<std::uint64_t>(
      options.cores > 0 ? options.cores : std::max(1U, std::thread::hardware_concurrency()));
  std::atomic<std::uint64_t> next = 0;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  std::exception_ptr failure;
  Counters counters;
  const auto work = [&] {
    Counters mine;
    try {
      for (std::uint64_t n = next++; n < clusters && !failed; n = next++) {
        Cluster cluster(shape, memory, options, n, thread_main);
        cluster.run();
        mine.add(cluster.counters);
      }
    } catch (const std::exception&) {
      const std::lock_guard lock(mutex);
      if (!failed.exchange(true)) failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    counters.add(mine);
  };
  std::vector<std::jthread> workers;
  for (std::uint64_t n = 1; n < std::min(cores, clusters); ++n) workers.emplace_back(work);
  work();
  workers.clear();
  if (failure != nullptr) std::rethrow_exception(failure);
  return counters;
}

}  // namespace saccade::emu
