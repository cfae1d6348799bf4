// Loads and stores. Kernels touch shared and global memory through these alone: on the GPU they are plain
// accesses, in the emulator each is checked for bounds, alignment, races and unwritten bytes.
#pragma once

#include "core/dtypes.h"
#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE::ptx {

/// 16 bytes that move as one.
struct alignas(16) Bytes16 {
  std::uint32_t words[4];
};
/// 8 bytes that move as one.
struct alignas(8) Bytes8 {
  std::uint32_t words[2];
};

#ifdef __CUDACC__
/// *from, wherever it lies.
template <class T>
SACCADE_DEVICE T load(const T* from) {
  return *from;
}
/// *to = value, wherever it lies.
template <class T>
SACCADE_DEVICE void store(T* to, T value) {
  if constexpr (sizeof(T) == 16) {  // said so: the compiler would take a struct apart
    *reinterpret_cast<uint4*>(to) = std::bit_cast<uint4>(value);
  } else if constexpr (sizeof(T) == 8) {
    *reinterpret_cast<uint2*>(to) = std::bit_cast<uint2>(value);
  } else {
    *to = value;
  }
}
/// A load of global memory that nobody writes while the kernel runs.
template <class T>
SACCADE_DEVICE T load_constant(const T* from) {
  if constexpr (sizeof(T) == 16) {
    const uint4 x = __ldg(reinterpret_cast<const uint4*>(from));
    return *reinterpret_cast<const T*>(&x);
  } else if constexpr (sizeof(T) == 8) {
    const uint2 x = __ldg(reinterpret_cast<const uint2*>(from));
    return *reinterpret_cast<const T*>(&x);
  } else if constexpr (sizeof(T) == 4) {
    const unsigned x = __ldg(reinterpret_cast<const unsigned*>(from));
    return *reinterpret_cast<const T*>(&x);
  } else if constexpr (sizeof(T) == 2) {
    const unsigned short x = __ldg(reinterpret_cast<const unsigned short*>(from));
    return *reinterpret_cast<const T*>(&x);
  } else {
    static_assert(sizeof(T) == 1);
    const unsigned char x = __ldg(reinterpret_cast<const unsigned char*>(from));
    return *reinterpret_cast<const T*>(&x);
  }
}
/// Adds to a counter in global memory, which may be one that nobody has written, and returns what it held.
/// Orders nothing.
SACCADE_DEVICE std::uint64_t atomic_add(std::uint64_t* to, std::uint64_t value) {
  using Word = unsigned long long;
  return atomicAdd(reinterpret_cast<Word*>(to), static_cast<Word>(value));
}
/// Replaces a number in global memory, which may be one that nobody has written, by `desired` if it is
/// `expected`; returns what it was. Orders nothing.
SACCADE_DEVICE std::uint64_t compare_and_swap(std::uint64_t* at, std::uint64_t expected,
                                              std::uint64_t desired) {
  using Word = unsigned long long;
  return atomicCAS(reinterpret_cast<Word*>(at), static_cast<Word>(expected), static_cast<Word>(desired));
}
/// What this thread wrote before is seen by every thread that sees what it writes after.
SACCADE_DEVICE void fence_device() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");  // __threadfence() is one that orders more, and slower
}
#else
template <class T>
SACCADE_DEVICE T load(const T* from SACCADE_WHERE) {
  return emu::this_thread().load(from, where);
}
template <class T>
SACCADE_DEVICE void store(T* to, T value SACCADE_WHERE) {
  emu::this_thread().store(to, value, where);
}
template <class T>
SACCADE_DEVICE T load_constant(const T* from SACCADE_WHERE) {
  emu::Thread& thread = emu::this_thread();
  thread.require(thread.owner(from) == nullptr, "takes shared memory for constant global memory", where);
  return thread.load(from, where);
}
SACCADE_DEVICE std::uint64_t atomic_add(std::uint64_t* to, std::uint64_t value SACCADE_WHERE) {
  emu::Thread& thread = emu::this_thread();
  thread.require(thread.owner(to) == nullptr, "atomic_add counts in global memory", where);
  thread.write(to, sizeof *to, where);
  return __atomic_fetch_add(to, value, __ATOMIC_SEQ_CST);
}
SACCADE_DEVICE std::uint64_t compare_and_swap(std::uint64_t* at, std::uint64_t expected,
                                              std::uint64_t desired SACCADE_WHERE) {
  emu::Thread& thread = emu::this_thread();
  thread.require(thread.owner(at) == nullptr, "compare_and_swap works in global memory", where);
  thread.write(at, sizeof *at, where);
  __atomic_compare_exchange_n(at, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;  // what was found, where it was another
}
SACCADE_DEVICE void fence_device() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
#endif

}  // namespace saccade::SACCADE_MACHINE::ptx
