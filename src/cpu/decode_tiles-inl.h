// The decode kernel's way through the tiles of a unit: scores, the online softmax, weighted values. Compiled
// once for each instruction set, like simd_math-inl.h.
#if defined(SACCADE_CPU_DECODE_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SACCADE_CPU_DECODE_TILES_INL_H_
#undef SACCADE_CPU_DECODE_TILES_INL_H_
#else
#define SACCADE_CPU_DECODE_TILES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "cpu/decode_products-inl.h"
#include "cpu/decode_vectors-inl.h"
#include "cpu/decode_work-inl.h"
#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace saccade::HWY_NAMESPACE {

constexpr std::int64_t kMostStreams = 8;

/// Scores of keys [begin, end) of the tile for kRows rows.
template <int kRows, Loads kLoads, class T>
HWY_INLINE void score(const Work<T>& w, std::int64_t row, std::int64_t begin, std::int64_t end) {
  const std::int64_t ahead = rows_ahead<kRows, kLoads, T>(w.p.dim_qk);
  for (std::int64_t j = begin; j < end; j += 4) {
    if (kFetches<kLoads, kRows> && row == 0) {
      for (std::int64_t k = j; k < j + 4; ++k) fetch_place<kLoads>(w, k + ahead);
    }
    dots<kRows, kLoads>(w, row, j);
  }
}

/// The next group of values, from j on, of the `count` in the tile for kRows rows; o is multiplied by alpha
/// once.
template <int kRows, Loads kLoads, class T>
HWY_INLINE void weigh_group(const Work<T>& w, std::int64_t row, std::int64_t j, std::int64_t count,
                            float* alpha) {
  const std::int64_t end = std::min(j + kValueGroup<kRows, kLoads>, count);
  accumulate_columns<kRows, std::min(8, kAccumulators / kRows), kLoads>(w, row, 0, j, end, alpha);
  std::fill_n(alpha, kRows, 1.0F);
}

/// Applies softcap, ALiBi, mask and limits to a row's scores and returns their maxima, lane by lane.
template <class T>
HWY_INLINE Vec modify_scores(const Work<T>& w, std::int64_t row, const KeyRange& seen, std::int64_t at,
                             std::int64_t count) {
  const Floats d;
  const std::int64_t lanes = lane_count();
  // Keys are counted from the tile's first in their stream; what differs by stream is repeated lane by lane.
  constexpr std::int64_t kPattern = std::max<std::int64_t>(kMostStreams, HWY_MAX_BYTES / sizeof(float));
  HWY_ALIGN float begins[kPattern], ends[kPattern], diagonals[kPattern];
  for (std::int64_t n = 0; n < kPattern; ++n) {
    const std::int64_t stream = n % w.streams.count;
    const std::int64_t first = w.streams.first(stream) + at;
    const std::int64_t end = std::min(seen.end, w.streams.end(stream));
    begins[n] = static_cast<float>(std::clamp<std::int64_t>(seen.begin - first, -1, kMostKeys));
    ends[n] = static_cast<float>(std::clamp<std::int64_t>(end - first, -1, kMostKeys));
    diagonals[n] = static_cast<float>(w.query(row) + w.unit.sequence.diagonal - first);
  }
  const Vec cap = hn::Set(d, w.p.softcap * kLog2e);
  const std::int64_t slope_at = w.unit.sequence.batch * w.p.alibi_batch_stride + w.head(row);
  const Vec slope = hn::Set(d, w.p.alibi ? kLog2e * w.t.alibi_slopes[slope_at] : 0.0F);
  const Vec hidden = hn::Set(d, -kInfinity);
  const float* places = w.streams.places();
  float* scores = w.scores + row * w.tile;
  Vec max = hidden;
  for (std::int64_t j = 0; j < count; j += lanes) {
    const Vec key = hn::Load(d, places + j);
    const std::int64_t n = j % kPattern;
    Vec s = hn::LoadU(d, scores + j);
    if (w.p.softcap > 0) s = hn::Mul(cap, hn::Tanh(d, s));
    if (w.p.alibi) s = hn::NegMulAdd(slope, hn::Abs(hn::Sub(hn::Load(d, diagonals + n), key)), s);
    auto visible = hn::And(hn::Le(hn::Load(d, begins + n), key), hn::Lt(key, hn::Load(d, ends + n)));
    if (w.p.mask != MaskKind::none) {
      const Vec bias = hn::LoadU(d, w.bias + row * w.tile + j);
      s = hn::Add(s, bias);
      visible = hn::AndNot(hn::Eq(bias, hidden), visible);
    }
    s = hn::IfThenElse(visible, s, hidden);
    max = hn::Max(max, s);
    hn::StoreU(s, d, scores + j);
  }
  return max;
}

