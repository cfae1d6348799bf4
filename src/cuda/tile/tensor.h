// Tensors in global memory as kernels see them.
#pragma once

#include <cmath>

#include <saccade/problem.h>

#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE::tile {

/// A tensor [batch, heads, length, dim] by strides.
template <class T>
struct Tensor4 {
  T* data;
  std::int64_t batch, head, row;

  [[nodiscard]] SACCADE_BOTH T* rows(std::int64_t b, std::int64_t h) const {
    return data + b * batch + h * head;
  }
};

/// A distance in chunks of 16 bytes, eight numbers of 16 bits: half the room among a kernel's arguments, and
/// one instruction to multiply where 64 bits take three.
struct Chunks {
  int count;

  static constexpr int kNumbers = 8;
  friend SACCADE_BOTH constexpr std::int64_t operator*(int n, Chunks distance) {  // in numbers
    return std::int64_t{n} * distance.count * kNumbers;
  }
};

/// The same with its length, counted in chunks.
template <class T>
struct NearTensor4 {
  T* data;
  Chunks batch, head, row;
  int length;

  /// Of so many batches, heads and rows, by strides for which fits() holds.
  static NearTensor4 of(T* data, const Strides& s, std::int64_t batches, std::int64_t heads,
                        std::int64_t rows) {
    const auto chunks = [](std::int64_t steps,
                           std::int64_t stride) {  // a stride without a step may be any number
      return Chunks{steps > 1 ? static_cast<int>(stride / Chunks::kNumbers) : 0};
    };
    return {data, chunks(batches, s.batch), chunks(heads, s.head), chunks(rows, s.row),
            static_cast<int>(rows)};
  }
  /// Whether 31 bits count the chunks to every row, and to some behind the last one, whose places kernels
  /// work out. Strides are multiples of a chunk.
  static bool fits(const Strides& s, std::int64_t batches, std::int64_t heads, std::int64_t rows) {
    constexpr std::int64_t kBehind = 1024;
    constexpr double kMost = 2147483647.0 * Chunks::kNumbers;
    const auto reach = [](std::int64_t steps, std::int64_t stride, std::int64_t more) {
      return steps > 1 ? static_cast<double>(steps + more) * std::abs(static_cast<double>(stride)) : 0.0;
    };
    return reach(batches, s.batch, 0) + reach(heads, s.head, 0) + reach(rows, s.row, kBehind) <= kMost;
  }
  /// How far a row is from the first.
  [[nodiscard]] SACCADE_BOTH int chunks_to(int b, int h, int i) const {
    return b * batch.count + h * head.count + i * row.count;
  }
  /// What is so far from the first row's beginning.
  [[nodiscard]] SACCADE_BOTH T* at(int chunks) const {
    return data + std::int64_t{chunks} * Chunks::kNumbers;
  }
};

}  // namespace saccade::SACCADE_MACHINE::tile
