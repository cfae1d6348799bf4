// One thread's view: memory, meetings of a warp, and the barriers that count threads.
#include "emu/thread.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>

namespace saccade::emu {

void Warp::release(VectorClock& into) {
  into.join(clock);
  clock.raise(agent, ++epoch);
}

Thread::Thread(Block& its_block, std::uint32_t its_index)
    : block(its_block),
      index(its_index),
      id(its_block.rank * its_block.cluster.shape.block + its_index),
      warp(*its_block.warps[its_index / kWarpThreads]),
      lane(its_index % kWarpThreads) {}

void Thread::fail(const std::string& complaint, const Where& where) const {
  const Cluster& cluster = block.cluster;
  throw Error(fmt::format("{}: block ({}, {}, {}) thread {} at {}: {} (seed {})", cluster.shape.kernel,
                          block.index.x, block.index.y, block.index.z, index, to_string(where), complaint,
                          cluster.options.seed));
}

Block* Thread::owner(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  for (const auto& candidate : block.cluster.blocks) {
    const std::span<std::byte> shared = candidate->shared;
    // One past the end belongs to it too: that is what an access out of bounds most likely meant.
    if (at >= shared.data() && at <= shared.data() + shared.size()) return candidate.get();
  }
  return nullptr;
}

std::size_t Thread::shared_offset(const void* address, const Where& where) const {
  const Block* home = owner(address);
  require(home != nullptr, "takes an address outside of shared memory for one inside", where);
  return static_cast<std::size_t>(static_cast<const std::byte*>(address) - home->shared.data());
}

Actor Thread::actor(const Where& where) {
  return {warp.agent, warp.epoch, id, ++stamp, &warp.clock, where};
}

namespace {

void check_alignment(const Thread& thread, const void* address, std::size_t bytes, const Where& where) {
  if (std::has_single_bit(bytes) && reinterpret_cast<std::uintptr_t>(address) % bytes != 0) {
    thread.fail(fmt::format("an access of {} bytes is not aligned to them", bytes), where);
  }
}

}  // namespace

void Thread::read(const void* from, std::size_t bytes, const Where& where) {
  check_alignment(*this, from, bytes, where);
  Block* home = owner(from);
  if (block.cluster.options.count) {
    const std::size_t address =
        home != nullptr ? shared_offset(from, where) : reinterpret_cast<std::size_t>(from);
    warp.traffic.access(static_cast<int>(lane), home != nullptr ? Traffic::shared_load : Traffic::global_load,
                        address, bytes, where);
  }
  if (home == nullptr) {
    if (const std::string complaint = block.cluster.memory.read(from, bytes); !complaint.empty())
      fail(complaint, where);
    return;
  }
  const std::size_t offset = shared_offset(from, where);
  require(offset + bytes <= home->shared.size(), "reads past the end of shared memory", where);
  require(home->live > 0, "reads the shared memory of a block that has ended", where);
  if (const Complaint complaint = home->shadow->read(offset, bytes, actor(where)); !complaint.empty()) {
    fail(complaint, where);
  }
}

void Thread::write(void* to, std::size_t bytes, const Where& where) {
  check_alignment(*this, to, bytes, where);
  Block* home = owner(to);
  if (block.cluster.options.count) {
    const std::size_t address =
        home != nullptr ? shared_offset(to, where) : reinterpret_cast<std::size_t>(to);
    warp.traffic.access(static_cast<int>(lane),
                        home != nullptr ? Traffic::shared_store : Traffic::global_store, address, bytes,
                        where);
  }
  if (home == nullptr) {
    if (const std::string complaint = block.cluster.memory.write(to, bytes); !complaint.empty())
      fail(complaint, where);
    return;
  }
  const std::size_t offset = shared_offset(to, where);
  require(offset + bytes <= home->shared.size(), "writes past the end of shared memory", where);
  require(home->live > 0, "writes the shared memory of a block that has ended", where);
  if (const Complaint complaint = home->shadow->write(offset, bytes, actor(where)); !complaint.empty()) {
    fail(complaint, where);
  }
}

void Thread::read_asynchronously(const void* from, std::size_t bytes, std::uint32_t agent,
                                 std::uint32_t epoch, const VectorClock& clock, const Where& where) {
  Block* home = owner(from);
  const std::size_t offset = shared_offset(from, where);
  require(offset + bytes <= home->shared.size(), "reads past the end of shared memory", where);
  require(home->live > 0, "reads the shared memory of a block that has ended", where);
  const Actor reader{agent, epoch, id, ++stamp, &clock, where};
  if (const Complaint complaint = home->shadow->read(offset, bytes, reader); !complaint.empty())
    fail(complaint, where);
}

void Thread::wait(const char* what, const Where& where) {
  waiting_for = what;
  waiting_at = where;
  fiber->suspend();
}

void Thread::yield() {
  block.cluster.let_time_pass();
  block.cluster.wake(*this);
  fiber->suspend();
}

Warp::Meeting* Thread::arrive(const char* name, std::uint32_t mask, void* argument, const Where& where) {
  require((mask >> lane & 1U) != 0, "takes part in a warp instruction whose mask leaves it out", where);
  auto& meetings = warp.meetings;
  auto meeting =
      std::find_if(meetings.begin(), meetings.end(), [&](const auto& m) { return (m.mask & mask) != 0; });
  if (meeting == meetings.end()) {
    meetings.push_back(
        {.mask = mask, .arrived = 0, .name = name, .where = where, .arguments = {}, .waiting = {}});
    meeting = meetings.end() - 1;
  } else if (meeting->mask != mask || std::string_view(meeting->name) != name || !(meeting->where == where)) {
    fail(fmt::format("{} with lanes {:08x}, while other lanes of its warp are at {} with lanes {:08x} ({})",
                     name, mask, meeting->name, meeting->mask, to_string(meeting->where)),
         where);
  }
  meeting->arrived |= 1U << lane;
  meeting->arguments[lane] = argument;
  if (meeting->arrived != mask) {
    meeting->waiting.push_back(this);
    wait(name, where);
    return nullptr;
  }
  return &*meeting;
}

void Thread::leave(const Warp::Meeting& meeting) {
  for (Thread* thread : meeting.waiting) block.cluster.wake(*thread);
  warp.meetings.erase(warp.meetings.begin() + (&meeting - warp.meetings.data()));
}

void Thread::sync_warp(std::uint32_t mask, const Where& where) {
  int nothing = 0;
  meet("a warp barrier", mask, nothing, where, [&](auto&) {
    ++block.cluster.counters.warp_barriers;
    warp.clock.raise(warp.agent, ++warp.epoch);
  });
}

namespace {

/// Counts one more arrival; whether it was the last, in which case everyone may go on.
bool arrive_at(CountingBarrier& barrier, Warp& warp, Cluster& cluster, bool release = true) {
  if (release) warp.release(barrier.arriving);
  if (++barrier.arrived < barrier.expected) return false;
  barrier.released = std::move(barrier.arriving);
  barrier.arriving.clear();
  barrier.arrived = 0;
  ++barrier.generation;
  for (Thread* thread : barrier.waiting) thread->warp.acquire(barrier.released);
  cluster.wake_all(barrier.waiting);
  return true;
}

}  // namespace

void Thread::sync_block(std::uint32_t number, std::uint32_t threads, bool wait_too, const Where& where) {
  require(number < block.barriers.size(), "names a barrier beyond the 16 of a block", where);
  require(threads > 0 && threads % kWarpThreads == 0,
          "a block barrier for a number of threads that is no multiple of 32", where);
  CountingBarrier& barrier = block.barriers[number];
  if (barrier.arrived == 0) barrier.expected = threads;
  if (barrier.expected != threads) {
    fail(fmt::format("expects {} threads at barrier {}, others expect {}", threads, number, barrier.expected),
         where);
  }
  if (lane == 0) ++block.cluster.counters.block_barriers;
  if (arrive_at(barrier, warp, block.cluster)) {
    if (wait_too) warp.acquire(barrier.released);
    return;
  }
  if (!wait_too) return;
  barrier.waiting.push_back(this);
  wait("a block barrier", where);
}

void Thread::arrive_cluster(bool release, const Where& where) {
  CountingBarrier& barrier = block.cluster.barrier;
  require(cluster_arrivals == barrier.generation, "arrives twice at one cluster barrier", where);
  barrier.expected = block.cluster.shape.cluster * block.cluster.shape.block;
  ++cluster_arrivals;
  if (lane == 0) ++block.cluster.counters.cluster_barriers;
  Cluster& cluster = block.cluster;
  cluster.arrived_fences[id] = cluster.mbarrier_fences[id];
  const std::uint64_t before = barrier.generation;
  arrive_at(barrier, warp, cluster, release);
  if (barrier.generation != before) cluster.shown_fences = cluster.arrived_fences;
}

void Thread::wait_cluster(const Where& where) {
  CountingBarrier& barrier = block.cluster.barrier;
  require(cluster_arrivals > 0, "waits at a cluster barrier without having arrived", where);
  if (barrier.generation < cluster_arrivals) {
    barrier.waiting.push_back(this);
    wait("a cluster barrier", where);
  } else {
    warp.acquire(barrier.released);
  }
  warp.known_fences = block.cluster.shown_fences;
}

void Thread::fence_proxy() {
  block.cluster.fences[id] = ++stamp;
  block.cluster.mbarrier_fences[id] = stamp;
}

void Thread::fence_mbarriers() {
  block.cluster.mbarrier_fences[id] = ++stamp;
}

Block& Thread::peer(std::uint32_t rank, const Where& where) const {
  require(rank < block.cluster.shape.cluster, "names a block that the cluster has not", where);
  return *block.cluster.blocks[rank];
}

}  // namespace saccade::emu
