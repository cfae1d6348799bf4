// Work that completes later: cp.async groups, and mbarriers.
#include <algorithm>
#include <fmt/format.h>

#include "emu/thread.h"

namespace saccade::emu {

void Thread::copy_async(void* to, const void* from, std::uint32_t bytes, std::uint32_t valid,
                        const Where& where) {
  require(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes", where);
  require(valid <= bytes, "cp.async takes more bytes from its source than it copies", where);
  require(reinterpret_cast<std::uintptr_t>(to) % bytes == 0, "cp.async to an address that is not aligned",
          where);
  require(reinterpret_cast<std::uintptr_t>(from) % bytes == 0, "cp.async from an address that is not aligned",
          where);
  const std::size_t offset = shared_offset(to, where);
  Cluster& cluster = block.cluster;
  require(owner(to) == &block, "cp.async writes the shared memory of another block", where);
  require(offset + bytes <= block.shared.size(), "cp.async writes past the end of shared memory", where);
  if (valid > 0) {
    if (const std::string complaint = cluster.memory.read(from, valid); !complaint.empty())
      fail(complaint, where);
  }
  if (cluster.options.count) {
    warp.traffic.access(static_cast<int>(lane), Traffic::shared_store, offset, bytes, where);
    if (valid > 0) {
      warp.traffic.access(static_cast<int>(lane), Traffic::global_load, reinterpret_cast<std::size_t>(from),
                          valid, where);
    }
  }
  cluster.counters.copied_bytes += valid;
  if (copy_agent_ == 0) copy_agent_ = cluster.new_agent();
  const Complaint complaint =
      block.shadow->begin_copy(offset, bytes, actor(where), copy_agent_, copy_epoch_, false);
  if (!complaint.empty()) fail(complaint, where);
  std::memset(to, kPoisonByte, bytes);
  copies_.push_back(
      {static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, valid, copy_epoch_});
  if (cluster.chance(2)) {
    finish_copy(copies_.back());
    copies_.pop_back();
  }
}

void Thread::finish_copy(const Copy& copy) {
  if (copy.valid > 0) std::memcpy(copy.to, copy.from, copy.valid);
  std::memset(copy.to + copy.valid, 0, copy.bytes - copy.valid);
  block.shadow->end_copy(static_cast<std::size_t>(copy.to - block.shared.data()), copy.bytes, copy.epoch,
                         ++stamp);
}

void Thread::finish_copies_until(std::uint32_t epoch) {
  while (!copies_.empty() && copies_.front().epoch <= epoch) {
    finish_copy(copies_.front());
    copies_.pop_front();
  }
}

void Thread::commit_copies() {
  group_epochs_.push_back(copy_epoch_++);
}

void Thread::wait_copies(std::uint32_t groups_left) {
  if (group_epochs_.size() <= groups_left) return;
  const std::uint32_t done = group_epochs_[group_epochs_.size() - groups_left - 1];
  finish_copies_until(done);
  if (copy_agent_ != 0) warp.clock.raise(copy_agent_, done);
}

void Thread::arrive_when_copied(std::uint64_t* barrier, const Where& where) {
  Mbarrier& state = mbarrier_at(barrier, where);
  check_initialised(state, where);
  const std::uint32_t done = copy_epoch_++;
  ++state.copies;
  block.cluster.defer([this, done, where, &state] {
    require(block.live > 0, "copies that it started arrive at a block that has ended", where);
    finish_copies_until(done);
    --state.copies;
    require(state.pending > 0, "its copies arrive at an mbarrier that expects no more arrivals in this phase",
            where);
    ++block.cluster.counters.mbarrier_arrivals;
    if (copy_agent_ != 0) state.arriving.raise(copy_agent_, done);
    --state.pending;
    block.cluster.complete_phase_if_due(state);
  });
}

Mbarrier& Thread::mbarrier_at(const std::uint64_t* barrier, const Where& where) {
  Block* home = owner(barrier);
  const auto found =
      home == nullptr ? block.mbarriers.end() : home->mbarriers.find(shared_offset(barrier, where));
  if (home == nullptr || found == home->mbarriers.end())
    fail("there is no initialised mbarrier at this address", where);
  require(home->live > 0, "uses an mbarrier of a block that has ended", where);
  return found->second;
}

void Thread::init_mbarrier(std::uint64_t* barrier, std::uint32_t count, const Where& where) {
  require(count > 0 && count < 1U << 20, "an mbarrier counts 1 to 2^20 - 1 arrivals", where);
  require(reinterpret_cast<std::uintptr_t>(barrier) % 8 == 0, "an mbarrier that is not aligned to 8 bytes",
          where);
  require(owner(barrier) == &block, "initialises an mbarrier outside of the block's shared memory", where);
  const std::size_t offset = shared_offset(barrier, where);
  require(offset + sizeof *barrier <= block.shared.size(), "an mbarrier past the end of shared memory",
          where);
  require(!block.mbarriers.contains(offset), "initialises an mbarrier twice", where);
  if (const Complaint complaint = block.shadow->write(offset, sizeof *barrier, actor(where));
      !complaint.empty()) {
    fail(complaint, where);
  }
  block.shadow->set_barrier(offset, sizeof *barrier, true);
  Mbarrier& made = block.mbarriers[offset];
  made.count = made.pending = count;
  made.agent = block.cluster.new_agent();
  made.init_thread = id;
  made.init_stamp = stamp;
  made.released = warp.clock;
}

void Thread::invalidate_mbarrier(std::uint64_t* barrier, const Where& where) {
  const Mbarrier& state = mbarrier_at(barrier, where);
  require(state.waiting.empty(), "invalidates an mbarrier that others wait for", where);
  require(state.copies == 0, "invalidates an mbarrier that copies in flight complete on", where);
  Block* home = owner(barrier);
  const std::size_t offset = shared_offset(barrier, where);
  home->mbarriers.erase(offset);
  home->shadow->set_barrier(offset, sizeof *barrier, false);
}

void Cluster::complete_phase_if_due(Mbarrier& state) {
  if (state.pending != 0 || state.bytes != 0) return;
  ++state.phase;
  state.pending = state.count;
  state.released.join(state.arriving);
  state.released.raise(state.agent, state.phase);
  state.arriving.clear();
  wake_all(state.waiting);  // each looks again whether its phase is the one that ended
}

void Thread::check_initialised(const Mbarrier& barrier, const Where& where) const {
  if (barrier.phase > 0) return;
  const std::uint32_t agent = barrier.init_thread / kWarpThreads;
  if (barrier.init_thread < warp.known_fences.size() &&
      warp.known_fences[barrier.init_thread] > barrier.init_stamp)
    return;
  if (agent != warp.agent && warp.clock[agent] < barrier.released[agent]) {
    fail(fmt::format("uses an mbarrier that thread {} initialised, with nothing that orders the two",
                     barrier.init_thread),
         where);
  }
}

void Thread::arrive_mbarrier(std::uint64_t* barrier, std::uint32_t arrivals, std::int64_t bytes,
                             const Where& where) {
  Mbarrier& state = mbarrier_at(barrier, where);
  check_initialised(state, where);
  if (arrivals > state.pending) {
    fail(fmt::format("arrives at an mbarrier that expects {} more arrivals in this phase", state.pending),
         where);
  }
  state.bytes += bytes;
  require(bytes >= 0 && state.bytes < 1 << 20, "an mbarrier that expects 2^20 bytes or more", where);
  if (arrivals == 0) return;
  block.cluster.counters.mbarrier_arrivals += arrivals;
  warp.release(state.arriving);
  state.pending -= arrivals;
  block.cluster.complete_phase_if_due(state);
}

bool Thread::test_mbarrier(std::uint64_t* barrier, std::uint32_t parity, const Where& where) {
  Mbarrier& state = mbarrier_at(barrier, where);
  check_initialised(state, where);
  require(parity <= 1, "waits for an mbarrier phase whose parity is neither 0 nor 1", where);
  // The phase in progress has parity phase % 2; any other parity names the phase before it.
  if (state.phase % 2 == parity) return false;
  warp.acquire(state.released);
  return true;
}

void Thread::wait_mbarrier(std::uint64_t* barrier, std::uint32_t parity, const Where& where) {
  ++block.cluster.counters.mbarrier_waits;
  while (!test_mbarrier(barrier, parity, where)) {
    mbarrier_at(barrier, where).waiting.push_back(this);
    wait("an mbarrier", where);
  }
}

}  // namespace saccade::emu
