// Barriers of a block.
#pragma once

#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE::ptx {

#ifdef __CUDACC__
/// Waits for all threads of the block; what they wrote before is seen by all after.
SACCADE_DEVICE void sync_block() {
  __syncthreads();
}
/// The same for the `threads` threads (a multiple of 32) that use barrier `number` (1 to 15).
SACCADE_DEVICE void sync_some(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
/// Counts as arrived at barrier `number` without waiting for the others.
SACCADE_DEVICE void arrive_some(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
#else
SACCADE_DEVICE void sync_block(SACCADE_ONLY_WHERE) {
  emu::Thread& thread = emu::this_thread();
  thread.sync_block(0, thread.block.cluster.shape.block, true, where);
}
SACCADE_DEVICE void sync_some(int number, int threads SACCADE_WHERE) {
  emu::this_thread().sync_block(static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(threads), true,
                                where);
}
SACCADE_DEVICE void arrive_some(int number, int threads SACCADE_WHERE) {
  emu::this_thread().sync_block(static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(threads),
                                false, where);
}
#endif

}  // namespace saccade::SACCADE_MACHINE::ptx
