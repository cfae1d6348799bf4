#include "cpu/decode_simd.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/finish_row.h"

// Highway's order: the targets, then this file once for each of them.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/decode_simd.cpp"
#include "cpu/simd_targets.h"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
#include "cpu/simd_math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace saccade::HWY_NAMESPACE {
namespace {

using decode::kKeyTile;
using decode::Sizes;
using decode::State;
using decode::Unit;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Vectors of V columns that one pass accumulates for each row: what the registers hold.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
constexpr int kAccumulators = 16;
#else
constexpr int kAccumulators = 8;
#endif

/// A unit with its pointers sorted out.
template <class T>
struct Work {
  const Unit& unit;
  const Sizes& sizes;
  const State& state;
  const Problem& p;
  const Tensors& t;
  float *q, *scores, *bias;
  // Pointers to rows in the order they are read: the tile's keys, its values, the next tile's keys.
  const T** rows;

  HWY_INLINE Work(const Unit& all, const Sizes& all_sizes, float* scratch, const State& soft)
      : unit(all), sizes(all_sizes), state(soft), p(*all.problem), t(*all.tensors) {
    q = scratch;
    scores = q + sizes.rows * sizes.dim_qk;
    bias = scores + sizes.rows * kKeyTile;
    rows = reinterpret_cast<const T**>(bias + sizes.rows * kKeyTile);
  }
  [[nodiscard]] const T* const* keys() const { return rows; }
  [[nodiscard]] const T* const* values() const { return rows + kKeyTile; }
  [[nodiscard]] std::int64_t query(std::int64_t row) const { return row / p.group(); }
  [[nodiscard]] std::int64_t head(std::int64_t row) const {
    return unit.head_kv * p.group() + row % p.group();
  }
  [[nodiscard]] KeyRange visible(std::int64_t row) const {
    const KeyRange seen = visible_keys(p, unit.sequence, query(row));
    const std::int64_t first = std::max(seen.begin, unit.keys.begin);
    return {first, std::max(first, std::min(seen.end, unit.keys.end))};
  }
};

/// Asks for the row that will be read `ahead` rows after the n-th. The hardware's own prefetcher stops at
/// every 4 KiB page, and a reader of long rows is at a page's end often.
template <class T>
HWY_INLINE void prefetch_after(const Work<T>& w, std::int64_t n) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  const T* row = w.rows[n + w.sizes.rows_ahead];
  for (std::int64_t i = 0; i < w.sizes.row_length; i += kLine) hwy::Prefetch(row + i);
}

HWY_INLINE std::int64_t lane_count() {
  return static_cast<std::int64_t>(hn::Lanes(Floats()));
}

/// The `count` (less than a vector) numbers at `from`, with zeros behind them.
template <class T>
HWY_INLINE Vec load_tail(const T* from, std::int64_t count) {
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  for (std::int64_t n = 0; n < count; ++n) buffer[n] = to_float(from[n]);
  return hn::Load(Floats(), buffer);
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void store_sums(const Vec (&x)[4], float* to) {
  for (int k = 0; k < 4; ++k) to[k] = hn::GetLane(x[k]);
}
#else
/// Adds the 128-bit blocks of a vector.
template <class D>
HWY_INLINE hn::Vec<hn::FixedTag<float, 4> > sum_of_blocks(D, hn::Vec<D> x) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return x;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)));
  }
}

