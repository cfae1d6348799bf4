// The two machines that kernels are compiled for: the GPU (by nvcc) and the emulator (by the host's
// compiler). Every function below src/cuda lives in the namespace of its machine, so that one program can
// hold both.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define SACCADE_MACHINE device
/// A function of device code.
#define SACCADE_DEVICE __device__ __forceinline__
/// A function of device code that the host (planner, tests) calls too.
#define SACCADE_BOTH __host__ __device__ __forceinline__
/// The head of a kernel: at most this many threads a block, at least this many blocks an SM.
#define SACCADE_KERNEL(threads, blocks) __global__ __launch_bounds__(threads, blocks) void
/// A kernel's argument, kept in constant memory.
#define SACCADE_ARGUMENT(...) const __grid_constant__ __VA_ARGS__
/// The place of the call, as a last argument; the emulator's messages and counters need it.
#define SACCADE_WHERE
#define SACCADE_ONLY_WHERE
/// What Hopper brought, and what only its own instruction set (sm_90a) has: a trap elsewhere, so that one
/// source compiles for all.
#if __CUDA_ARCH__ >= 900
#define SACCADE_SINCE_SM90(...) __VA_ARGS__
#else
#define SACCADE_SINCE_SM90(...) __trap()
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SACCADE_ONLY_SM90A(...) __VA_ARGS__
#else
#define SACCADE_ONLY_SM90A(...) __trap()
#endif
/// Tells the compiler what it could not know.
#ifdef __CUDA_ARCH__
#define SACCADE_ASSUME(condition) __builtin_assume(condition)
#else
#define SACCADE_ASSUME(condition) static_cast<void>(0)
#endif
#define SACCADE_UNROLL _Pragma("unroll")
#define SACCADE_UNROLL_BY_4 _Pragma("unroll 4")
#define SACCADE_NO_UNROLL _Pragma("unroll 1")
#else
#include "emu/thread.h"
#define SACCADE_MACHINE emulated
#define SACCADE_DEVICE inline
#define SACCADE_BOTH inline
#define SACCADE_KERNEL(threads, blocks) void
#define SACCADE_ARGUMENT(...) const __VA_ARGS__
#define SACCADE_WHERE , emu::Where where = emu::Where::current()
#define SACCADE_ONLY_WHERE emu::Where where = emu::Where::current()
#define SACCADE_ASSUME(condition) static_cast<void>(0)
#define SACCADE_UNROLL
#define SACCADE_UNROLL_BY_4
#define SACCADE_NO_UNROLL
#endif

namespace saccade::SACCADE_MACHINE::ptx {

inline constexpr int kWarpThreads = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffffU;

/// Three coordinates, as the grid has them.
struct Index3 {
  int x, y, z;
};

#ifdef __CUDACC__
/// This thread's number in its block. Blocks are one-dimensional.
SACCADE_DEVICE int thread_index() {
  const auto index = static_cast<int>(threadIdx.x);
  SACCADE_ASSUME(index >= 0 && index < 1024);
  return index;
}
SACCADE_DEVICE int block_threads() {
  return static_cast<int>(blockDim.x);
}
SACCADE_DEVICE Index3 block_index() {
  return {static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z)};
}
SACCADE_DEVICE Index3 grid_size() {
  return {static_cast<int>(gridDim.x), static_cast<int>(gridDim.y), static_cast<int>(gridDim.z)};
}
/// Whether this is compiled for Hopper or a later chip.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kHopper = false;
#else
inline constexpr bool kHopper = true;
#endif
/// The block's dynamic shared memory, aligned to 1024 bytes.
SACCADE_DEVICE std::byte* shared_memory() {
  extern __shared__ __align__(1024) std::byte saccade_shared[];
  return saccade_shared;
}
#else
inline constexpr bool kHopper = true;
SACCADE_DEVICE int thread_index() {
  return static_cast<int>(emu::this_thread().index);
}
SACCADE_DEVICE int block_threads() {
  return static_cast<int>(emu::this_thread().block.cluster.shape.block);
}
SACCADE_DEVICE Index3 block_index() {
  const emu::Dim3 at = emu::this_thread().block.index;
  return {static_cast<int>(at.x), static_cast<int>(at.y), static_cast<int>(at.z)};
}
SACCADE_DEVICE Index3 grid_size() {
  const emu::Dim3 size = emu::this_thread().block.cluster.shape.grid;
  return {static_cast<int>(size.x), static_cast<int>(size.y), static_cast<int>(size.z)};
}
SACCADE_DEVICE std::byte* shared_memory() {
  return emu::this_thread().block.shared.data();
}
#endif

SACCADE_DEVICE int lane_index() {
  return thread_index() % kWarpThreads;
}
SACCADE_DEVICE int warp_index() {
  return thread_index() / kWarpThreads;
}

}  // namespace saccade::SACCADE_MACHINE::ptx
