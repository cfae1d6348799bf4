// Copies from global to shared memory that pass the registers by (Ampere and later).
#pragma once

#include "cuda/ptx/machine.h"
#include "cuda/ptx/mbarrier.h"
#include "cuda/ptx/shared.h"

namespace saccade::SACCADE_MACHINE::ptx {

#ifdef __CUDACC__
/// Starts a copy of 16 bytes, of which only the first `bytes` are read and the others become zeros. `from`
/// must be an aligned address even when nothing is read.
template <class T>
SACCADE_DEVICE void copy_async_16(SharedPointer<T> to, const void* from, int bytes = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to.address), "l"(from), "r"(bytes)
               : "memory");
}
/// Closes the group of copies that this thread has started since the last one.
SACCADE_DEVICE void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most kLeft of this thread's newest groups are unfinished. Others need a barrier besides.
template <int kLeft>
SACCADE_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}
/// Arrives once at the barrier when all copies that this thread has started are there; does not wait for
/// them. Who waits for the phase sees the copies, but not what else this thread did.
SACCADE_DEVICE void arrive_when_copied(Mbarrier* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(SharedPointer(barrier).address)
               : "memory");
}
#else
template <class T>
SACCADE_DEVICE void copy_async_16(SharedPointer<T> to, const void* from, int bytes = 16 SACCADE_WHERE) {
  emu::this_thread().copy_async(to.address, from, 16, static_cast<std::size_t>(bytes), where);
}
SACCADE_DEVICE void commit_copies() {
  emu::this_thread().commit_copies();
}
template <int kLeft>
SACCADE_DEVICE void wait_copies() {
  emu::this_thread().wait_copies(kLeft);
}
SACCADE_DEVICE void arrive_when_copied(Mbarrier* barrier SACCADE_WHERE) {
  detail::thread_at(barrier, where).arrive_when_copied(barrier, where);
}
#endif

}  // namespace saccade::SACCADE_MACHINE::ptx
