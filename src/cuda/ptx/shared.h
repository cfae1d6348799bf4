// Pointers into shared memory as instructions want them: 32 bits on the GPU. A generic pointer would have to
// be converted at every use, in 64-bit arithmetic, and cost a kernel dozens of registers.
#pragma once

#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE::ptx {

/// Points at a T in the block's shared memory.
template <class T>
struct SharedPointer {
#ifdef __CUDACC__
  std::uint32_t address;
  SharedPointer() = default;
  SACCADE_DEVICE explicit SharedPointer(const T* pointer)
      : address(static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer))) {}
  SACCADE_DEVICE SharedPointer operator+(int count) const {
    SharedPointer moved = *this;
    moved.address += static_cast<std::uint32_t>(count) * static_cast<std::uint32_t>(sizeof(T));
    return moved;
  }
  /// Where it points when these bits of the address are turned over, as a swizzle does. What the distance is
  /// counted from must be aligned beyond them.
  SACCADE_DEVICE SharedPointer operator^(int count) const {
    SharedPointer moved = *this;
    moved.address ^= static_cast<std::uint32_t>(count) * static_cast<std::uint32_t>(sizeof(T));
    return moved;
  }
  /// The same place for loads and stores.
  [[nodiscard]] SACCADE_DEVICE T* generic() const {
    return static_cast<T*>(__cvta_shared_to_generic(address));
  }
#else
  std::byte* address;
  SharedPointer() = default;
  explicit SharedPointer(const T* pointer)
      : address(reinterpret_cast<std::byte*>(const_cast<std::remove_const_t<T>*>(pointer))) {}
  SharedPointer operator+(int count) const {
    SharedPointer moved = *this;
    moved.address += count * static_cast<std::ptrdiff_t>(sizeof(T));
    return moved;
  }
  SharedPointer operator^(int count) const {
    SharedPointer moved = *this;
    moved.address = reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(address) ^
                                                 static_cast<std::uintptr_t>(count) * sizeof(T));
    return moved;
  }
  [[nodiscard]] T* generic() const {
    return reinterpret_cast<T*>(address);
  }
#endif
};

}  // namespace saccade::SACCADE_MACHINE::ptx
