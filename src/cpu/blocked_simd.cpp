#include "cpu/blocked_simd.h"

#include <algorithm>
#include <limits>

#include "cpu/finish_row.h"

// Highway's order: the targets, then this file once for each of them.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/blocked_simd.cpp"
#include "cpu/simd_targets.h"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "cpu/blocked_panel-inl.h"
#include "cpu/blocked_walk-inl.h"
#include "cpu/simd_math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace saccade::HWY_NAMESPACE {
namespace {

/// q^T of one panel, scaled so that scores come out in base 2 (or, under a softcap, as its argument).
template <class T>
HWY_INLINE void load_queries(const Walk& w, std::int64_t panel) {
  const std::int64_t dim = w.sizes.dim_qk;
  const float scale = w.p.effective_scale() * (w.p.softcap > 0 ? 1 / w.p.softcap : kLog2e);
  for (std::int64_t r = 0; r < w.panel_rows; ++r) {
    const std::int64_t row = panel * w.panel_rows + r;
    if (row < w.block.rows) {
      const T* from = static_cast<const T*>(w.t.q) +
                      query_offset(w.p, w.p.q, w.block.sequence, w.head(row), w.query(row));
      convert_row(from, w.p.dim_qk, scale, w.rows_f32 + r * dim);
      std::fill(w.rows_f32 + r * dim + w.p.dim_qk, w.rows_f32 + (r + 1) * dim, 0.0F);
    } else {
      std::fill_n(w.rows_f32 + r * dim, dim, 0.0F);
    }
  }
  transpose(w.rows_f32, dim, w.panel_rows, dim, w.q + panel * dim * w.panel_rows, w.panel_rows);
}

/// A tile of keys or values as floats: in place when they lie so already, else converted, with zeros up to
/// the padded number of rows and columns.
struct Tile {
  const float* data;
  std::int64_t stride;
};

template <class T>
HWY_INLINE Tile load_tile(const Walk& w, const void* tensor, const Strides& strides, std::int64_t dim,
                          std::int64_t padded_dim, std::int64_t first, std::int64_t count, float* buffer) {
  const T* from = static_cast<const T*>(tensor);
  const Sequence& s = w.block.sequence;
  if constexpr (std::is_same_v<T, float>) {
    // Rows with gaps are copied all the same: power-of-two gaps would fight for a few cache sets.
    const bool packed = strides.row == dim && dim == padded_dim && w.p.kv_layout != KvLayout::paged;
    if (packed && count % kGroup == 0) {
      return {from + key_offset(w.p, w.t, strides, s, w.block.head_kv, first), dim};
    }
  }
  for (std::int64_t j = 0; j < count; ++j) {
    float* to = buffer + j * padded_dim;
    convert_row(from + key_offset(w.p, w.t, strides, s, w.block.head_kv, first + j), dim, 1.0F, to);
    std::fill(to + dim, to + padded_dim, 0.0F);
  }
  const std::int64_t padded = (count + kGroup - 1) / kGroup * kGroup;
  std::fill_n(buffer + count * padded_dim, (padded - count) * padded_dim, 0.0F);
  return {buffer, padded_dim};
}

// What follows leaves the vectors of a panel before kFirst alone: none of their rows sees the keys.

/// scores = K q^T for keys [from, to) of the tile; returns the running maximum over them.
template <int kFirst, int kCount>
HWY_INLINE Panel<kCount> score_keys(const Walk& w, std::int64_t panel, const Tile& keys, std::int64_t from,
                                    std::int64_t to, Panel<kCount> max) {
  const float* q = w.q + panel * w.sizes.dim_qk * w.panel_rows;
  for (std::int64_t j = from; j < to; j += kGroup) {
    Panel<kCount> acc[kGroup];
    for (auto& a : acc) a = Panel<kCount>::splat(0);
    multiply_add<kFirst>(keys.data + j * keys.stride, keys.stride, 1, q, w.sizes.dim_qk, acc);
    for (int r = 0; r < kGroup; ++r) {
      acc[r].store(w.scores + (j + r) * w.panel_rows);
      for (int i = kFirst; i < kCount; ++i) max.v[i] = hn::Max(max.v[i], acc[r].v[i]);
    }
  }
  return max;
}

/// Turns scores into weights 2^(s - m) in place, and returns the sum of them.
template <int kFirst, int kCount>
HWY_INLINE Panel<kCount> weigh_scores(const Walk& w, const Panel<kCount>& m, std::int64_t from,
                                      std::int64_t to) {
  const Floats d;
  Panel<kCount> even = Panel<kCount>::splat(0);
  Panel<kCount> odd = Panel<kCount>::splat(0);
  const auto weigh = [&](std::int64_t j, Panel<kCount>& sum) HWY_ATTR {
    float* scores = w.scores + j * w.panel_rows;
    Panel<kCount> s = Panel<kCount>::load(scores);
    for (int i = kFirst; i < kCount; ++i) {
      s.v[i] = vector_exp2(d, hn::Sub(s.v[i], m.v[i]));
      sum.v[i] = hn::Add(sum.v[i], s.v[i]);
    }
    s.store(scores);
  };
  static_assert(kGroup % 2 == 0);  // ranges are whole groups
  for (std::int64_t j = from; j < to; j += 2) {
    weigh(j, even);
    weigh(j + 1, odd);
  }
  for (int i = kFirst; i < kCount; ++i) even.v[i] = hn::Add(even.v[i], odd.v[i]);
  return even;
}

/// o^T = alpha * o^T + V^T weights for keys [from, to) of the tile. Not inline: the caller's vectors would
/// push accumulators out of their registers.
template <int kFirst, int kCount>
HWY_NOINLINE void add_values(const Walk& w, std::int64_t panel, const Tile& values, std::int64_t from,
                             std::int64_t to, const Panel<kCount>& alpha) {
  float* o = w.state.o + panel * w.sizes.dim_v * w.panel_rows;
  for (std::int64_t c = 0; c < w.sizes.dim_v; c += kGroup) {
    Panel<kCount> acc[kGroup];
    for (auto& a : acc) a = Panel<kCount>::splat(0);
    multiply_add<kFirst>(values.data + from * values.stride + c, 1, values.stride,
                         w.scores + from * w.panel_rows, to - from, acc);
    for (int r = 0; r < kGroup; ++r) {
      float* row = o + (c + r) * w.panel_rows;
      Panel<kCount> x = Panel<kCount>::load(row);
      for (int i = kFirst; i < kCount; ++i) x.v[i] = hn::MulAdd(x.v[i], alpha.v[i], acc[r].v[i]);
      x.store(row);
    }
  }
}

/// One panel against one tile of keys: scores, online softmax, weighted values.
/// Not inline: one copy does for all storage types.
template <int kCount>
HWY_NOINLINE void attend_panel(const Walk& w, std::int64_t panel, const Tile& keys, const Tile& values,
                               std::int64_t tile_first, std::int64_t tile_keys) {
  const Floats d;
  const std::int64_t first_row = panel * w.panel_rows;
  const Reach<kCount> reach(w, panel, tile_first, tile_keys, kGroup);
  if (reach.empty()) return;
  const std::int64_t from = reach.from;
  const bool bias = w.p.mask != MaskKind::none;
  if (bias && !load_bias(w, panel, tile_first, from, reach.to, tile_keys)) return;

  const Panel<kCount> old_m = Panel<kCount>::load(w.state.m + first_row);
  Panel<kCount> m = old_m;
  const bool modified = bias || w.p.softcap > 0 || w.p.alibi;
  for_each_stretch(from, reach.ends, [&](auto first, std::int64_t begin, std::int64_t end) HWY_ATTR {
    const std::int64_t edges[] = {begin, std::clamp(reach.whole_from, begin, end),
                                  std::clamp(reach.whole_to, begin, end), end};
    for (int part = 0; part < 3; ++part) {
      const std::int64_t a = edges[part], b = edges[part + 1];
      if (a == b) continue;
      const bool cut = part != 1;
      const Panel<kCount> scored = score_keys<first>(w, panel, keys, a, b, m);
      m = cut || modified ? modify_scores<first>(w, panel, w.scores, tile_first, a, b, cut, m) : scored;
    }
  });
  m.store(w.state.m + first_row);
  Panel<kCount> alpha;
  for (int i = 0; i < kCount; ++i) {  // a row that has seen nothing yet: any finite reference will do
    m.v[i] = hn::IfThenElse(hn::Eq(m.v[i], hn::Set(d, -kInfinity)), hn::Zero(d), m.v[i]);
    alpha.v[i] = vector_exp2(d, hn::Sub(old_m.v[i], m.v[i]));
  }
  Panel<kCount> l = Panel<kCount>::load(w.state.l + first_row);
  for (int i = 0; i < kCount; ++i) l.v[i] = hn::Mul(l.v[i], alpha.v[i]);
  for_each_stretch(from, reach.ends, [&](auto first, std::int64_t begin, std::int64_t end) HWY_ATTR {
    const Panel<kCount> sum = weigh_scores<first>(w, m, begin, end);
    for (int i = 0; i < kCount; ++i) l.v[i] = hn::Add(l.v[i], sum.v[i]);
    add_values<first>(w, panel, values, begin, end, alpha);
    alpha = Panel<kCount>::splat(1);
  });
  l.store(w.state.l + first_row);
}

template <class T>
HWY_INLINE void attend_typed(const Walk& w) {
  const std::int64_t panels = (w.block.rows + w.panel_rows - 1) / w.panel_rows;
  for (std::int64_t panel = 0; panel < panels; ++panel) load_queries<T>(w, panel);
  start_rows(w, panels);

  const std::int64_t begin = w.visible(0).begin;
  const std::int64_t end = w.visible(w.block.rows - 1).end;
  for (std::int64_t first = begin; first < end; first += w.sizes.key_tile) {
    const std::int64_t count = std::min(w.sizes.key_tile, end - first);
    const Tile keys = load_tile<T>(w, w.t.k, w.p.k, w.p.dim_qk, w.sizes.dim_qk, first, count, w.key_tile);
    const Tile values = load_tile<T>(w, w.t.v, w.p.v, w.p.dim_v, w.sizes.dim_v, first, count, w.value_tile);
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const std::int64_t rows = w.block.rows - panel * w.panel_rows;
      const std::int64_t lanes = lane_count();
      if (rows <= lanes) {
        attend_panel<1>(w, panel, keys, values, first, count);
      } else if (rows <= 2 * lanes) {
        attend_panel<2>(w, panel, keys, values, first, count);
      } else {
        attend_panel<kVectors>(w, panel, keys, values, first, count);
      }
    }
  }
}

