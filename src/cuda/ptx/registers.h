// Registers that warpgroups hand to each other (sm_90a).
#pragma once

#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE::ptx {

#ifdef __CUDACC__
/// Each thread of this warpgroup may use kCount registers from now on: waits until other warpgroups of the
/// block have given enough back.
template <int kCount>
SACCADE_DEVICE void take_registers() {
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0);
  SACCADE_ONLY_SM90A(asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount)));
}
/// Keeps kCount registers a thread and gives the rest back.
template <int kCount>
SACCADE_DEVICE void give_registers() {
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0);
  SACCADE_ONLY_SM90A(asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount)));
}
#else
template <int kCount>
SACCADE_DEVICE void take_registers(SACCADE_ONLY_WHERE) {
  emu::this_thread().set_registers(kCount, true, where);
}
template <int kCount>
SACCADE_DEVICE void give_registers(SACCADE_ONLY_WHERE) {
  emu::this_thread().set_registers(kCount, false, where);
}
#endif

}  // namespace saccade::SACCADE_MACHINE::ptx
