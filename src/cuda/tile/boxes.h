// Matrices in shared memory as the copy engine leaves boxes of 64 columns with a swizzle of 128 bytes, one
// box after the other: where wgmma and ldmatrix find what is in them.
#pragma once

#include "cuda/ptx/wgmma.h"

namespace saccade::SACCADE_MACHINE::tile {

/// A matrix of kRows rows in shared memory, in boxes of 64 columns.
template <int kRows>
struct Boxes {
  static constexpr int kColumns = 64;
  static constexpr int kRowBytes = 128;
  static constexpr int kBytes = kRows * kRowBytes;  ///< of one box
  static constexpr int kEight = 8 * kRowBytes;

  /// As a matrix whose rows are multiplied with rows.
  static SACCADE_DEVICE std::uint64_t by_rows(const void* start) {
    return ptx::matrix_descriptor(start, 16, kEight, kRowBytes);
  }
  /// The same, but that eight rows come every four rows: the second half of sixteen are rows that come again.
  static SACCADE_DEVICE std::uint64_t by_half_rows(const void* start) {
    return ptx::matrix_descriptor(start, 16, kEight / 2, kRowBytes);
  }
  /// As one whose columns are.
  static SACCADE_DEVICE std::uint64_t by_columns(const void* start) {
    return ptx::matrix_descriptor(start, kBytes, kEight, kRowBytes);
  }
  /// 16 columns, after c times 16.
  static SACCADE_DEVICE std::uint64_t columns(std::uint64_t matrix, int c) {
    return ptx::advance_descriptor(matrix, c / 4 * kBytes + c % 4 * 32);
  }
  /// Numbers before the chunk of eight that holds a column of a row.
  static SACCADE_DEVICE int place(int row, int column) {
    return (column / kColumns * kRows + row) * kColumns + ((column % kColumns / 8) ^ (row % 8)) * 8;
  }
  /// 16 rows, after j times 16.
  static SACCADE_DEVICE std::uint64_t rows(std::uint64_t matrix, int j) {
    return ptx::advance_descriptor(matrix, j * 2 * kEight);
  }
};

/// The queries of a warpgroup: those of its rows and, where each warp has eight, as many more as its products
/// read for nothing.
template <int kWarpRows>
using QueryBoxes = Boxes<kWarpRows == 16 ? 64 : 40>;

}  // namespace saccade::SACCADE_MACHINE::tile
