// What an instance of the family is made for: the kernel's template argument, the planner's table and the
// text of --config are this one struct.
#pragma once

#include <cstddef>

namespace saccade::sm80 {

/// A block has row_warps x key_groups warps. Each warp has row_tiles x 16 query rows; the groups share out
/// the tiles of keys, each through a ring of its own, and add up their results in the end.
struct Config {
  int dim = 64;
  int row_warps = 4;
  int row_tiles = 1;
  int key_groups = 1;
  int tile_keys = 64;
  int score_keys = 32;  ///< whose scores are in registers at once
  int stages = 2;
  int blocks = 1;   ///< on a multiprocessor, for the compiler's choice of registers
  int general = 0;  ///< 1: takes every kind of problem with head dims up to `dim`, 0: plain ones of that dim

  /// Whether queries stay in registers, where they take dim / 4 for 16 rows.
  [[nodiscard]] constexpr bool keeps_queries() const { return row_tiles * dim <= 128; }
  /// Whether weights are computed before it is known that none is too large (tile/warp_rows.h): pays where
  /// warps have many tiles and 32 rows to share each with.
  [[nodiscard]] constexpr bool bold() const { return row_tiles == 2 && key_groups == 1; }
  /// Whether a warp reads what its next products begin with before it starts copies, not after.
  [[nodiscard]] constexpr bool early() const { return general == 0 && !holds_all(); }
  /// Whether warps tell each other that they have read a tile before its last products, by an mbarrier, so
  /// that few have to wait for one that is behind. Bold ones are faster without.
  [[nodiscard]] constexpr bool tells_early() const { return early() && key_groups == 1 && !bold(); }
  /// Whether every group has one tile and no more.
  [[nodiscard]] constexpr bool holds_all() const { return stages == 1; }
  [[nodiscard]] constexpr int rows() const { return 16 * row_tiles * row_warps; }
  [[nodiscard]] constexpr int group_threads() const { return 32 * row_warps; }
  [[nodiscard]] constexpr int threads() const { return group_threads() * key_groups; }
  /// Numbers of 16 bits in the rings of all groups.
  [[nodiscard]] constexpr int ring() const { return key_groups * stages * 2 * tile_keys * dim; }
  /// Floats between two rows of a partial result: eight more than the row has, so that rows lie in other
  /// banks.
  [[nodiscard]] constexpr int partial_stride() const { return dim + 8; }
  /// Where the states of rows begin in shared memory, behind tiles and, later, partial results.
  [[nodiscard]] constexpr std::size_t tile_bytes() const {
    const auto tiles = static_cast<std::size_t>(rows() * dim + ring()) * 2;
    const auto partial = static_cast<std::size_t>(key_groups * rows() * partial_stride()) * sizeof(float);
    return tiles > partial ? tiles : partial;
  }
  [[nodiscard]] constexpr std::size_t state_bytes() const {
    return static_cast<std::size_t>(key_groups * rows()) * 2 * sizeof(float);
  }
  [[nodiscard]] constexpr std::size_t shared_bytes() const {
    constexpr std::size_t kBarrier = 16;
    return tile_bytes() + state_bytes() + (tells_early() ? kBarrier : 0);
  }
  friend constexpr bool operator==(const Config&, const Config&) = default;
};

/// A configuration as a type: nvcc cannot name kernels that have a struct for a template argument.
template <int... kNumbers>
struct Instance {
  static constexpr Config kConfig{kNumbers...};
};

}  // namespace saccade::sm80
