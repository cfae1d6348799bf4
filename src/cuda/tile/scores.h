// What becomes of a warp's scores between the two products. The scores of 16 rows are as mma leaves them:
// s[n][2 h + e] is row lane / 4 + 8 h and key 8 n + lane % 4 * 2 + e.
#pragma once

#include "cuda/ptx/warp.h"
#include "cuda/tile/keys.h"
#include "cuda/tile/softmax.h"

namespace saccade::SACCADE_MACHINE::tile {

/// Hides the keys outside of the span of each row. `row` and `first_key` are those of the first score.
template <int kParts>
SACCADE_DEVICE void hide_keys(const KeySpan& span, float (&s)[kParts][4], int row, int first_key) {
  const int lane = ptx::lane_index();
  SACCADE_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int i = row + lane / 4 + 8 * h;
    const int begin = span.begin(i) - first_key - lane % 4 * 2;  // counted from this lane's first key
    const int end = span.end(i) - first_key - lane % 4 * 2;
    SACCADE_UNROLL
    for (int n = 0; n < kParts; ++n) {
      SACCADE_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int j = 8 * n + e;
        if (j < begin || j >= end) s[n][2 * h + e] = -kInfinity;
      }
    }
  }
}

/// Scores that are products and nothing else.
struct PlainScores {
  KeySpan span;
  ScoreScale scale;

  /// Whether change() branches anyway, so that one more branch is better than a second copy of everything.
  static constexpr bool kBranches = false;

  /// Hides what the span does if it cuts these keys (`masked`), and returns the positive number that makes
  /// base-2 scores of them.
  template <int kParts, class Masked>
  SACCADE_DEVICE float change(float (&s)[kParts][4], int row, int first_key, Masked masked) const {
    if (masked) hide_keys(span, s, row, first_key);
    return scale.size;
  }
};

}  // namespace saccade::SACCADE_MACHINE::tile
