// CUDA errors as statuses.
#pragma once

#include <cuda_runtime_api.h>
#include <string>

#include <saccade/status.h>

namespace saccade::device {

/// `what` names the call that answered with `error`.
[[nodiscard]] inline Status to_status(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // else the next call reports it again
  const bool no_device =
      error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver || error == cudaErrorInvalidDevice;
  const Code code = error == cudaErrorMemoryAllocation ? Code::out_of_memory
                    : no_device                        ? Code::device_unavailable
                                                       : Code::internal;
  return {code, std::string(what) + " failed: " + cudaGetErrorString(error)};
}

}  // namespace saccade::device
