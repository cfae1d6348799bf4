// What the kernels that walk a block of rows over tiles of keys share: who sees what, and what is done to a
// score before the softmax. Scores are transposed, [keys][rows of a panel]. Compiled once for each
// instruction set, like simd_math-inl.h.
#if defined(SACCADE_CPU_BLOCKED_WALK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SACCADE_CPU_BLOCKED_WALK_INL_H_
#undef SACCADE_CPU_BLOCKED_WALK_INL_H_
#else
#define SACCADE_CPU_BLOCKED_WALK_INL_H_
#endif

#include <algorithm>
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
#include <limits>

#include "cpu/blocked_panel-inl.h"
#include "cpu/blocked_simd.h"
#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace saccade::HWY_NAMESPACE {

using blocked::RowBlock;
using blocked::Sizes;
using blocked::State;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Everything attend() knows while it walks the key tiles.
struct Walk {
  const RowBlock& block;
  const Sizes& sizes;
  const State& state;
  const Problem& p;
  const Tensors& t;
  std::int64_t panel_rows;
  std::int64_t group;  // query heads of a key head: a division that rows should not repeat
  float *q, *rows_f32, *scores, *key_tile, *value_tile, *bias;
  float *begin, *end;  // of each row, relative to the tile
  float *slopes, *diagonals;

  HWY_INLINE Walk(const RowBlock& row_block, const Sizes& all_sizes, float* scratch, const State& soft)
      : block(row_block),
        sizes(all_sizes),
        state(soft),
        p(*row_block.problem),
        t(*row_block.tensors),
        panel_rows(all_sizes.panel_rows),
        group(p.group()) {
    const auto take = [&scratch](std::int64_t count) {
      float* at = scratch;
      scratch += count;
      return at;
    };
    q = take(sizes.q);
    rows_f32 = take(sizes.rows_f32);
    scores = take(sizes.scores);
    key_tile = take(sizes.keys);
    value_tile = take(sizes.values);
    bias = take(sizes.bias);
    begin = take(sizes.limits);
    end = take(sizes.limits);
    slopes = take(sizes.limits);
    diagonals = take(sizes.limits);
  }

  [[nodiscard]] HWY_INLINE std::int64_t query(std::int64_t row) const {
    const std::int64_t at = block.first_row + row;
    return group == 1 ? at : at / group;
  }
  [[nodiscard]] HWY_INLINE std::int64_t head(std::int64_t row) const {
    return group == 1 ? block.head_kv : block.head_kv * group + (block.first_row + row) % group;
  }
  /// The keys row `row` sees among the block's.
  [[nodiscard]] HWY_INLINE KeyRange visible(std::int64_t row) const {
    const KeyRange seen = visible_keys(p, block.sequence, query(row));
    const std::int64_t first = std::max(seen.begin, block.keys.begin);
    return {first, std::max(first, std::min(seen.end, block.keys.end))};
  }
};

/// Before the first tile of keys: every row's place, and an empty softmax.
HWY_INLINE void start_rows(const Walk& w, std::int64_t panels) {
  const std::int64_t rows = panels * w.panel_rows;
  std::fill_n(w.state.m, rows, -kInfinity);
  std::fill_n(w.state.l, rows, 0.0F);
  std::fill_n(w.slopes, rows, 0.0F);
  std::fill_n(w.diagonals, rows, 0.0F);
  for (std::int64_t r = 0; w.p.alibi && r < rows; ++r) {
    const std::int64_t row = std::min(r, w.block.rows - 1);
    const std::int64_t slope = w.block.sequence.batch * w.p.alibi_batch_stride + w.head(row);
    w.slopes[r] = kLog2e * w.t.alibi_slopes[slope];
    w.diagonals[r] = static_cast<float>(w.query(row) + w.block.sequence.diagonal);
  }
  std::fill_n(w.state.o, panels * w.sizes.dim_v * w.panel_rows, 0.0F);
}

/// Which keys of a tile the rows of a panel see, in whole groups of keys and relative to the tile.
template <int kCount>
struct Reach {
  std::int64_t from = 0, to = 0;              ///< what any row sees
  std::int64_t whole_from = 0, whole_to = 0;  ///< what every row sees; the limits of some row cut the others
  std::int64_t ends[kCount] = {};             ///< where each vector's last row stops seeing

  Reach() = default;
  HWY_INLINE Reach(const Walk& w, std::int64_t panel, std::int64_t tile_first, std::int64_t tile_keys,
                   std::int64_t group) {
    const std::int64_t first_row = panel * w.panel_rows;
    const std::int64_t last_row = std::min(first_row + w.panel_rows, w.block.rows) - 1;
    // Limits only grow from row to row, so the outer rows bound them all.
    const KeyRange first_seen = w.visible(first_row);
    const KeyRange last_seen = w.visible(last_row);
    from = std::max<std::int64_t>(first_seen.begin - tile_first, 0);
    to = std::min(last_seen.end - tile_first, tile_keys);
    if (from >= to) return;
    const auto group_up = [group](std::int64_t n) { return (n + group - 1) / group * group; };
    from = from / group * group;
    to = group_up(to);
    whole_from = std::clamp(group_up(last_seen.begin - tile_first), from, to);
    whole_to = std::clamp((first_seen.end - tile_first) / group * group, whole_from, to);
    for (int i = 0; i < kCount; ++i) {
      const std::int64_t row = std::min(first_row + (i + 1) * lane_count() - 1, last_row);
      ends[i] = whole_to == to ? to : std::clamp(group_up(w.visible(row).end - tile_first), from, to);
    }
    if (!partial()) return;
    for (std::int64_t r = first_row; r < first_row + w.panel_rows; ++r) {
      const KeyRange seen = w.visible(std::min(r, last_row));
      const auto relative = [&](std::int64_t key) {
        return static_cast<float>(std::clamp<std::int64_t>(key - tile_first, -1, w.sizes.key_tile));
      };
      w.begin[r] = relative(seen.begin);
      w.end[r] = relative(seen.end);
    }
  }

