// The decode kernel's two products: rows of queries with keys, and of weights with values. Compiled once for
// each instruction set, like simd_math-inl.h.
#if defined(SACCADE_CPU_DECODE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SACCADE_CPU_DECODE_PRODUCTS_INL_H_
#undef SACCADE_CPU_DECODE_PRODUCTS_INL_H_
#else
#define SACCADE_CPU_DECODE_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <hwy/highway.h>

#include "cpu/decode_simd.h"
#include "cpu/decode_vectors-inl.h"
#include "cpu/decode_work-inl.h"
#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace saccade::HWY_NAMESPACE {

/// Values that all columns are accumulated for before the next ones are touched: few enough that arithmetic
/// on these overlaps with waiting for the next. Four rows take their columns in several passes, during which
/// a Zen 5 that reads far ahead would wait for memory if it were 16 (f32: 77 to 80% of the ceiling).
template <int kRows, Loads kLoads>
constexpr std::int64_t kValueGroup = (kLoads == Loads::rows) && (kRows == 4) ? 8 : 16;

/// Whether rows of keys and values are asked for early, as whole rows. With four query rows a core is too
/// busy to run far ahead of its reads by itself; with fewer, asking only costs an Intel.
template <Loads kLoads, int kRows>
constexpr bool kFetches = kLoads == Loads::rows || (kLoads == Loads::plain && kRows == 4);

/// How many places of the lists before their turn.
template <int kRows, Loads kLoads, class T>
HWY_INLINE std::int64_t rows_ahead(std::int64_t dim) {
  if constexpr (kLoads != Loads::rows) return 8;
  // Of each stream, where memory gives 75 GB/s: 2 KB for one row 70 instead of 83% of that, and for four
  // rows, which keep more in the first level themselves, 4 KB 74 instead of 79% (f32).
  constexpr std::int64_t kBytes = kRows == 4 ? 3072 : 4096;
  const std::int64_t rows = kBytes / std::max<std::int64_t>(dim * static_cast<std::int64_t>(sizeof(T)), 1);
  return std::clamp(kStreams<kLoads> * rows, kStreams<kLoads>, decode::kMostAhead);
}

/// Asks for the row at `place` of keys, values and the next tile's keys, which lie one behind the other.
template <Loads kLoads, class T>
HWY_INLINE void fetch_place(const Work<T>& w, std::int64_t place) {
  if constexpr (kLoads == Loads::rows) {
    fetch_row(w.keys[place], place / decode::kMostKeys == 1 ? w.p.dim_v : w.p.dim_qk);
  } else if (place % decode::kMostKeys < w.tile) {
    fetch_row(w.keys[place], place < decode::kMostKeys ? w.p.dim_qk : w.p.dim_v);
  }
}

// Vectors of V columns that one pass accumulates for each row: what the registers hold.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
constexpr int kAccumulators = 16;
#else
constexpr int kAccumulators = 8;
#endif

/// Scores of kRows rows against four keys from j on.
template <int kRows, Loads kLoads, class T>
HWY_INLINE void dots(const Work<T>& w, std::int64_t row, std::int64_t j) {
  // One after the other where they lie in one stream.
  constexpr int kTogether = kLoads == Loads::halves ? 1 : 4;
  const Floats d;
  const std::int64_t lanes = lane_count();
  const std::int64_t dim = w.p.dim_qk;
  const float* HWY_RESTRICT q = w.q + row * w.sizes.dim_qk;
  const LoadsOnce<kLoads> once(dim);
  Vec acc[kRows][4];
  for (auto& of_row : acc) {
    for (Vec& a : of_row) a = hn::Zero(d);
  }
  for (int first = 0; first < 4; first += kTogether) {
    const T* const* keys = w.keys + j + first;
    const auto step = [&](std::int64_t n, const Vec(&key)[kTogether]) HWY_ATTR {
      for (int r = 0; r < kRows; ++r) {
        const Vec x = once.load(q + r * w.sizes.dim_qk + n);
        for (int k = 0; k < kTogether; ++k) acc[r][first + k] = hn::MulAdd(x, key[k], acc[r][first + k]);
      }
    };
    std::int64_t n = 0;
    for (; n + 2 * lanes <= dim; n += 2 * lanes) {
      Vec even[kTogether], odd[kTogether];
      for (int k = 0; k < kTogether; ++k) load_pair<kLoads>(keys[k] + n, even[k], odd[k]);
      step(n, even);
      step(n + lanes, odd);
    }
    if (n + lanes <= dim) {
      Vec key[kTogether];
      for (int k = 0; k < kTogether; ++k) key[k] = load_as_float(d, keys[k] + n);
      step(n, key);
      n += lanes;
    }
    if (n < dim) {
      Vec key[kTogether];
      for (int k = 0; k < kTogether; ++k) key[k] = load_tail(keys[k] + n, dim - n);
      step(n, key);
    }
  }
  for (int r = 0; r < kRows; ++r) store_sums(acc[r], w.scores + (row + r) * kTileKeys<kLoads> + j);
}

/// o = alpha * o + weights * V for kRows rows, kVectors vectors of columns from c on.
template <int kRows, int kVectors, Loads kLoads, class T>
HWY_INLINE void accumulate(const Work<T>& w, std::int64_t row, std::int64_t c, std::int64_t begin,
                           std::int64_t end, const float* alpha) {
  const Floats d;
  const std::int64_t lanes = lane_count();
  const bool whole = c + kVectors * lanes <= w.p.dim_v;
  Vec acc[kRows][kVectors];
  for (auto& of_row : acc) {
    for (Vec& a : of_row) a = hn::Zero(d);
  }
  const std::int64_t ahead = rows_ahead<kRows, kLoads, T>(w.p.dim_v);
  const float* HWY_RESTRICT weights = w.weights + row * kTileKeys<kLoads>;
  for (std::int64_t j = begin; j < end; ++j) {
    if (kFetches<kLoads, kRows> && row == 0 && c == 0) fetch_place<kLoads>(w, kMostKeys + j + ahead);
    const T* value = w.values[j] + c;
    // Columns that wait for the next pass, so that rows still come one after the other (f32: 5%).
    if (kLoads == Loads::rows && row == 0 && c == 0 && kVectors * lanes < w.p.dim_v)
      fetch_row(value + kVectors * lanes, w.p.dim_v - kVectors * lanes);
    Vec v[kVectors];
    if constexpr (kVectors == 1) {
      v[0] = whole ? load_as_float(d, value) : load_tail(value, w.p.dim_v - c);
    } else {
      for (int i = 0; i < kVectors; i += 2) load_pair<kLoads>(value + i * lanes, v[i], v[i + 1]);
    }
    for (int r = 0; r < kRows; ++r) {
      const Vec weight = hn::Set(d, weights[r * kTileKeys<kLoads> + j]);
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

template <int kRows, int kVectors, Loads kLoads, class T>
HWY_INLINE void accumulate_columns(const Work<T>& w, std::int64_t row, std::int64_t c, std::int64_t begin,
                                   std::int64_t end, const float* alpha) {
  const std::int64_t width = kVectors * lane_count();
  for (; c + width <= w.p.dim_v; c += width)
    accumulate<kRows, kVectors, kLoads>(w, row, c, begin, end, alpha);
  if constexpr (kVectors > 1) {
    accumulate_columns<kRows, kVectors / 2, kLoads>(w, row, c, begin, end, alpha);
  } else {
    if (c < w.p.dim_v) accumulate<kRows, 1, kLoads>(w, row, c, begin, end, alpha);
  }
}

}  // namespace saccade::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SACCADE_CPU_DECODE_PRODUCTS_INL_H_
