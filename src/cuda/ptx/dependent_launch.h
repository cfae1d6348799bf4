// Kernels that start before the one before them in the stream has ended (Hopper; Grid::overlap asks for
// it).
#pragma once

#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE::ptx {

#ifdef __CUDACC__
/// Waits until the kernel before has ended and its memory is seen. Touch nothing it wrote before this.
SACCADE_DEVICE void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Lets the next kernel start once every block has said so or ended.
SACCADE_DEVICE void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#else
SACCADE_DEVICE void wait_for_previous_kernel() {}
SACCADE_DEVICE void let_next_kernel_start() {}
#endif

}  // namespace saccade::SACCADE_MACHINE::ptx
