// What the lanes of a warp do together.
#pragma once

#include <bit>

#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE::ptx {

#ifdef __CUDACC__
/// Orders the memory accesses of the lanes in `mask`.
SACCADE_DEVICE void sync_warp(std::uint32_t mask = kAllLanes) {
  __syncwarp(mask);
}
/// The value that lane `lane ^ distance` passes.
template <class T>
SACCADE_DEVICE T shuffle_xor(T value, int distance) {
  return __shfl_xor_sync(kAllLanes, value, distance);
}
/// The value that lane `from` passes.
template <class T>
SACCADE_DEVICE T shuffle(T value, int from) {
  return __shfl_sync(kAllLanes, value, from);
}
/// The same number, which the compiler now has to keep: it cannot work it out again at every use, as it likes
/// to do with what follows from the thread's number. By all lanes of a warp, once, before a loop.
SACCADE_DEVICE int pinned(int x) {
  return __shfl_sync(kAllLanes, x, lane_index());
}
/// True in exactly one lane of a converged warp.
SACCADE_DEVICE bool elect_one() {
#if __CUDA_ARCH__ >= 900
  std::uint32_t elected;
  asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}"
               : "=r"(elected));
  return elected != 0;
#else
  return threadIdx.x % kWarpThreads == 0;
#endif
}
/// Whether the predicate holds in any lane.
SACCADE_DEVICE bool any_lane(bool predicate) {
  return __any_sync(kAllLanes, predicate) != 0;
}
#else
SACCADE_DEVICE void sync_warp(std::uint32_t mask = kAllLanes SACCADE_WHERE) {
  emu::this_thread().sync_warp(mask, where);
}
namespace detail {
template <class T>
T exchange(const char* name, T value, int from, const emu::Where& where) {
  struct Lane {
    T given, taken;
    int from;
  } mine{value, T{}, from};
  emu::Thread& thread = emu::this_thread();
  thread.require(from >= 0 && from < kWarpThreads, "shuffles from a lane that does not exist", where);
  thread.meet(name, kAllLanes, mine, where, [&](const std::array<Lane*, 32>& lanes) {
    ++thread.block.cluster.counters.shuffles;
    for (Lane* lane : lanes) lane->taken = lanes[static_cast<std::size_t>(lane->from)]->given;
  });
  return mine.taken;
}
}  // namespace detail
template <class T>
SACCADE_DEVICE T shuffle_xor(T value, int distance SACCADE_WHERE) {
  return detail::exchange("a shuffle", value, lane_index() ^ distance, where);
}
template <class T>
SACCADE_DEVICE T shuffle(T value, int from SACCADE_WHERE) {
  return detail::exchange("a shuffle", value, from, where);
}
SACCADE_DEVICE int pinned(int x) {
  return x;
}
SACCADE_DEVICE bool elect_one(SACCADE_ONLY_WHERE) {
  int nothing = 0;
  emu::this_thread().meet("an election", kAllLanes, nothing, where, [](const auto&) {});
  return lane_index() == 0;
}
SACCADE_DEVICE bool any_lane(bool predicate SACCADE_WHERE) {
  struct Lane {
    bool given, taken;
  } mine{predicate, false};
  emu::this_thread().meet("a vote", kAllLanes, mine, where, [](const std::array<Lane*, 32>& lanes) {
    bool any = false;
    for (const Lane* lane : lanes) any = any || lane->given;
    for (Lane* lane : lanes) lane->taken = any;
  });
  return mine.taken;
}
#endif

}  // namespace saccade::SACCADE_MACHINE::ptx
