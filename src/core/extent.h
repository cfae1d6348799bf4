// The memory a strided tensor touches: its bounds, and exact overlap tests.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace saccade {

/// A strided set of byte runs: base + sum(index[a] * axes[a].stride), each `run` bytes long.
struct Extent {
  struct Axis {
    std::int64_t size = 1;
    std::int64_t stride = 0;  ///< bytes
  };
  std::array<Axis, 4> axes;
  std::int64_t run = 0;  ///< bytes; 0 when the tensor is empty

  [[nodiscard]] bool empty() const;
};

/// First and one-past-last byte relative to the base.
struct Bounds {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The bounds, or nothing when they do not fit in 64 bits.
[[nodiscard]] std::optional<Bounds> bounds(const Extent& extent);

/// Whether two different indices reach the same byte. Exact for layouts whose axes nest (each stride steps
/// over the whole of the smaller ones); anything else counts as overlapping, as in the array libraries.
[[nodiscard]] bool overlaps_itself(const Extent& extent);

/// Whether a at address `a_base` and b at `b_base` share a byte. Exact: interleaved slices of one buffer do
/// not.
[[nodiscard]] bool overlap(const Extent& a, std::uintptr_t a_base, const Extent& b, std::uintptr_t b_base);

}  // namespace saccade