/// to[k] = the sum over all lanes of x[k]: 13 shuffles and adds instead of four times nine.
HWY_INLINE void store_sums(const Vec (&x)[4], float* to) {
  const Floats d;
  const hn::RepartitionToWide<Floats> pairs;
  // Each step adds neighbours and interleaves, until every 128-bit block holds a part of the four sums in
  // order.
  const Vec x01 = hn::Add(hn::InterleaveLower(d, x[0], x[1]), hn::InterleaveUpper(d, x[0], x[1]));
  const Vec x23 = hn::Add(hn::InterleaveLower(d, x[2], x[3]), hn::InterleaveUpper(d, x[2], x[3]));
  const auto low = hn::InterleaveLower(pairs, hn::BitCast(pairs, x01), hn::BitCast(pairs, x23));
  const auto high = hn::InterleaveUpper(pairs, hn::BitCast(pairs, x01), hn::BitCast(pairs, x23));
  const Vec parts = hn::Add(hn::BitCast(d, low), hn::BitCast(d, high));
  hn::StoreU(sum_of_blocks(d, parts), hn::FixedTag<float, 4>(), to);
}
#endif

/// Scores of kRows rows against four keys from j on.
template <int kRows, class T>
HWY_INLINE void dots(const Work<T>& w, std::int64_t row, std::int64_t j) {
  const Floats d;
  const std::int64_t lanes = lane_count();
  const std::int64_t dim = w.p.dim_qk;
  const float* HWY_RESTRICT q = w.q + row * w.sizes.dim_qk;
  Vec acc[kRows][4];
  for (auto& of_row : acc) {
    for (Vec& a : of_row) a = hn::Zero(d);
  }
  const auto step = [&](std::int64_t n, const Vec(&key)[4]) HWY_ATTR {
    for (int r = 0; r < kRows; ++r) {
      const Vec x = hn::LoadU(d, q + r * w.sizes.dim_qk + n);
      for (int k = 0; k < 4; ++k) acc[r][k] = hn::MulAdd(x, key[k], acc[r][k]);
    }
  };
  const T* const* keys = w.keys() + j;
  std::int64_t n = 0;
  for (; n + lanes <= dim; n += lanes) {
    Vec key[4];
    for (int k = 0; k < 4; ++k) key[k] = load_as_float(d, keys[k] + n);
    step(n, key);
  }
  if (n < dim) {
    Vec key[4];
    for (int k = 0; k < 4; ++k) key[k] = load_tail(keys[k] + n, dim - n);
    step(n, key);
  }
  for (int r = 0; r < kRows; ++r) store_sums(acc[r], w.scores + (row + r) * kKeyTile + j);
}

