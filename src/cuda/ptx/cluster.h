// Blocks of one cluster: their ranks, their barrier, and each other's shared memory (Hopper).
#pragma once

#include "cuda/ptx/machine.h"
#include "cuda/ptx/mbarrier.h"
#include "cuda/ptx/memory.h"
#ifdef __CUDACC__
#include <cuda/ptx>
#endif

namespace saccade::SACCADE_MACHINE::ptx {

#ifdef __CUDACC__
/// This block's number in its cluster.
SACCADE_DEVICE int cluster_rank() {
#if __CUDA_ARCH__ >= 900
  return static_cast<int>(cuda::ptx::get_sreg_cluster_ctarank());
#else
  return 0;
#endif
}
/// Blocks in the cluster.
SACCADE_DEVICE int cluster_size() {
#if __CUDA_ARCH__ >= 900
  return static_cast<int>(cuda::ptx::get_sreg_cluster_nctarank());
#else
  return 1;
#endif
}
/// Arrives at the barrier of all threads of the cluster; what came before is seen after the others' waits.
/// This and the two below: by all lanes of a warp together.
SACCADE_DEVICE void arrive_cluster() {
  SACCADE_SINCE_SM90(asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"));
}
/// Arrives without ordering memory.
SACCADE_DEVICE void arrive_cluster_relaxed() {
  SACCADE_SINCE_SM90(asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"));
}
/// Waits for all threads of the cluster to arrive.
SACCADE_DEVICE void wait_cluster() {
  SACCADE_SINCE_SM90(asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"));
}
/// Where the same object of shared memory lies in block `rank`. For load() and store().
template <class T>
SACCADE_DEVICE T* in_block(T* pointer, int rank) {
#if __CUDA_ARCH__ >= 900
  T* there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(pointer), "r"(rank));
  return there;
#else
  __trap();
  return pointer;
#endif
}
namespace detail {
/// Where something of this block's shared memory lies in block `rank`.
SACCADE_DEVICE std::uint32_t address_in_block(std::uint32_t address, int rank) {
  std::uint32_t there = 0;
  SACCADE_SINCE_SM90(asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank)));
  return there;
}
}  // namespace detail
/// Stores 16 bytes to the same place of block `rank`, where they count as bytes of the barrier at the
/// same place as `barrier`: who waits for its phase sees them (with a wait of the
/// block's scope too, as hardware completes them like bulk copies). Nobody has to fence or arrive.
SACCADE_DEVICE void store_to_block(Bytes16* to, const Bytes16& value, Mbarrier* barrier, int rank) {
  SACCADE_SINCE_SM90(asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%2, %3, %4, %5}, "
      "[%1];" ::"r"(detail::address_in_block(SharedPointer(to).address, rank)),
      "r"(detail::address_in_block(SharedPointer(barrier).address, rank)), "r"(value.words[0]),
      "r"(value.words[1]), "r"(value.words[2]), "r"(value.words[3])
      : "memory"));
}
#else
SACCADE_DEVICE int cluster_rank() {
  return static_cast<int>(emu::this_thread().block.rank);
}
SACCADE_DEVICE int cluster_size() {
  return static_cast<int>(emu::this_thread().block.cluster.shape.cluster);
}
SACCADE_DEVICE void arrive_cluster(SACCADE_ONLY_WHERE) {
  emu::this_thread().arrive_cluster(true, where);
}
SACCADE_DEVICE void arrive_cluster_relaxed(SACCADE_ONLY_WHERE) {
  emu::this_thread().arrive_cluster(false, where);
}
SACCADE_DEVICE void wait_cluster(SACCADE_ONLY_WHERE) {
  emu::this_thread().wait_cluster(where);
}
template <class T>
SACCADE_DEVICE T* in_block(T* pointer, int rank SACCADE_WHERE) {
  return emu::this_thread().peer_address(pointer, static_cast<std::uint32_t>(rank), where);
}
SACCADE_DEVICE void store_to_block(Bytes16* to, const Bytes16& value, Mbarrier* barrier,
                                   int rank SACCADE_WHERE) {
  emu::Thread& thread = emu::this_thread();
  const auto there = static_cast<std::uint32_t>(rank);
  thread.store_to_mbarrier(thread.peer_address(to, there, where), value.words,
                           thread.peer_address(barrier, there, where), where);
}
#endif

}  // namespace saccade::SACCADE_MACHINE::ptx
