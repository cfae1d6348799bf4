// Barriers in shared memory that count arrivals (Ampere and later) and bytes (Hopper).
//
// A phase is complete when its arrivals have come and the bytes it was told to expect have arrived; then the
// next begins. Phases have parity 0, 1, 0...: wait(barrier, p) returns when the phase of parity p is
// complete, so at once for parity 1 of a fresh barrier.
#pragma once

#include "cuda/ptx/machine.h"
#include "cuda/ptx/shared.h"
#ifdef __CUDACC__
#include <cuda/ptx>
#endif

namespace saccade::SACCADE_MACHINE::ptx {

/// 8 bytes of shared memory, touched by these functions alone.
using Mbarrier = std::uint64_t;

#ifdef __CUDACC__
/// Starts a barrier whose phases take `arrivals` arrivals. One thread does it; a barrier of the block comes
/// before the others use it, and before copies or other blocks do, fence_mbarrier_init().
SACCADE_DEVICE void init_mbarrier(Mbarrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedPointer(barrier).address), "r"(arrivals)
               : "memory");
}
/// Shows initialised barriers to the copy engine and to the other blocks of the cluster.
SACCADE_DEVICE void fence_mbarrier_init() {
  SACCADE_SINCE_SM90(cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster));
}
/// Ends a barrier: its bytes are ordinary memory again.
SACCADE_DEVICE void invalidate_mbarrier(Mbarrier* barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(SharedPointer(barrier).address) : "memory");
}
/// Arrives once; what this thread did before is seen by those who wait for the phase.
SACCADE_DEVICE void arrive_mbarrier(Mbarrier* barrier) {
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared::cta.b64 state, [%0];\n\t}" ::"r"(
                   SharedPointer(barrier).address)
               : "memory");
}
/// Arrives once at the barrier at the same offset in block `rank` of the cluster (this one's too).
SACCADE_DEVICE void arrive_remote_mbarrier(Mbarrier* barrier, int rank) {
  SACCADE_SINCE_SM90(
      asm volatile("{\n\t.reg .b32 remote;\n\tmapa.shared::cluster.u32 remote, %0, %1;\n\t"
                   "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n\t}" ::"r"(
                       SharedPointer(barrier).address),
                   "r"(rank)
                   : "memory"));
}
/// Announces `bytes` bytes of copies to the phase, then arrives once.
SACCADE_DEVICE void arrive_and_expect_bytes(Mbarrier* barrier, int bytes) {
  SACCADE_SINCE_SM90((void)cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta,
                                                                cuda::ptx::space_shared, barrier,
                                                                static_cast<std::uint32_t>(bytes)));
}
/// Announces `bytes` bytes of copies to the phase.
SACCADE_DEVICE void expect_bytes(Mbarrier* barrier, int bytes) {
  SACCADE_SINCE_SM90(asm volatile(
      "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(SharedPointer(barrier).address),
      "r"(bytes)
      : "memory"));
}
/// Whether the phase of this parity is complete. If so, what came before it is seen.
SACCADE_DEVICE bool test_mbarrier(Mbarrier* barrier, int parity) {
  return cuda::ptx::mbarrier_test_wait_parity(barrier, static_cast<std::uint32_t>(parity));
}
/// Waits until the phase of this parity is complete.
SACCADE_DEVICE void wait_mbarrier(Mbarrier* barrier, int parity) {
#if __CUDA_ARCH__ >= 900
  while (!cuda::ptx::mbarrier_try_wait_parity(barrier, static_cast<std::uint32_t>(parity))) {
  }
#else
  while (!test_mbarrier(barrier, parity)) {
  }
#endif
}
/// The same, and ordinary stores to this block's shared memory by other blocks that arrived are seen too.
SACCADE_DEVICE void wait_mbarrier_of_cluster(Mbarrier* barrier, int parity) {
#if __CUDA_ARCH__ >= 900
  while (!cuda::ptx::mbarrier_try_wait_parity(cuda::ptx::sem_acquire, cuda::ptx::scope_cluster, barrier,
                                              static_cast<std::uint32_t>(parity))) {
  }
#else
  __trap();
#endif
}
#else
namespace detail {
/// This thread, when the barrier is its block's own: most instructions reach no other.
inline emu::Thread& thread_at(const Mbarrier* barrier, const emu::Where& where) {
  emu::Thread& thread = emu::this_thread();
  thread.require(thread.owner(barrier) == &thread.block,
                 "uses another block's mbarrier as if it were its own", where);
  return thread;
}
}  // namespace detail
SACCADE_DEVICE void init_mbarrier(Mbarrier* barrier, int arrivals SACCADE_WHERE) {
  emu::this_thread().init_mbarrier(barrier, static_cast<std::uint32_t>(arrivals), where);
}
SACCADE_DEVICE void fence_mbarrier_init() {
  emu::this_thread().fence_mbarriers();
}
SACCADE_DEVICE void invalidate_mbarrier(Mbarrier* barrier SACCADE_WHERE) {
  detail::thread_at(barrier, where).invalidate_mbarrier(barrier, where);
}
SACCADE_DEVICE void arrive_mbarrier(Mbarrier* barrier SACCADE_WHERE) {
  detail::thread_at(barrier, where).arrive_mbarrier(barrier, 1, 0, where);
}
SACCADE_DEVICE void arrive_remote_mbarrier(Mbarrier* barrier, int rank SACCADE_WHERE) {
  emu::Thread& thread = emu::this_thread();
  thread.arrive_mbarrier(thread.peer_address(barrier, static_cast<std::uint32_t>(rank), where), 1, 0, where);
}
SACCADE_DEVICE void arrive_and_expect_bytes(Mbarrier* barrier, int bytes SACCADE_WHERE) {
  detail::thread_at(barrier, where).arrive_mbarrier(barrier, 1, bytes, where);
}
SACCADE_DEVICE void expect_bytes(Mbarrier* barrier, int bytes SACCADE_WHERE) {
  detail::thread_at(barrier, where).arrive_mbarrier(barrier, 0, bytes, where);
}
SACCADE_DEVICE bool test_mbarrier(Mbarrier* barrier, int parity SACCADE_WHERE) {
  emu::Thread& thread = detail::thread_at(barrier, where);
  thread.yield();  // who tests in a loop lets the others come
  return thread.test_mbarrier(barrier, static_cast<std::uint32_t>(parity), where);
}
SACCADE_DEVICE void wait_mbarrier(Mbarrier* barrier, int parity SACCADE_WHERE) {
  detail::thread_at(barrier, where).wait_mbarrier(barrier, static_cast<std::uint32_t>(parity), where);
}
SACCADE_DEVICE void wait_mbarrier_of_cluster(Mbarrier* barrier, int parity SACCADE_WHERE) {
  detail::thread_at(barrier, where).wait_mbarrier(barrier, static_cast<std::uint32_t>(parity), where);
}
#endif

}  // namespace saccade::SACCADE_MACHINE::ptx
