// What registers hold, and how many there are: warpgroups hand them to each other (sm_90a).
#pragma once

#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE::ptx {

#ifdef __CUDACC__
/// A pointer or a number, worked out here: the compiler cannot put it off until it is used.
template <class T>
SACCADE_DEVICE T worked_out(T x) {
  if constexpr (sizeof(T) == 8) {
    asm volatile("" : "+l"(x));
  } else {
    static_assert(sizeof(T) == 4);
    asm volatile("" : "+r"(x));
  }
  return x;
}
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
template <class T>
SACCADE_DEVICE T worked_out(T x) {
  static_assert(sizeof(T) == 8 || sizeof(T) == 4);
  return x;
}
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
