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
  const auto hide = [&](auto hidden) {
    SACCADE_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int i = row + lane / 4 + 8 * h;
      const int begin = span.begin(i) - first_key - lane % 4 * 2;  // counted from this lane's first key
      const int end = span.end(i) - first_key - lane % 4 * 2;
      SACCADE_UNROLL
      for (int n = 0; n < kParts; ++n) {
        SACCADE_UNROLL
        for (int e = 0; e < 2; ++e) {
          if (hidden(8 * n + e, begin, end)) s[n][2 * h + e] = -kInfinity;
        }
      }
    }
  };
  hide([](int j, int, int end) { return j >= end; });
  if (span.hides_first()) hide([](int j, int begin, int) { return j < begin; });
}

/// Scores that are products and nothing else.
struct PlainScores {
  KeySpan span;
  ScoreScale scale;

  /// Whether keys that no row's span cuts have scores that change() leaves alone.
  static constexpr bool kPlain = true;

  /// Hides what the span does if it cuts these keys (`masked`), and returns the positive number that makes
  /// base-2 scores of them.
  template <int kRowTiles, int kParts>
  SACCADE_DEVICE float change(float (&s)[kRowTiles][kParts][4], int row, int first_key, bool masked) const {
    if (masked) {
      SACCADE_UNROLL
      for (int r = 0; r < kRowTiles; ++r) hide_keys(span, s[r], row + 16 * r, first_key);
    }
    return scale.size;
  }
};

}  // namespace saccade::SACCADE_MACHINE::tile
