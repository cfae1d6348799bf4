// Where a tile's 16-byte chunks lie in shared memory, so that neither rows nor columns of them share banks.
#pragma once

#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE::tile {

/// A tile of 16-bit numbers, kColumns to a row, the chunks of each row exchanged by XOR with the row's
/// number. Eight rows at the same column (what ldmatrix reads) then lie in eight different bank groups, and
/// so do eight neighbours of one row (what a copy writes).
template <int kColumns>
struct SwizzledTile {
  static constexpr int kChunk = 8;  ///< numbers of 16 bytes
  static constexpr int kChunks = kColumns / kChunk;
  static_assert(kColumns % 64 == 0, "rows of whole 128-byte lines");

  /// Elements before the chunk that holds this column.
  static SACCADE_BOTH constexpr int offset(int row, int column) {
    return row * kColumns + ((column / kChunk) ^ (row % 8)) * kChunk;
  }
};

}  // namespace saccade::SACCADE_MACHINE::tile
