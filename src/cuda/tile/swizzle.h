// Where a tile's 16-byte chunks lie in shared memory, so that neither rows nor columns of them share banks.
#pragma once

#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE::tile {

/// A tile of 16-bit numbers, kColumns to a row, the chunks of each row exchanged by XOR. Eight rows at the
/// same column (what ldmatrix reads) then lie in eight different bank groups, and so do eight neighbours
/// (what a copy writes).
template <int kColumns>
struct SwizzledTile {
  static constexpr int kChunk = 8;  ///< numbers of 16 bytes
  static constexpr int kChunks = kColumns / kChunk;
  static_assert(kColumns % 32 == 0, "rows of whole or half 128-byte lines");

  /// What the numbers of a row's chunks are exchanged with. Rows of whole lines all begin in the same bank
  /// group; with half a line more they begin in two by turns, and each pair of rows shares a number.
  static SACCADE_BOTH constexpr int exchange(int row) { return kChunks % 8 == 0 ? row % 8 : row / 2 % 4; }
  /// Elements before the chunk that holds this column.
  static SACCADE_BOTH constexpr int offset(int row, int column) {
    return row * kColumns + ((column / kChunk) ^ exchange(row)) * kChunk;
  }
};

}  // namespace saccade::SACCADE_MACHINE::tile