/// The same for a whole tile of plain scores, of which every one counts.
template <class T>
HWY_INLINE Vec maxima(const Work<T>& w, std::int64_t row) {
  const Floats d;
  const float* scores = w.scores + row * w.tile;
  Vec max = hn::LoadU(d, scores);
  for (std::int64_t j = lane_count(); j < w.tile; j += lane_count())
    max = hn::Max(max, hn::LoadU(d, scores + j));
  return max;
}

/// Turns a row's scores into weights, updates m and l, and returns what o must be multiplied by.
template <class T>
HWY_INLINE float softmax_row(const Work<T>& w, std::int64_t row, std::int64_t at, std::int64_t count) {
  const Floats d;
  const std::int64_t lanes = lane_count();
  const KeyRange seen = w.visible(row);
  const KeyRange& keys = w.streams.keys;
  const bool plain = w.p.softcap == 0 && !w.p.alibi && w.p.mask == MaskKind::none;
  // Streams end in their order, so the last one tells.
  const std::int64_t last = w.streams.count - 1;
  const bool whole = count == w.tile && seen.begin <= keys.begin && seen.end >= keys.end &&
                     w.streams.first(last) + at + w.streams.depth <= w.streams.end(last);
  const Vec max = plain && whole ? maxima(w, row) : modify_scores(w, row, seen, at, count);
  float* scores = w.scores + row * w.tile;
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

/// The same for kRows rows, of which the last ones may be none.
template <int kRows, class T>
HWY_INLINE void softmax_rows(const Work<T>& w, std::int64_t row, std::int64_t at, std::int64_t count,
                             float (&alpha)[kRows]) {
  for (int r = 0; r < kRows && row + r < w.unit.rows; ++r) alpha[r] = softmax_row(w, row + r, at, count);
}

/// One tile, `count` keys from `at` on in every stream, for kRows rows: scores, online softmax, weighted
/// values.
template <int kRows, Loads kLoads, class T>
HWY_INLINE void attend_rows(const Work<T>& w, std::int64_t row, std::int64_t at, std::int64_t count) {
  score<kRows, kLoads>(w, row, 0, count);
  float alpha[kRows] = {};
  softmax_rows(w, row, at, count, alpha);
  for (std::int64_t j = 0; j < count; j += kValueGroup<kRows, kLoads>)
    weigh_group<kRows, kLoads>(w, row, j, count, alpha);
}

/// All tiles, each for all rows by calls of attend.operator()<kRows>(row, at, count).
template <Loads kLoads, class T, class Attend>
HWY_INLINE void attend_tiles(const Work<T>& w, const Attend& attend) {
  constexpr std::int64_t kCount = kStreams<kLoads>;
  constexpr std::int64_t kDepth = kTileKeys<kLoads> / kCount;
  for (std::int64_t at = 0; at < w.streams.length; at += kDepth) {
    const std::int64_t count = std::min(kDepth, w.streams.length - at) * kCount;
    if (w.p.mask != MaskKind::none && !load_bias(w, at, count)) continue;
    list_rows<kCount>(w, w.t.k, w.p.k, at, count, w.tile, w.keys);
    list_rows<kCount>(w, w.t.v, w.p.v, at, count, w.tile, w.values);
    if constexpr (kLoads == Loads::rows) {
      const std::int64_t next = std::min(at + kDepth, w.streams.length - 1);
      const std::int64_t ahead = std::min((w.streams.length - next) * kCount, decode::kMostAhead);
      list_rows<kCount>(w, w.t.k, w.p.k, next, ahead, decode::kMostAhead, w.values + kMostKeys);
    }
    std::int64_t row = 0;
    for (; row + 2 < w.unit.rows; row += 4) attend.template operator()<4>(row, at, count);
    if (row + 1 < w.unit.rows) {
      attend.template operator()<2>(row, at, count);
    } else if (row < w.unit.rows) {
      attend.template operator()<1>(row, at, count);
    }
  }
}

/// An empty softmax.
template <class T>
HWY_INLINE void start_rows(const Work<T>& w) {
  std::fill_n(w.state.m, w.sizes.rows, -kInfinity);
  std::fill_n(w.state.l, w.sizes.rows, 0.0F);
  std::fill_n(w.state.o, w.sizes.rows * w.sizes.dim_v, 0.0F);
}

}  // namespace saccade::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SACCADE_CPU_DECODE_TILES_INL_H_
