// One row of queries against more keys than a cache holds: keys and values are read in turns of four, so that
// both are on their way all the time. Compiled once for each instruction set, like simd_math-inl.h.
#if defined(SACCADE_CPU_DECODE_TURNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SACCADE_CPU_DECODE_TURNS_INL_H_
#undef SACCADE_CPU_DECODE_TURNS_INL_H_
#else
#define SACCADE_CPU_DECODE_TURNS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <hwy/highway.h>
#include <utility>

#include "cpu/decode_products-inl.h"
#include "cpu/decode_vectors-inl.h"
#include "cpu/decode_work-inl.h"
#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace saccade::HWY_NAMESPACE {

/// Whether one row of it can be read in turns: plain scores, keys at even distances.
HWY_INLINE bool can_take_turns(const Problem& p) {
  return p.softcap == 0 && !p.alibi && p.mask == MaskKind::none && p.kv_layout != KvLayout::paged;
}
/// Whether keys and values are too many to stay in a cache of the second level, where turns are slower than
/// tiles (1x8x512x64 of f32: 22 us and 14).
HWY_INLINE bool leaves_cache(const Problem& p) {
  constexpr std::int64_t kCached = 4 << 20;
  const auto size = static_cast<std::int64_t>(size_of(p.dtype));
  return p.batch * p.heads_kv * p.len_kv * (p.dim_qk + p.dim_v) * size > kCached;
}

/// The softmax of one row, group by group of keys. Scores are at most the base; it moves when one is above.
template <std::int64_t kGroup>
class RunningSoftmax {
 public:
  HWY_INLINE RunningSoftmax() : sum_(hn::Zero(Floats())) {}
  /// Turns a group's scores into weights; returns what earlier weights are worth now.
  HWY_INLINE float weigh(float* scores) {
    const Floats d;
    const std::int64_t lanes = lane_count();
    Vec max = hn::LoadU(d, scores);
    for (std::int64_t n = lanes; n < kGroup; n += lanes) max = hn::Max(max, hn::LoadU(d, scores + n));
    float keep = 1.0F;
    if (!hn::AllFalse(d, hn::Gt(max, hn::Set(d, base_)))) {
      const float higher = hn::GetLane(hn::MaxOfLanes(d, max));
      keep = std::exp2(base_ - higher);
      base_ = higher;
      sum_ = hn::Mul(sum_, hn::Set(d, keep));
    }
    const Vec reference = hn::Set(d, base_ == -kInfinity ? 0.0F : base_);
    for (std::int64_t n = 0; n < kGroup; n += lanes) {
      const Vec weight = vector_exp2(d, hn::Sub(hn::LoadU(d, scores + n), reference));
      sum_ = hn::Add(sum_, weight);
      hn::StoreU(weight, d, scores + n);
    }
    return keep;
  }
  HWY_INLINE void finish(const State& state) const {
    *state.m = base_;
    *state.l = hn::GetLane(hn::SumOfLanes(Floats(), sum_));
  }

 private:
  float base_ = -kInfinity;
  Vec sum_;
};

/// All keys of the unit, which has one row, and can_take_turns().
template <class T>
HWY_INLINE void attend_in_turns(Work<T> w) {
  constexpr Loads kLoads = Loads::turns;
  constexpr std::int64_t kCount = kStreams<kLoads>;
  constexpr std::int64_t kGroup = kTileKeys<kLoads>;
  constexpr std::int64_t kDepth = kGroup / kCount;
  constexpr std::int64_t kAtOnce = 4;
  // Rows are asked for so much before their turn; twice and four times as much is slower in f32.
  constexpr std::int64_t kBytes = sizeof(T) == 4 ? 1024 : 2048;
  const auto bytes_ahead = [](std::int64_t dim, const Strides& strides) {
    const auto size = static_cast<std::int64_t>(sizeof(T));
    const std::int64_t rows = kBytes / std::max(dim * size, size);
    return std::max<std::int64_t>(rows, 1) * strides.row * size;
  };
  const std::int64_t keys_ahead = bytes_ahead(w.p.dim_qk, w.p.k);
  const std::int64_t values_ahead = bytes_ahead(w.p.dim_v, w.p.v);
  // The values of a group are read beside the next one's keys.
  const T** next_values = w.values + kGroup;
  w.weights = w.scores + kGroup;
  RunningSoftmax<kGroup> softmax;
  float alpha = 1.0F;
  bool has_values = false;
  for (std::int64_t at = 0;; at += kDepth) {
    const std::int64_t count = std::min(kDepth, w.streams.length - at) * kCount;
    const bool has_keys = count > 0;
    if (has_keys) {
      list_rows<kCount>(w, w.t.k, w.p.k, at, count, kGroup, w.keys);
      list_rows<kCount>(w, w.t.v, w.p.v, at, count, kGroup, next_values);
    }
    for (std::int64_t j = 0; j < kGroup; j += kAtOnce) {
      if (has_keys) {
        for (std::int64_t n = j; n < j + kAtOnce; ++n) fetch_row(w.keys[n], w.p.dim_qk, keys_ahead);
        dots<1, kLoads>(w, 0, j);
      }
      if (has_values) {
        for (std::int64_t n = j; n < j + kAtOnce; ++n) fetch_row(w.values[n], w.p.dim_v, values_ahead);
        accumulate_columns<1, 8, kLoads>(w, 0, 0, j, j + kAtOnce, &alpha);
        alpha = 1.0F;
      }
    }
    if (!has_keys) break;
    if (at + kDepth >= w.streams.length) {  // places where a stream has ended
      for (std::int64_t n = 0; n < kGroup; ++n) {
        const std::int64_t stream = n % kCount;
        if (w.streams.first(stream) + at + n / kCount >= w.streams.end(stream)) w.scores[n] = -kInfinity;
      }
    }
    alpha = softmax.weigh(w.scores);
    has_values = true;
    std::swap(w.scores, w.weights);
    std::swap(w.values, next_values);
  }
  softmax.finish(w.state);
}

}  // namespace saccade::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SACCADE_CPU_DECODE_TURNS_INL_H_
