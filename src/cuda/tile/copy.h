// Rows of global memory into a swizzled tile, asynchronously.
#pragma once

#include "cuda/ptx/cp_async.h"
#include "cuda/tile/swizzle.h"

namespace saccade::SACCADE_MACHINE::tile {

/// Starts the copies of rows [first, first + kRows), kDim numbers each; rows from `len` on become zeros.
/// kThreads threads share the work, `thread` being this one's number among them.
template <class T, int kRows, int kDim, int kThreads>
SACCADE_DEVICE void copy_rows(ptx::SharedPointer<T> to, const T* from, std::int64_t stride, int first,
                              int len, int thread) {
  using Tile = SwizzledTile<kDim>;
  static_assert(kThreads % Tile::kChunks == 0 && kRows * Tile::kChunks % kThreads == 0);
  constexpr int kRowsAtOnce = kThreads / Tile::kChunks;
  const int column = thread % Tile::kChunks * Tile::kChunk;  // the same in every step
  int row = thread / Tile::kChunks;
  const T* source = from + (first + row) * stride + column;
  SACCADE_UNROLL_BY_4
  for (int n = 0; n < kRows / kRowsAtOnce; ++n) {
    const bool inside = first + row < len;
    // An address that is not read must still be one: the first row's.
    ptx::copy_async_16(to + Tile::offset(row, column), inside ? source : from, inside ? 16 : 0);
    row += kRowsAtOnce;
    source += kRowsAtOnce * stride;
  }
}

}  // namespace saccade::SACCADE_MACHINE::tile
