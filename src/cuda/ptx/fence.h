// Fences between ordinary accesses and the asynchronous proxy: bulk copies and wgmma (Hopper).
#pragma once

#include "cuda/ptx/machine.h"
#ifdef __CUDACC__
#include <cuda/ptx>
#endif

namespace saccade::SACCADE_MACHINE::ptx {

#ifdef __CUDACC__
/// What this thread wrote to shared memory before is seen by asynchronous reads that are ordered after.
SACCADE_DEVICE void fence_shared_to_async() {
  SACCADE_SINCE_SM90(cuda::ptx::fence_proxy_async(cuda::ptx::space_shared));
}
/// The same for all memory.
SACCADE_DEVICE void fence_to_async() {
  SACCADE_SINCE_SM90(cuda::ptx::fence_proxy_async());
}
#else
SACCADE_DEVICE void fence_shared_to_async() {
  emu::this_thread().fence_proxy();
}
SACCADE_DEVICE void fence_to_async() {
  emu::this_thread().fence_proxy();
}
#endif

}  // namespace saccade::SACCADE_MACHINE::ptx
