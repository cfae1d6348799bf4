// CUDA devices as the driver reports them; needs no toolkit, and no driver either.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace saccade::cli {

struct CudaDevice {
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  std::uint64_t memory_bytes = 0;
};

struct CudaDevices {
  std::vector<CudaDevice> devices;
  std::string why_none;  ///< a sentence when there is none
};

/// Asks libcuda.so.1, if it can be loaded.
[[nodiscard]] CudaDevices find_cuda_devices();

}  // namespace saccade::cli
