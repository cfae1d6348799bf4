// The CUDA driver, asked for at run time so that nothing links it: a launch or a tensor map takes less time
// than by the runtime, or exists nowhere else.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <string>

#include "cuda/launch/error.h"

namespace saccade::device {

/// The driver's function of this name as it was in CUDA `version` (11060 for 11.6); null: it has none.
template <class Function>
[[nodiscard]] Function driver_function(const char* name, unsigned version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
  (void)cudaGetLastError();
  return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Function>(found)
                                                                       : nullptr;
}

/// The two number errors alike.
[[nodiscard]] inline Status to_status(CUresult result, const char* what) {
  return to_status(static_cast<cudaError_t>(result), what);
}

/// This thread's context. A thread that the runtime has not met yet has none; it gets that of its device.
[[nodiscard]] inline Status current_context(CUcontext& context) {
  static const auto kGetCurrent = driver_function<PFN_cuCtxGetCurrent_v4000>("cuCtxGetCurrent", 4000);
  if (kGetCurrent == nullptr) return {Code::device_unavailable, "there is no CUDA driver"};
  const CUresult result = kGetCurrent(&context);
  if (result == CUDA_SUCCESS && context != nullptr) return {};
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaSetDevice(device);
  if (error != cudaSuccess) return to_status(error, "cudaSetDevice");
  return to_status(kGetCurrent(&context), "cuCtxGetCurrent");
}

}  // namespace saccade::device
