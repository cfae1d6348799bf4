// Launching a kernel on either machine.
#pragma once

#include <string>

#include <saccade/run.h>
#include <saccade/status.h>

#include "cuda/launch/overlap.h"
#include "cuda/ptx/machine.h"
#ifdef __CUDACC__
#include "cuda/launch/driver.h"
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
  int registers = 0;  ///< of a thread at the start, for the emulator's setmaxnreg; 0: not known
  Overlap overlap = Overlap::never;
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
namespace detail {

/// A kernel of a context, which may have all the dynamic shared memory that the device can give a block.
struct Loaded {
  const void* kernel = nullptr;
  CUcontext context = nullptr;
  CUfunction function = nullptr;
};

inline Status load(const char* name, const void* kernel, CUcontext context, Loaded& loaded) {
  int device = 0;
  int most = 0;
  cudaFuncAttributes attributes{};
  cudaFunction_t function = nullptr;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, kernel);
  if (error == cudaSuccess) {
    most -= static_cast<int>(attributes.sharedSizeBytes);
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  }
  if (error == cudaSuccess) error = cudaGetFuncBySymbol(&function, kernel);
  if (error != cudaSuccess) return device::to_status(error, name);
  loaded = {kernel, context, function};
  return {};
}

/// Where the driver does not say, launches are plain; if something is wrong with the stream, they tell.
inline bool is_captured(CUstream stream) {
  static const auto kAsk =
      device::driver_function<PFN_cuStreamIsCapturing_v10000>("cuStreamIsCapturing", 10000);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return kAsk == nullptr || kAsk(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

inline bool overlaps(const Grid& grid, CUstream stream) {
  return grid.overlap == Overlap::in_graphs_too ||
         (grid.overlap == Overlap::outside_graphs && !is_captured(stream));
}

}  // namespace detail

/// Enqueues kernel(argument), by the driver: the runtime would look the kernel up every time. Each thread
/// remembers the last kernel that it launched with this type of argument, of a context that nobody may reset.
template <class Argument>
[[nodiscard]] Status launch(const char* name, void (*kernel)(Argument), const Grid& grid,
                            const Target& target, const Argument& argument) {
  static const auto kLaunch = device::driver_function<PFN_cuLaunchKernelEx_v11060>("cuLaunchKernelEx", 11060);
  if (kLaunch == nullptr)
    return {Code::device_unavailable, "the driver knows no cuLaunchKernelEx (CUDA 11.6)"};
  thread_local detail::Loaded loaded;
  CUcontext context = nullptr;
  if (Status status = device::current_context(context); !status.ok()) return status;
  const auto* const symbol = reinterpret_cast<const void*>(kernel);
  if (loaded.kernel != symbol || loaded.context != context) {
    if (Status status = detail::load(name, symbol, context, loaded); !status.ok()) return status;
  }
  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(grid.blocks.x);
  config.gridDimY = static_cast<unsigned>(grid.blocks.y);
  config.gridDimZ = static_cast<unsigned>(grid.blocks.z);
  config.blockDimX = static_cast<unsigned>(grid.threads);
  config.blockDimY = 1;
  config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(grid.shared_bytes);
  config.hStream = static_cast<CUstream>(target.stream);
  CUlaunchAttribute attributes[2];
  config.attrs = attributes;
  if (grid.cluster > 1) {
    CUlaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim = {static_cast<unsigned>(grid.cluster), 1, 1};
  }
  if (detail::overlaps(grid, config.hStream)) {
    CUlaunchAttribute& dependent = attributes[config.numAttrs++];
    dependent.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    dependent.value.programmaticStreamSerializationAllowed = 1;
  }
  void* arguments[] = {const_cast<Argument*>(&argument)};
  return device::to_status(kLaunch(&config, loaded.function, arguments, nullptr), name);
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