void attend_block(const RowBlock& block, const Sizes& sizes, float* scratch, const State& state) {
  const Walk walk(block, sizes, scratch, state);
  with_dtype(block.problem->dtype, [&](auto zero) HWY_ATTR { attend_typed<decltype(zero)>(walk); });
}

void merge_blocks(const RowBlock& block, const Sizes& sizes, const State& part, const State& state) {
  const Floats d;
  for (std::int64_t row = 0; row < block.rows; row += lane_count()) {
    const Vec a = hn::LoadU(d, state.m + row);
    const Vec b = hn::LoadU(d, part.m + row);
    const Vec m = hn::Max(a, b);
    const Vec safe = hn::IfThenElse(hn::Eq(m, hn::Set(d, -kInfinity)), hn::Zero(d), m);
    const Vec keep = vector_exp2(d, hn::Sub(a, safe));
    const Vec take = vector_exp2(d, hn::Sub(b, safe));
    const auto merged = [&](const float* mine, const float* other) HWY_ATTR {
      return hn::MulAdd(hn::LoadU(d, mine), keep, hn::Mul(hn::LoadU(d, other), take));
    };
    hn::StoreU(merged(state.l + row, part.l + row), d, state.l + row);
    hn::StoreU(m, d, state.m + row);
    const std::int64_t in_panel = row % sizes.panel_rows;
    for (std::int64_t c = 0; c < sizes.dim_v; ++c) {
      const std::int64_t at = (row - in_panel) * sizes.dim_v + c * sizes.panel_rows + in_panel;
      hn::StoreU(merged(state.o + at, part.o + at), d, state.o + at);
    }
  }
}

