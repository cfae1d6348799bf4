// A tensor in global memory as the bulk copy engine knows it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace saccade::emu {

/// The innermost dimension comes first.
struct TensorMap {
  std::byte* base = nullptr;
  std::uint32_t rank = 0;
  std::uint32_t element_bytes = 0;
  std::array<std::uint64_t, 5> sizes{};    ///< elements
  std::array<std::uint64_t, 5> strides{};  ///< bytes; strides[0] is element_bytes
  std::array<std::uint32_t, 5> box{};  ///< elements that one copy moves; lies without gaps in shared memory
  std::uint32_t swizzle = 0;           ///< 0, 32, 64 or 128: bytes of a row whose 16-byte chunks are permuted

  [[nodiscard]] std::size_t box_bytes() const {
    std::size_t bytes = element_bytes;
    for (std::uint32_t n = 0; n < rank; ++n) bytes *= box[n];
    return bytes;
  }
};

/// Where the swizzle moves the 16-byte chunk at this offset of shared memory: bits 4 to 6 are changed by bits
/// 7 to 9, as many of them as the mode has.
[[nodiscard]] constexpr std::size_t swizzled(std::size_t offset, std::uint32_t swizzle) {
  const std::size_t chunks = swizzle / 16;
  return chunks == 0 ? offset : offset ^ (offset >> 7 & (chunks - 1)) << 4;
}

}  // namespace saccade::emu
