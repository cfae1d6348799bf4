// The two batched matrix products of the unfused rung: cuBLAS on the GPU, a plain kernel in the emulator.
#pragma once

#include <memory>

#include "core/dtypes.h"
#include "cuda/launch/launch.h"

namespace saccade::SACCADE_MACHINE::ladder {

/// C[n] = A[n] * B[n], or A[n] * B[n]^T, for n in [0, count): matrices row by row, f16 inputs, f32 sums.
struct Product {
  const F16 *a, *b;
  void* c;
  int rows, columns, depth;
  std::int64_t a_row, b_row, c_row;     ///< elements between rows
  std::int64_t a_next, b_next, c_next;  ///< elements between matrices
  int count;
  bool b_transposed;  ///< the rows of b in memory are the columns of B
  bool f32_result;    ///< c holds f32; else f16
};

/// What multiplies; made when a plan is, because cuBLAS allocates then.
class Products {
 public:
  Products();
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
  Products(Products&&) = delete;
  Products& operator=(Products&&) = delete;

  /// Why it cannot be used; ok when it can.
  [[nodiscard]] Status status() const;
  /// `scratch` has kScratchBytes bytes: what cuBLAS would otherwise allocate, which a graph must not see.
  [[nodiscard]] Status multiply(const Product& product, std::byte* scratch, const Target& target) const;
  static constexpr std::size_t kScratchBytes = std::size_t{32} << 20;  // what it asks for on Hopper

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace saccade::SACCADE_MACHINE::ladder
