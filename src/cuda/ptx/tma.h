// The bulk copy engine: boxes of tensors and runs of bytes between global and shared memory (Hopper).
//
// One thread starts a copy. Loads complete on an mbarrier that was told to expect their bytes (of the whole
// box, even where it lies outside of the tensor: zeros are filled in there). Stores write only what lies
// inside, and belong to the thread's groups. What was stored to shared memory by ordinary instructions needs
// fence_shared_to_async() in the threads that stored it, and a barrier, before a bulk store reads it. A box
// lies in shared memory without gaps, the innermost dimension first, at an address aligned to 128 bytes; with
// a swizzle of 128, 64 or 32 bytes its rows have that many bytes, and bits 4.. of an address are xored with
// bits 7.. (3, 2 or 1 of them).
#pragma once

#include "cuda/ptx/machine.h"
#include "cuda/ptx/mbarrier.h"
#ifdef __CUDACC__
#include <cuda.h>
#include <cuda/ptx>
#endif

namespace saccade::SACCADE_MACHINE::ptx {

#ifdef __CUDACC__
/// A tensor and the box that copies move. Made by launch/tensor_map.h; part of a kernel's argument.
using TensorMap = CUtensorMap;

/// Fetches the map itself ahead of its first use.
SACCADE_DEVICE void prefetch_map(const TensorMap& map) {
  SACCADE_SINCE_SM90(asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"));
}
/// Loads the box at `at` (innermost coordinate first; 2 to 5 of them).
template <int kRank>
SACCADE_DEVICE void load_box(void* to, const TensorMap& map, const std::int32_t (&at)[kRank],
                             Mbarrier* barrier) {
  SACCADE_SINCE_SM90(cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, to,
                                                     &map, at, barrier));
}
/// Loads the box into the same place of each block of the cluster whose bit is set in `blocks`; each one's
/// own barrier at the same place gets the bytes.
template <int kRank>
SACCADE_DEVICE void load_box_to_blocks(void* to, const TensorMap& map, const std::int32_t (&at)[kRank],
                                       Mbarrier* barrier, std::uint16_t blocks) {
  SACCADE_ONLY_SM90A(cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, to,
                                                     &map, at, barrier, blocks));
}
/// Stores the box at `at`, of which no coordinate may be negative; beyond the far ends nothing is written.
template <int kRank>
SACCADE_DEVICE void store_box(const TensorMap& map, const std::int32_t (&at)[kRank], const void* from) {
  SACCADE_SINCE_SM90(
      cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_global, cuda::ptx::space_shared, &map, at, from));
}
/// Loads `bytes` bytes (a multiple of 16, addresses too).
SACCADE_DEVICE void load_bytes(void* to, const void* from, int bytes, Mbarrier* barrier) {
  SACCADE_SINCE_SM90(cuda::ptx::cp_async_bulk(cuda::ptx::space_cluster, cuda::ptx::space_global, to, from,
                                              static_cast<std::uint32_t>(bytes), barrier));
}
/// Stores `bytes` bytes (a multiple of 16, addresses too).
SACCADE_DEVICE void store_bytes(void* to, const void* from, int bytes) {
  SACCADE_SINCE_SM90(cuda::ptx::cp_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, to, from,
                                              static_cast<std::uint32_t>(bytes)));
}
/// Closes the group of stores that this thread has started since the last one.
SACCADE_DEVICE void commit_stores() {
  SACCADE_SINCE_SM90(cuda::ptx::cp_async_bulk_commit_group());
}
/// Waits until at most kLeft of this thread's newest groups may still read shared memory.
template <int kLeft>
SACCADE_DEVICE void wait_stores_read() {
  SACCADE_SINCE_SM90(cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<kLeft>{}));
}
/// Waits until at most kLeft of this thread's newest groups are unfinished: the others' bytes are written.
template <int kLeft>
SACCADE_DEVICE void wait_stores() {
  SACCADE_SINCE_SM90(cuda::ptx::cp_async_bulk_wait_group(cuda::ptx::n32_t<kLeft>{}));
}
#else
using TensorMap = emu::TensorMap;

SACCADE_DEVICE void prefetch_map(const TensorMap&) {}
namespace detail {
template <int kRank>
void check_rank(const TensorMap& map, const emu::Where& where) {
  static_assert(kRank >= 2 && kRank <= 5);
  emu::this_thread().require(map.rank == kRank,
                             "a tensor copy with another number of coordinates than its map", where);
}
}  // namespace detail
template <int kRank>
SACCADE_DEVICE void load_box(void* to, const TensorMap& map, const std::int32_t (&at)[kRank],
                             Mbarrier* barrier SACCADE_WHERE) {
  detail::check_rank<kRank>(map, where);
  emu::this_thread().load_tensor(to, map, at, barrier, 0, where);
}
template <int kRank>
SACCADE_DEVICE void load_box_to_blocks(void* to, const TensorMap& map, const std::int32_t (&at)[kRank],
                                       Mbarrier* barrier, std::uint16_t blocks SACCADE_WHERE) {
  detail::check_rank<kRank>(map, where);
  emu::this_thread().require(blocks != 0, "a multicast to no block", where);
  emu::this_thread().load_tensor(to, map, at, barrier, blocks, where);
}
template <int kRank>
SACCADE_DEVICE void store_box(const TensorMap& map, const std::int32_t (&at)[kRank],
                              const void* from SACCADE_WHERE) {
  detail::check_rank<kRank>(map, where);
  emu::this_thread().store_tensor(map, at, from, where);
}
SACCADE_DEVICE void load_bytes(void* to, const void* from, int bytes, Mbarrier* barrier SACCADE_WHERE) {
  emu::this_thread().load_bulk(to, from, static_cast<std::size_t>(bytes), barrier, where);
}
SACCADE_DEVICE void store_bytes(void* to, const void* from, int bytes SACCADE_WHERE) {
  emu::this_thread().store_bulk(to, from, static_cast<std::size_t>(bytes), where);
}
SACCADE_DEVICE void commit_stores() {
  emu::this_thread().commit_stores();
}
template <int kLeft>
SACCADE_DEVICE void wait_stores_read() {
  emu::this_thread().wait_stores(kLeft);
}
template <int kLeft>
SACCADE_DEVICE void wait_stores() {
  emu::this_thread().wait_stores(kLeft);
}
#endif

}  // namespace saccade::SACCADE_MACHINE::ptx
