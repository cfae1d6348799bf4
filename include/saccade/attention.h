// Attention in one call on tensors that describe themselves.
#pragma once

#include <array>
#include <cstdint>

#include <saccade/export.h>
#include <saccade/problem.h>
#include <saccade/run.h>

namespace saccade {

/// A tensor with its shape: [batch, heads, length, dim], strides in elements, any order in memory.
struct View {
  void* data = nullptr;
  DType dtype = DType::f16;
  std::array<std::int64_t, 4> sizes{};
  std::array<std::int64_t, 4> strides{};

  /// A packed [batch, heads, length, dim] tensor.
  [[nodiscard]] SACCADE_API static View packed(const void* data, DType dtype,
                                               std::array<std::int64_t, 4> sizes);
};

/// The problem these four tensors pose (no mask, not causal; set what else it needs afterwards), or the
/// sentence that says which of their sizes or types disagree.
[[nodiscard]] SACCADE_API Result<Problem> describe(const View& q, const View& k, const View& v,
                                                   const View& o);

/// For the impatient: o = attention(q, k, v) on the host, causal or not. Allocates its own workspace.
[[nodiscard]] SACCADE_API Status attention(const View& q, const View& k, const View& v, const View& o,
                                           bool causal = false);

}  // namespace saccade
