// Launching a kernel on either machine.
#pragma once

#include <string>

#include <saccade/run.h>
#include <saccade/status.h>

#include "cuda/ptx/machine.h"
#ifdef __CUDACC__
#include <cuda_runtime.h>

#include "cuda/launch/error.h"
#else
#include "emu/session.h"
#endif

namespace saccade::SACCADE_MACHINE {

/// How many threads a launch has, and what they share.
struct Grid {
  ptx::Index3 blocks{1, 1, 1};
  int threads = 32;
  int cluster = 1;  ///< blocks along x that form a cluster
  std::size_t shared_bytes = 0;
  int registers = 0;       ///< of a thread at the start, for the emulator's setmaxnreg; 0: not known
  bool dependent = false;  ///< may start before the kernel before it has ended (see ptx/dependent_launch.h)
};

/// Where a launch goes: a stream on the GPU; in the emulator, the memory it may touch.
struct Target {
#ifdef __CUDACC__
  Stream stream = nullptr;
#else
  const emu::GlobalMemory* memory = nullptr;
#endif
};

#ifdef __CUDACC__
/// Lets the kernel have all the dynamic shared memory that the current device can give a block. The driver
/// takes microseconds to answer, so each thread remembers the kernels (and devices) it has asked for; and
/// always asks for all, so that it does not matter who asks last.
inline cudaError_t allow_shared_memory(const void* kernel) {
  struct Asked {
    const void* kernel = nullptr;
    int device = -1;
  };
  thread_local Asked asked[64];
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  Asked& slot = asked[reinterpret_cast<std::uintptr_t>(kernel) / 16 % 64];
  if (slot.kernel == kernel && slot.device == device) return cudaSuccess;
  int most = 0;
  cudaError_t error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error == cudaSuccess)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  if (error == cudaSuccess) slot = {kernel, device};
  return error;
}

/// Enqueues kernel(argument). Shared memory beyond 48 KB is asked for on the way.
template <class Argument>
[[nodiscard]] Status launch(const char* name, void (*kernel)(Argument), const Grid& grid,
                            const Target& target, const Argument& argument) {
  constexpr std::size_t kWithoutAsking = 48 << 10;
  if (grid.shared_bytes > kWithoutAsking) {
    const cudaError_t error = allow_shared_memory(reinterpret_cast<const void*>(kernel));
    if (error != cudaSuccess) return to_status(error, name);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks.x), static_cast<unsigned>(grid.blocks.y),
                        static_cast<unsigned>(grid.blocks.z));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = static_cast<cudaStream_t>(target.stream);
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (grid.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(grid.cluster), 1, 1};
  }
  if (grid.dependent) {
    cudaLaunchAttribute& dependent = attributes[config.numAttrs++];
    dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    dependent.val.programmaticStreamSerializationAllowed = 1;
  }
  return to_status(cudaLaunchKernelEx(&config, kernel, argument), name);
}
#else
template <class Argument>
[[nodiscard]] Status launch(const char* name, void (*kernel)(Argument), const Grid& grid,
                            const Target& target, const Argument& argument) {
  const emu::Shape shape{
      name,
      {static_cast<std::uint32_t>(grid.blocks.x), static_cast<std::uint32_t>(grid.blocks.y),
       static_cast<std::uint32_t>(grid.blocks.z)},
      static_cast<std::uint32_t>(grid.threads),
      static_cast<std::uint32_t>(grid.cluster),
      grid.shared_bytes,
      static_cast<std::uint32_t>(grid.registers)};
  try {
    emu::launch_in_session(shape, *target.memory, [&] { kernel(argument); });
  } catch (const emu::Error& error) {
    return {Code::internal, error.what()};
  }
  return {};
}
#endif

}  // namespace saccade::SACCADE_MACHINE