/// o = alpha * o + weights * V for kRows rows, kVectors vectors of columns from c on.
template <int kRows, int kVectors, class T>
HWY_INLINE void accumulate(const Work<T>& w, std::int64_t row, std::int64_t c, std::int64_t count,
                           const float* alpha) {
  const Floats d;
  const std::int64_t lanes = lane_count();
  const bool whole = c + kVectors * lanes <= w.p.dim_v;
  Vec acc[kRows][kVectors];
  for (auto& of_row : acc) {
    for (Vec& a : of_row) a = hn::Zero(d);
  }
  const float* HWY_RESTRICT weights = w.scores + row * kKeyTile;
  const bool prefetch = w.sizes.rows_ahead > 0 && row == 0 && c == 0;
  for (std::int64_t j = 0; j < count; ++j) {
    if (prefetch) prefetch_after(w, kKeyTile + j);
    const T* value = w.values()[j] + c;
    Vec v[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      v[i] = whole ? load_as_float(d, value + i * lanes) : load_tail(value, w.p.dim_v - c);
    }
    for (int r = 0; r < kRows; ++r) {
      const Vec weight = hn::Set(d, weights[r * kKeyTile + j]);
      for (int i = 0; i < kVectors; ++i) acc[r][i] = hn::MulAdd(weight, v[i], acc[r][i]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float* o = w.state.o + (row + r) * w.sizes.dim_v + c;
    const Vec factor = hn::Set(d, alpha[r]);
    for (int i = 0; i < kVectors; ++i) {
      hn::StoreU(hn::MulAdd(hn::LoadU(d, o + i * lanes), factor, acc[r][i]), d, o + i * lanes);
    }
  }
}

template <int kRows, int kVectors, class T>
HWY_INLINE void accumulate_columns(const Work<T>& w, std::int64_t row, std::int64_t c, std::int64_t count,
                                   const float* alpha) {
  const std::int64_t width = kVectors * lane_count();
  for (; c + width <= w.p.dim_v; c += width) accumulate<kRows, kVectors>(w, row, c, count, alpha);
  if constexpr (kVectors > 1) {
    accumulate_columns<kRows, kVectors / 2>(w, row, c, count, alpha);
  } else {
    if (c < w.p.dim_v) accumulate<kRows, 1>(w, row, c, count, alpha);
  }
}

/// One tile of keys for kRows rows: scores, online softmax, weighted values.
template <int kRows, class T>
HWY_INLINE void attend_rows(const Work<T>& w, std::int64_t row, std::int64_t first, std::int64_t count) {
  for (std::int64_t j = 0; j < count; j += 4) {
    if (w.sizes.rows_ahead > 0 && row == 0) {
      for (std::int64_t k = j; k < j + 4; ++k) prefetch_after(w, k);
    }
    dots<kRows>(w, row, j);
  }
  float alpha[kRows] = {};
  for (int r = 0; r < kRows && row + r < w.unit.rows; ++r) alpha[r] = softmax_row(w, row + r, first, count);
  accumulate_columns<kRows, std::min(8, kAccumulators / kRows)>(w, row, 0, count, alpha);
}

/// The mask of every row over the tile as a bias in base 2; returns whether any pair is visible.
template <class T>
HWY_INLINE bool load_bias(const Work<T>& w, std::int64_t first, std::int64_t count) {
  bool visible = false;
  for (std::int64_t row = 0; row < w.unit.rows; ++row) {
    const std::int64_t offset = mask_offset(w.p, w.unit.sequence, w.head(row), w.query(row), first);
    float* bias = w.bias + row * kKeyTile;
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t at = offset + j * w.p.mask_strides.key;
      if (w.p.mask == MaskKind::boolean) {
        bias[j] = static_cast<const std::uint8_t*>(w.t.mask)[at] != 0 ? 0.0F : -kInfinity;
      } else {
        bias[j] = kLog2e * load(w.p.mask_dtype, w.t.mask, at);
      }
      visible |= bias[j] != -kInfinity;
    }
  }
  return visible;
}

/// Turns a row's scores into weights, updates m and l, and returns what o must be multiplied by.
template <class T>
HWY_INLINE float softmax_row(const Work<T>& w, std::int64_t row, std::int64_t first, std::int64_t count) {
  const Floats d;
  const std::int64_t lanes = lane_count();
  const KeyRange seen = w.visible(row);
  const Vec begin =
      hn::Set(d, static_cast<float>(std::clamp<std::int64_t>(seen.begin - first, -1, kKeyTile)));
  const Vec end = hn::Set(d, static_cast<float>(std::clamp<std::int64_t>(seen.end - first, -1, count)));
  const Vec cap = hn::Set(d, w.p.softcap * kLog2e);
  const std::int64_t slope_at = w.unit.sequence.batch * w.p.alibi_batch_stride + w.head(row);
  const Vec slope = hn::Set(d, w.p.alibi ? kLog2e * w.t.alibi_slopes[slope_at] : 0.0F);
  const Vec diagonal = hn::Set(d, static_cast<float>(w.query(row) + w.unit.sequence.diagonal - first));
  const Vec hidden = hn::Set(d, -kInfinity);
  float* scores = w.scores + row * kKeyTile;

  Vec max = hidden;
  for (std::int64_t j = 0; j < count; j += lanes) {
    const Vec key = hn::Iota(d, static_cast<float>(j));
    Vec s = hn::LoadU(d, scores + j);
    if (w.p.softcap > 0) s = hn::Mul(cap, hn::Tanh(d, s));
    if (w.p.alibi) s = hn::NegMulAdd(slope, hn::Abs(hn::Sub(diagonal, key)), s);
    auto visible = hn::And(hn::Le(begin, key), hn::Lt(key, end));
    if (w.p.mask != MaskKind::none) {
      const Vec bias = hn::LoadU(d, w.bias + row * kKeyTile + j);
      s = hn::Add(s, bias);
      visible = hn::AndNot(hn::Eq(bias, hidden), visible);
    }
    s = hn::IfThenElse(visible, s, hidden);
    max = hn::Max(max, s);
    hn::StoreU(s, d, scores + j);
  }
  const float old_m = w.state.m[row];
  const float m = std::max(old_m, hn::GetLane(hn::MaxOfLanes(d, max)));
  const float reference = m == -kInfinity ? 0 : m;
  Vec sum = hn::Zero(d);
  for (std::int64_t j = 0; j < count; j += lanes) {
    const Vec weight = vector_exp2(d, hn::Sub(hn::LoadU(d, scores + j), hn::Set(d, reference)));
    sum = hn::Add(sum, weight);
    hn::StoreU(weight, d, scores + j);
  }
  const float alpha = std::exp2(old_m - reference);
  w.state.m[row] = m;
  w.state.l[row] = w.state.l[row] * alpha + hn::GetLane(hn::SumOfLanes(d, sum));
  return alpha;
}

template <class T>
HWY_INLINE void attend_typed(const Work<T>& w) {
  const float scale = w.p.effective_scale() * (w.p.softcap > 0 ? 1 / w.p.softcap : kLog2e);
  std::fill_n(w.q, w.sizes.rows * w.sizes.dim_qk, 0.0F);
  for (std::int64_t row = 0; row < w.unit.rows; ++row) {
    const T* from =
        static_cast<const T*>(w.t.q) + query_offset(w.p, w.p.q, w.unit.sequence, w.head(row), w.query(row));
    convert_row(from, w.p.dim_qk, scale, w.q + row * w.sizes.dim_qk);
  }
  std::fill_n(w.state.m, w.sizes.rows, -kInfinity);
  std::fill_n(w.state.l, w.sizes.rows, 0.0F);
  std::fill_n(w.state.o, w.sizes.rows * w.sizes.dim_v, 0.0F);

  // Limits only grow from row to row, so the outer rows bound them all.
  const std::int64_t begin = w.visible(0).begin;
  const std::int64_t end = w.visible(w.unit.rows - 1).end;
  // Lists the rows of a tile; behind the last one it stands in itself, so that any place in the list may be
  // read.
  const auto list = [&](const void* tensor, const Strides& strides, std::int64_t first, const T** rows) {
    const std::int64_t count = std::min(kKeyTile, end - first);
    for (std::int64_t j = 0; j < kKeyTile; ++j) {
      const std::int64_t key = first + std::min(j, count - 1);
      rows[j] =
          static_cast<const T*>(tensor) + key_offset(w.p, w.t, strides, w.unit.sequence, w.unit.head_kv, key);
    }
  };
  const T** const next_keys = w.rows + 2 * kKeyTile;
  if (begin < end) list(w.t.k, w.p.k, begin, next_keys);
  for (std::int64_t first = begin; first < end; first += kKeyTile) {
    const std::int64_t count = std::min(kKeyTile, end - first);
    std::copy_n(next_keys, kKeyTile, w.rows);
    if (first + kKeyTile < end) list(w.t.k, w.p.k, first + kKeyTile, next_keys);
    if (w.p.mask != MaskKind::none && !load_bias(w, first, count)) continue;
    list(w.t.v, w.p.v, first, w.rows + kKeyTile);
    std::int64_t row = 0;
    for (; row + 2 < w.unit.rows; row += 4) attend_rows<4>(w, row, first, count);
    for (; row + 1 < w.unit.rows; row += 2) attend_rows<2>(w, row, first, count);
    for (; row < w.unit.rows; ++row) attend_rows<1>(w, row, first, count);
  }
}

template <class T>
HWY_INLINE void finish_typed(const Unit& unit, const Sizes& sizes, const State& state) {
  const Problem& p = *unit.problem;
  const Tensors& t = *unit.tensors;
  for (std::int64_t row = 0; row < unit.rows; ++row) {
    const std::int64_t query = row / p.group();
    const std::int64_t head = unit.head_kv * p.group() + row % p.group();
    const float weight = finish_row(p, t, unit.sequence, head, query, state.m[row], state.l[row]);
    T* to = static_cast<T*>(t.o) + query_offset(p, p.o, unit.sequence, head, query);
    store_row(state.o + row * sizes.dim_v, p.dim_v, weight, to);
  }
}

void attend_unit(const Unit& unit, const Sizes& sizes, float* scratch, const State& state) {
  with_dtype(unit.problem->dtype,
             [&](auto zero) HWY_ATTR { attend_typed(Work<decltype(zero)>(unit, sizes, scratch, state)); });
}

void finish_unit(const Unit& unit, const Sizes& sizes, const State& state) {
  with_dtype(unit.problem->dtype,
             [&](auto zero) HWY_ATTR { finish_typed<decltype(zero)>(unit, sizes, state); });
}

std::int64_t vector_lanes() {
  return lane_count();
}

}  // namespace
}  // namespace saccade::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace saccade {
namespace {
HWY_EXPORT(attend_unit);
HWY_EXPORT(finish_unit);
HWY_EXPORT(vector_lanes);
}  // namespace