template <class T>
HWY_INLINE void finish_typed(const RowBlock& block, const Sizes& sizes, float* rows_f32, const State& state) {
  const Problem& p = *block.problem;
  const Tensors& t = *block.tensors;
  const std::int64_t panel_rows = sizes.panel_rows;
  const std::int64_t group = p.group();
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const std::int64_t in_panel = r % panel_rows;
    if (in_panel == 0) {
      transpose(state.o + r * sizes.dim_v, panel_rows, sizes.dim_v, panel_rows, rows_f32, sizes.dim_v);
    }
    const std::int64_t query = (block.first_row + r) / group;
    const std::int64_t head = block.head_kv * group + (block.first_row + r) % group;
    const float weight = finish_row(p, t, block.sequence, head, query, state.m[r], state.l[r]);
    T* to = static_cast<T*>(t.o) + query_offset(p, p.o, block.sequence, head, query);
    store_row(rows_f32 + in_panel * sizes.dim_v, p.dim_v, weight, to);
  }
}

void finish_block(const RowBlock& block, const Sizes& sizes, float* scratch, const State& state) {
  with_dtype(block.problem->dtype,
             [&](auto zero) HWY_ATTR { finish_typed<decltype(zero)>(block, sizes, scratch, state); });
}

blocked::Geometry this_geometry() {
  return {static_cast<int>(rows_per_panel()), kGroup};
}

}  // namespace
}  // namespace saccade::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace saccade {
namespace {
HWY_EXPORT(attend_block);
HWY_EXPORT(merge_blocks);
HWY_EXPORT(finish_block);
HWY_EXPORT(this_geometry);
}  // namespace