  [[nodiscard]] HWY_INLINE bool empty() const { return from >= to; }
  [[nodiscard]] HWY_INLINE bool partial() const { return whole_from > from || whole_to < to; }
};

/// Writes the mask of one panel and key range as a bias^T in base 2; returns whether any pair is visible.
HWY_INLINE bool load_bias(const Walk& w, std::int64_t panel, std::int64_t tile_first, std::int64_t from,
                          std::int64_t to, std::int64_t keys) {
  bool visible = false;
  for (std::int64_t r = 0; r < w.panel_rows; ++r) {
    const std::int64_t row = std::min(panel * w.panel_rows + r, w.block.rows - 1);
    const std::int64_t offset = mask_offset(w.p, w.block.sequence, w.head(row), w.query(row), tile_first);
    float* HWY_RESTRICT bias = w.bias + r;
    const auto fill = [&](auto value) HWY_ATTR {
      for (std::int64_t j = from; j < to; ++j) {
        const float x = j < keys ? value(offset + j * w.p.mask_strides.key) : -kInfinity;
        visible |= x != -kInfinity;
        bias[j * w.panel_rows] = x;
      }
    };
    if (w.p.mask == MaskKind::boolean) {
      const auto* mask = static_cast<const std::uint8_t*>(w.t.mask);
      fill([mask](std::int64_t at) { return mask[at] != 0 ? 0.0F : -kInfinity; });
    } else {
      with_dtype(w.p.mask_dtype, [&](auto zero) {
        const auto* mask = static_cast<const decltype(zero)*>(w.t.mask);
        fill([mask](std::int64_t at) { return bias_in_base_2(to_float(mask[at])); });
      });
    }
  }
  return visible;
}

/// Applies softcap, ALiBi, bias and limits to the scores of one panel and returns their maximum with `max`.
template <int kFirst, int kCount>
HWY_INLINE Panel<kCount> modify_scores(const Walk& w, std::int64_t panel, float* tile_scores,
                                       std::int64_t tile_first, std::int64_t from, std::int64_t to,
                                       bool partial, Panel<kCount> max) {
  const Floats d;
  const std::int64_t at = panel * w.panel_rows;
  const bool softcap = w.p.softcap > 0;
  const bool bias = w.p.mask != MaskKind::none;
  const Vec cap = hn::Set(d, w.p.softcap * kLog2e);
  const Panel<kCount> begin = Panel<kCount>::load(w.begin + at);
  const Panel<kCount> end = Panel<kCount>::load(w.end + at);
  const Panel<kCount> slope = Panel<kCount>::load(w.slopes + at);
  const Panel<kCount> diagonal = Panel<kCount>::load(w.diagonals + at);
  for (std::int64_t j = from; j < to; ++j) {
    float* scores = tile_scores + j * w.panel_rows;
    Panel<kCount> s = Panel<kCount>::load(scores);
    const Vec key = hn::Set(d, static_cast<float>(j));
    const Vec absolute = hn::Set(d, static_cast<float>(tile_first + j));
    const Panel<kCount> extra =
        bias ? Panel<kCount>::load(w.bias + j * w.panel_rows) : Panel<kCount>::splat(0);
    for (int i = kFirst; i < kCount; ++i) {
      if (softcap) s.v[i] = hn::Mul(cap, hn::Tanh(d, s.v[i]));
      if (w.p.alibi) s.v[i] = hn::NegMulAdd(slope.v[i], hn::Abs(hn::Sub(diagonal.v[i], absolute)), s.v[i]);
      if (bias) s.v[i] = hn::Add(s.v[i], extra.v[i]);
      if (partial) {
        const auto seen = hn::And(hn::Le(begin.v[i], key), hn::Lt(key, end.v[i]));
        s.v[i] = hn::IfThenElse(seen, s.v[i], hn::Set(d, -kInfinity));
      }
      // A boolean mask must hide a NaN score too, and an additive -inf as well.
      if (bias) {
        const auto hidden = hn::Eq(extra.v[i], hn::Set(d, -kInfinity));
        s.v[i] = hn::IfThenElse(hidden, hn::Set(d, -kInfinity), s.v[i]);
      }
      max.v[i] = hn::Max(max.v[i], s.v[i]);
    }
    s.store(scores);
  }
  return max;
}

}  // namespace saccade::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SACCADE_CPU_BLOCKED_WALK_INL_H_
