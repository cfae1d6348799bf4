// Online softmax in base 2: a running maximum, a running sum, and what to multiply earlier results with.
#pragma once

#include <limits>

#include "cuda/ptx/numbers.h"
#include "cuda/ptx/warp.h"

namespace saccade::SACCADE_MACHINE::tile {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kLargest = std::numeric_limits<float>::max();
inline constexpr float kLog2e = 1.44269504088896340736F;
inline constexpr float kLn2 = 0.693147180559945309417F;

/// The larger number; b if one of them is NaN. (ptx::larger is one instruction, and the other one then.)
SACCADE_DEVICE float larger(float a, float b) {
  return a > b ? a : b;
}

/// Over all lanes of the warp; every lane gets the result.
SACCADE_DEVICE float max_over_lanes(float x) {
  SACCADE_UNROLL
  for (int distance = ptx::kWarpThreads / 2; distance > 0; distance /= 2) {
    x = larger(x, ptx::shuffle_xor(x, distance));
  }
  return x;
}
SACCADE_DEVICE float sum_over_lanes(float x) {
  SACCADE_UNROLL
  for (int distance = ptx::kWarpThreads / 2; distance > 0; distance /= 2) x += ptx::shuffle_xor(x, distance);
  return x;
}

/// What scores are multiplied with, in base 2: a positive number, so that the largest score is the largest
/// product, and a sign for the queries. A scale of 0 becomes the smallest number that still hides -inf.
struct ScoreScale {
  float size = 1;
  std::uint32_t sign_bits = 0;  ///< of two 16-bit numbers

  static ScoreScale of(float scale) {
    const float size = (scale < 0 ? -scale : scale) * kLog2e;
    constexpr float kSmallest = std::numeric_limits<float>::min();
    return {size < kSmallest ? kSmallest : size, scale < 0 ? 0x80008000U : 0};
  }
};

/// One row's state. Scores are in base 2; a row that has seen no key has m = -inf and l = 0.
struct RowState {
  float m = -kInfinity;
  float l = 0;

  /// Takes in the maximum of some new scores; returns what the sums so far (l here, o elsewhere) are worth
  /// now.
  SACCADE_DEVICE float raise(float new_max) {
    const float old = m;
    m = larger(new_max, m);
    return m == -kInfinity ? 1.0F : ptx::fast_exp2(old - m);
  }
  /// Takes in a sink (-inf: none): a weight without a value. Returns what the sums so far are worth now.
  SACCADE_DEVICE float take_sink(float sink) {
    if (sink == -kInfinity) return 1.0F;
    const float keep = raise(sink);
    l = ptx::fma(l, keep, ptx::fast_exp2(sink - m));
    return keep;
  }
  /// What scores are compared with: the maximum, or 0 while there is none, so that -inf - base stays -inf.
  [[nodiscard]] SACCADE_DEVICE float base() const { return m == -kInfinity ? 0.0F : m; }
  /// The factor that turns the sum of weighted values into the output; 0 for a row with nothing to attend to.
  /// By a reciprocal that has no slow path: a division takes forty instructions, in the end of every row.
  [[nodiscard]] SACCADE_DEVICE float weight() const { return l == 0 ? 0.0F : ptx::fast_reciprocal(l); }
  /// The natural logarithm of the sum of exponentials.
  [[nodiscard]] SACCADE_DEVICE float lse() const {
    return l == 0 ? -kInfinity : kLn2 * (m + ptx::accurate_log2(l));
  }
};

}  // namespace saccade::SACCADE_MACHINE::tile
