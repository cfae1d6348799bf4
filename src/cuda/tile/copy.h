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
  constexpr int kSteps = kRows / kRowsAtOnce;
  const int column = thread % Tile::kChunks * Tile::kChunk;  // the same in every step
  const int row = thread / Tile::kChunks;
  const T* source = from + (first + row) * stride + column;
  if (first + kRows <= len) {  // nearly always: nothing to ask row by row
    SACCADE_UNROLL
    for (int n = 0; n < kSteps; ++n, source += kRowsAtOnce * stride) {
      ptx::copy_async_16(to + Tile::offset(row + n * kRowsAtOnce, column), source);
    }
    return;
  }
  SACCADE_NO_UNROLL
  for (int n = 0; n < kSteps; ++n, source += kRowsAtOnce * stride) {
    const bool inside = first + row + n * kRowsAtOnce < len;
    // An address that is not read must still be one: the first row's.
    ptx::copy_async_16(to + Tile::offset(row + n * kRowsAtOnce, column), inside ? source : from,
                       inside ? 16 : 0);
  }
}

}  // namespace saccade::SACCADE_MACHINE::tile
