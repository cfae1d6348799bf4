// Blocks of one cluster: their ranks, their barrier, and each other's shared memory (Hopper).
#pragma once

#include "cuda/ptx/machine.h"
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
SACCADE_DEVICE void arrive_cluster() {
  SACCADE_SINCE_SM90(cuda::ptx::barrier_cluster_arrive(cuda::ptx::sem_release));
}
/// Arrives without ordering memory.
SACCADE_DEVICE void arrive_cluster_relaxed() {
  SACCADE_SINCE_SM90(cuda::ptx::barrier_cluster_arrive(cuda::ptx::sem_relaxed));
}
/// Waits for all threads of the cluster to arrive.
SACCADE_DEVICE void wait_cluster() {
  SACCADE_SINCE_SM90(cuda::ptx::barrier_cluster_wait(cuda::ptx::sem_acquire));
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
#endif

}  // namespace saccade::SACCADE_MACHINE::ptx