namespace blocked {

Geometry geometry() {
  return HWY_DYNAMIC_DISPATCH(this_geometry)();
}

Sizes::Sizes(const Problem& p, std::int64_t max_rows, std::int64_t max_keys)
    : Sizes(p, max_rows, max_keys, geometry().panel_rows, geometry().group) {}

Sizes::Sizes(const Problem& p, std::int64_t max_rows, std::int64_t max_keys, std::int64_t rows_of_panel,
             std::int64_t unit)
    : panel_rows(rows_of_panel) {
  const auto pad = [](std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; };
  constexpr std::int64_t kCacheLine = 16;  // floats; keeps every array aligned to one
  rows = pad(max_rows, panel_rows);
  key_tile = pad(max_keys, unit);
  dim_qk = pad(p.dim_qk, unit);
  dim_v = pad(p.dim_v, unit);
  state_o = pad(rows * dim_v, kCacheLine);
  limits = pad(rows, kCacheLine);
  state = state_o + 2 * limits;
  q = pad(rows * dim_qk, kCacheLine);
  rows_f32 = pad(panel_rows * std::max(dim_qk, dim_v), kCacheLine);
  scores = pad(key_tile * panel_rows, kCacheLine);
  keys = pad(key_tile * dim_qk, kCacheLine);
  values = pad(key_tile * dim_v, kCacheLine);
  bias = p.mask == MaskKind::none ? 0 : scores;
  scratch = q + rows_f32 + scores + keys + values + bias + 4 * limits;
}

State state_at(const Sizes& sizes, float* memory) {
  return {memory, memory + sizes.limits, memory + 2 * sizes.limits};
}

void attend(const RowBlock& block, const Sizes& sizes, float* scratch, const State& state) {
  HWY_DYNAMIC_DISPATCH(attend_block)(block, sizes, scratch, state);
}

void merge(const RowBlock& block, const Sizes& sizes, const State& part, const State& state) {
  HWY_DYNAMIC_DISPATCH(merge_blocks)(block, sizes, part, state);
}

void finish(const RowBlock& block, const Sizes& sizes, float* scratch, const State& state) {
  HWY_DYNAMIC_DISPATCH(finish_block)(block, sizes, scratch, state);
}

}  // namespace blocked
}  // namespace saccade
#endif  // HWY_ONCE
