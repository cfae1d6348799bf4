// Rows of global memory into a swizzled tile, asynchronously.
#pragma once

#include "cuda/ptx/cp_async.h"
#include "cuda/ptx/warp.h"
#include "cuda/tile/swizzle.h"
#include "cuda/tile/tensor.h"

namespace saccade::SACCADE_MACHINE::tile {

/// How kThreads threads share the copies of a tile of kRows rows of kDim numbers. What tiles have in common
/// is worked out once.
template <class T, int kRows, int kDim, int kThreads>
class RowCopies {
  using Tile = SwizzledTile<kDim>;
  static_assert(kThreads % Tile::kChunks == 0 && kRows * Tile::kChunks % kThreads == 0);
  static constexpr int kRowsAtOnce = kThreads / Tile::kChunks;
  static constexpr int kSteps = kRows / kRowsAtOnce;

 public:
  /// `thread` is this one's number among those that share the work.
  SACCADE_DEVICE explicit RowCopies(int thread)
      : to_(ptx::pinned(Tile::offset(row_of(thread), column_of(thread)))) {}

  /// What this thread copies first of a tile that begins at `tile` and whose rows are `stride` numbers apart.
  static SACCADE_DEVICE const T* source(const T* tile, std::int64_t stride, int thread) {
    return tile + row_of(thread) * stride + column_of(thread);
  }
  /// The same of a tile whose first row is `row`, as chunks from the tensor's beginning.
  static SACCADE_DEVICE int source(const NearTensor4<const T>& tensor, int batch, int head, int row,
                                   int thread) {
    return tensor.chunks_to(batch, head, row + row_of(thread)) + thread % Tile::kChunks;
  }
  /// Starts the copies of a tile, from source() on. Stride: std::int64_t or Chunks.
  template <class Stride>
  SACCADE_DEVICE void start(ptx::SharedPointer<T> to, const T* from, Stride stride) const {
    SACCADE_UNROLL
    for (int n = 0; n < kSteps; ++n, from += kRowsAtOnce * stride) ptx::copy_async_16(to + place(n), from);
  }
  /// Starts the copies of its first `rows` rows; the others become zeros, and would be read at `nowhere`:
  /// addresses must be valid even where nothing is read.
  template <class Stride>
  SACCADE_DEVICE void start(ptx::SharedPointer<T> to, const T* from, Stride stride, int rows,
                            const T* nowhere) const {
    SACCADE_NO_UNROLL
    for (int n = 0; n < kSteps; ++n, from += kRowsAtOnce * stride) {
      const bool inside = to_ / kDim + n * kRowsAtOnce < rows;
      ptx::copy_async_16(to + place(n), inside ? from : nowhere, inside ? 16 : 0);
    }
  }

 private:
  static SACCADE_DEVICE int row_of(int thread) { return thread / Tile::kChunks; }
  static SACCADE_DEVICE int column_of(int thread) { return thread % Tile::kChunks * Tile::kChunk; }
  /// Where the n-th copy goes. The exchange of columns repeats every eight rows.
  [[nodiscard]] SACCADE_DEVICE int place(int n) const {
    if constexpr (kRowsAtOnce % 8 == 0) return to_ + n * kRowsAtOnce * kDim;
    const int row = to_ / kDim;
    const int column = ((to_ % kDim / Tile::kChunk) ^ Tile::exchange(row)) * Tile::kChunk;
    return Tile::offset(row + n * kRowsAtOnce, column);
  }

  int to_;  ///< where this thread's first copy goes in a tile
};

/// Starts the copies of rows [first, first + kRows) of those from `from` on; rows from `len` on become zeros.
template <class T, int kRows, int kDim, int kThreads>
SACCADE_DEVICE void copy_rows(ptx::SharedPointer<T> to, const T* from, std::int64_t row, int first, int len,
                              int thread) {
  using Copies = RowCopies<T, kRows, kDim, kThreads>;
  const Copies copies(thread);
  const T* source = Copies::source(from + first * row, row, thread);
  if (first + kRows <= len) {  // nearly always: nothing to ask row by row
    copies.start(to, source, row);
  } else {
    copies.start(to, source, row, len - first, from);
  }
}
/// The same of a head's rows.
template <class T, int kRows, int kDim, int kThreads>
SACCADE_DEVICE void copy_rows(ptx::SharedPointer<T> to, const NearTensor4<const T>& tensor, int batch,
                              int head, int first, int thread) {
  using Copies = RowCopies<T, kRows, kDim, kThreads>;
  const Copies copies(thread);
  const T* source = tensor.at(Copies::source(tensor, batch, head, first, thread));
  if (first + kRows <= tensor.length) {
    copies.start(to, source, tensor.row);
  } else {
    copies.start(to, source, tensor.row, tensor.length - first, tensor.data);
  }
}

}  // namespace saccade::SACCADE_MACHINE::tile
