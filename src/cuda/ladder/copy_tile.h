// Rows of a tensor into a tile of shared memory, by all threads of a block, 16 bytes at a time.
#pragma once

#include "cuda/ptx/memory.h"

namespace saccade::SACCADE_MACHINE::ladder {

/// Copies rows [first, first + kRows) of a head, kDim numbers each, to `to` with kStride numbers between
/// rows; rows from `len` on become zeros.
template <int kRows, int kDim, int kStride, int kThreads>
SACCADE_DEVICE void copy_tile(F16* to, const F16* from, std::int64_t from_stride, int first, int len) {
  constexpr int kChunk = 8;  // numbers of 16 bytes
  constexpr int kChunks = kDim / kChunk;
  SACCADE_UNROLL
  for (int n = ptx::thread_index(); n < kRows * kChunks; n += kThreads) {
    const int row = n / kChunks;
    const int column = n % kChunks * kChunk;
    ptx::Bytes16 chunk{};
    if (first + row < len) {
      chunk = ptx::load_constant(
          reinterpret_cast<const ptx::Bytes16*>(from + (first + row) * from_stride + column));
    }
    ptx::store(reinterpret_cast<ptx::Bytes16*>(to + row * kStride + column), chunk);
  }
}

}  // namespace saccade::SACCADE_MACHINE::ladder
