// Scores with everything that a problem may ask for: softcap, masks, biases, ALiBi.
#pragma once

#include <algorithm>

#include "core/sequence.h"
#include "cuda/ptx/memory.h"
#include "cuda/tile/scores.h"

namespace saccade::SACCADE_MACHINE::tile {

/// tanh(x) to about 1e-6 of itself: by an exponential, and by its series near 0, where that would cancel (a
/// large cap has all its scores there).
SACCADE_DEVICE float fast_tanh(float x) {
  const float square = x * x;
  float series = ptx::fma(square, 62.0F / 2835, -17.0F / 315);
  series = ptx::fma(square, series, 2.0F / 15);
  series = ptx::fma(square, series, -1.0F / 3);
  const float near = ptx::fma(x * square, series, x);
  const float far = 1 - 2 * ptx::fast_reciprocal(1 + ptx::fast_exp2(2 * kLog2e * x));
  return square < 0.0625F ? near : far;
}

/// T: the type of the tensors. The references are to the kernel's argument.
template <class T>
struct AnyScores {
  const Problem& p;
  const Tensors& t;
  int batch, head;
  int len_q;  ///< of the sequence
  KeySpan span;
  ScoreScale scale;

  static constexpr bool kPlain = false;

  /// As PlainScores::change.
  template <int kRowTiles, int kParts>
  SACCADE_DEVICE float change(float (&s)[kRowTiles][kParts][4], int row, int first_key, bool masked) const {
    float to_base_2 = 1;
    SACCADE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) to_base_2 = change(s[r], row + 16 * r, first_key, masked);
    return to_base_2;
  }

 private:
  template <int kParts>
  SACCADE_DEVICE float change(float (&s)[kParts][4], int row, int first_key, bool masked) const {
    const bool plain = p.softcap == 0 && p.mask == MaskKind::none && !p.alibi;
    if (!plain) {
      // Softcap wants scores in units of the cap, all else wants them in base 2. A tiny cap's unit stays
      // finite.
      float unit = scale.size;
      if (p.softcap > 0) unit = scale.size / kLog2e / p.softcap;
      if (unit > kLargest) unit = kLargest;
      for_each(s, row, first_key, [&](float& x, int, int) { x *= unit; });
      if (p.softcap > 0) {
        for_each(s, row, first_key, [&](float& x, int, int) { x = p.softcap * fast_tanh(x) * kLog2e; });
      }
      if (p.mask == MaskKind::boolean) {
        hide_or_add(s, row, first_key, static_cast<const std::uint8_t*>(t.mask),
                    [](std::uint8_t seen) { return seen == 0 ? -kInfinity : 0.0F; });
      } else if (p.mask == MaskKind::additive && p.mask_dtype == DType::f32) {
        hide_or_add(s, row, first_key, static_cast<const float*>(t.mask), [](float bias) { return bias; });
      } else if (p.mask == MaskKind::additive) {
        hide_or_add(s, row, first_key, static_cast<const T*>(t.mask),
                    [](T bias) { return ptx::to_float(bias); });
      }
      if (p.alibi) {
        const float slope = kLog2e * ptx::load_constant(t.alibi_slopes + batch * p.alibi_batch_stride + head);
        for_each(s, row, first_key, [&](float& x, int i, int j) {
          const int distance = i + span.diagonal - j;
          x = ptx::fma(-slope, static_cast<float>(distance < 0 ? -distance : distance), x);
        });
      }
    }
    if (masked) hide_keys(span, s, row, first_key);
    return plain ? scale.size : 1.0F;
  }

  /// Calls act(score, row, key) for what this lane holds.
  template <int kParts, class Act>
  static SACCADE_DEVICE void for_each(float (&s)[kParts][4], int row, int first_key, const Act& act) {
    const int i = row + ptx::lane_index() / 4;
    const int j = first_key + ptx::lane_index() % 4 * 2;
    SACCADE_UNROLL
    for (int n = 0; n < kParts; ++n) {
      SACCADE_UNROLL
      for (int e = 0; e < 4; ++e) act(s[n][e], i + e / 2 * 8, j + 8 * n + e % 2);
    }
  }

  /// Adds the mask's numbers; -inf hides the key, whatever its score, and nothing else does: the lowest
  /// finite number stays one in base 2. Rows and keys that do not exist read the last ones' numbers.
  template <int kParts, class M, class Bias>
  SACCADE_DEVICE void hide_or_add(float (&s)[kParts][4], int row, int first_key, const M* mask,
                                  const Bias& bias) const {
    const M* from = mask + mask_offset(p, {.batch = batch}, head, 0, 0);
    for_each(s, row, first_key, [&](float& x, int i, int j) {
      const float b = bias(ptx::load_constant(from + std::min(i, len_q - 1) * p.mask_strides.row +
                                              std::min(j, span.len_kv - 1) * p.mask_strides.key));
      x = b == -kInfinity ? b : larger(-kLargest, ptx::fma(b, kLog2e, x));  // in this order NaN stays NaN
    });
  }
};

}  // namespace saccade::SACCADE_MACHINE::tile