namespace decode {

Sizes::Sizes(const Problem& p, std::int64_t prefetch_bytes) {
  const std::int64_t lanes = HWY_DYNAMIC_DISPATCH(vector_lanes)();
  const auto pad = [](std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; };
  constexpr std::int64_t kCacheLine = 16;  // floats; keeps what follows each array aligned
  rows = pad(p.group() * p.len_q, 4);
  dim_qk = pad(p.dim_qk, lanes);
  dim_v = pad(p.dim_v, lanes);
  state = pad(rows * (dim_v + 2), kCacheLine);
  row_length = std::max(p.dim_qk, p.dim_v);
  const std::int64_t row_bytes = std::max<std::int64_t>(row_length * size_of(p.dtype), 1);
  rows_ahead = std::min(pad(prefetch_bytes, row_bytes) / row_bytes, kKeyTile);
  constexpr std::int64_t kPointerFloats = sizeof(void*) / sizeof(float);
  scratch = pad(rows * dim_qk + 2 * rows * kKeyTile + 3 * kKeyTile * kPointerFloats, kCacheLine);
}

State state_at(const Sizes& sizes, float* memory) {
  return {memory, memory + sizes.rows, memory + 2 * sizes.rows};
}

void attend(const Unit& unit, const Sizes& sizes, float* scratch, const State& state) {
  HWY_DYNAMIC_DISPATCH(attend_unit)(unit, sizes, scratch, state);
}

void finish(const Unit& unit, const Sizes& sizes, const State& state) {
  HWY_DYNAMIC_DISPATCH(finish_unit)(unit, sizes, state);
}

void merge(const Unit& unit, const Sizes& sizes, const State& part, const State& state) {
  for (std::int64_t row = 0; row < unit.rows; ++row) {
    const float m = std::max(state.m[row], part.m[row]);
    const float reference = m == -std::numeric_limits<float>::infinity() ? 0 : m;
    const float keep = std::exp2(state.m[row] - reference);
    const float take = std::exp2(part.m[row] - reference);
    state.m[row] = m;
    state.l[row] = state.l[row] * keep + part.l[row] * take;
    float* o = state.o + row * sizes.dim_v;
    const float* add = part.o + row * sizes.dim_v;
    for (std::int64_t c = 0; c < sizes.dim_v; ++c) o[c] = o[c] * keep + add[c] * take;
  }
}

}  // namespace decode
}  // namespace saccade
#endif  // HWY_ONCE
