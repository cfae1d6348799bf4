#include "cpu/decode_pairs.h"

#include <algorithm>
#include <cstring>

// Highway's order: the targets, then this file once for each of them. Only AVX-512 has a body here.
// clang-format off
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX2 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/decode_pairs.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#if HWY_ARCH_X86_64 && (HWY_COMPILER_GCC_ACTUAL >= 1100 || HWY_COMPILER_CLANG >= 1200)
#define SACCADE_HAS_PAIRS 1
#else
#define SACCADE_HAS_PAIRS 0
#endif

#if SACCADE_HAS_PAIRS && HWY_TARGET == HWY_AVX3
// Highway's attributes for AVX-512 and, for everything from here on, the instruction.
#undef HWY_TARGET_STR
#define HWY_TARGET_STR HWY_TARGET_STR_AVX3 ",avx512bf16"
#include "cpu/decode_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace saccade::HWY_NAMESPACE {
namespace {

constexpr Loads kLoads = Loads::ahead;
constexpr std::int64_t kTile = kTileKeys<kLoads>;
constexpr std::int64_t kPairs = 16;  // in a vector
constexpr std::int64_t kNumbers = 2 * kPairs;

HWY_INLINE __m512i load_numbers(const BF16* from) {
  ask_ahead(from, kNumbers);
  return _mm512_loadu_si512(from);
}
/// The `count` (less than a vector) numbers at `from`, with zeros behind them.
HWY_INLINE __m512i load_last(const BF16* from, std::int64_t count) {
  return _mm512_maskz_loadu_epi16((1U << count) - 1, from);
}
HWY_INLINE Vec add_products(Vec sum, __m512i a, __m512i b) {
  return Vec{_mm512_dpbf16_ps(sum.raw, (__m512bh)a, (__m512bh)b)};
}

/// A unit's rows, with the queries as they are.
class PairRows {
 public:
  HWY_INLINE explicit PairRows(const Work<BF16>& w)
      : w_(w),
        scale_(w.scale()),
        queries_(reinterpret_cast<BF16*>(w.q)),
        stride_(2 * w.sizes.dim_qk),
        weights_(reinterpret_cast<std::uint32_t*>(w.spare)) {
    std::memset(w.q, 0, static_cast<std::size_t>(w.sizes.rows * w.sizes.dim_qk) * sizeof(float));
    for (std::int64_t row = 0; row < w.unit.rows; ++row)
      std::copy_n(w.query_row(row), w.p.dim_qk, queries_ + row * stride_);
  }

  /// One tile, `count` keys from `at` on in every stream, for kRows rows.
  template <int kRows>
  HWY_INLINE void attend(std::int64_t row, std::int64_t at, std::int64_t count) const {
    for (std::int64_t j = 0; j < count; j += 4) score<kRows>(row, j);
    float alpha[kRows] = {};
    softmax_rows(w_, row, at, count, alpha);
    round_weights<kRows>(row, count);
    const std::int64_t whole = w_.p.dim_v / kNumbers * kNumbers;
    for (std::int64_t j = 0; j < count; j += kValueGroup<kRows, kLoads>) {
      const std::int64_t end = std::min(j + kValueGroup<kRows, kLoads>, count);
      std::int64_t c = 0;
      // Two rows at a time, so that rows of values come whole: 43.5 of 62 GB/s, and 41.5 by 64 columns of
      // four. Both ask ahead: when only the first did it was 36.
      if constexpr (kRows == 4) {
        for (; c + 4 * kNumbers <= whole; c += 4 * kNumbers) {
          add_values<2, 4>(row, 0, c, j, end, alpha);
          add_values<2, 4>(row, 2, c, j, end, alpha);
        }
      }
      for (; c + 2 * kNumbers <= whole; c += 2 * kNumbers) add_values<kRows, 2>(row, 0, c, j, end, alpha);
      if (c < whole) add_values<kRows, 1>(row, 0, c, j, end, alpha);
      accumulate_columns<kRows, 1, kLoads>(w_, row, whole, j, end, alpha);
      std::fill_n(alpha, kRows, 1.0F);
    }
  }

 private:
  /// Scores of kRows rows against four keys from j on.
  template <int kRows>
  HWY_INLINE void score(std::int64_t row, std::int64_t j) const {
    const Floats d;
    const BF16* HWY_RESTRICT q = queries_ + row * stride_;
    const BF16* const* keys = w_.keys + j;
    Vec acc[kRows][4];
    for (auto& of_row : acc) {
      for (Vec& a : of_row) a = hn::Zero(d);
    }
    const auto step = [&](std::int64_t n, const __m512i(&key)[4]) HWY_ATTR {
      for (int r = 0; r < kRows; ++r) {
        const __m512i x = _mm512_loadu_si512(q + r * stride_ + n);
        for (int k = 0; k < 4; ++k) acc[r][k] = add_products(acc[r][k], x, key[k]);
      }
    };
    const std::int64_t dim = w_.p.dim_qk;
    std::int64_t n = 0;
    __m512i key[4];
    for (; n + kNumbers <= dim; n += kNumbers) {
      for (int k = 0; k < 4; ++k) key[k] = load_numbers(keys[k] + n);
      step(n, key);
    }
    if (n < dim) {
      for (int k = 0; k < 4; ++k) key[k] = load_last(keys[k] + n, dim - n);
      step(n, key);
    }
    const hn::FixedTag<float, 4> four;
    for (int r = 0; r < kRows; ++r) {
      float* scores = w_.scores + (row + r) * kTile + j;
      store_sums(acc[r], scores);
      hn::StoreU(hn::Mul(hn::LoadU(four, scores), hn::Set(four, scale_)), four, scores);
    }
  }

  /// Pairs of weights of neighbouring keys.
  template <int kRows>
  HWY_INLINE void round_weights(std::int64_t row, std::int64_t count) const {
    for (int r = 0; r < kRows; ++r) {
      const float* from = w_.weights + (row + r) * kTile;
      std::uint32_t* to = weights_ + r * kTile / 2;
      for (std::int64_t j = 0; j < count; j += kNumbers) {
        const auto pairs = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + j + kPairs), _mm512_loadu_ps(from + j));
        _mm512_storeu_si512(to + j / 2, (__m512i)pairs);
      }
    }
  }

  /// o = alpha * o + weights * V for kRows rows of an attend(row), from its n-th on, kBlocks times 32 columns
  /// from c on, the even ones of each before the odd ones. Keys come in twos.
  template <int kRows, int kBlocks>
  HWY_INLINE void add_values(std::int64_t row, std::int64_t n, std::int64_t c, std::int64_t begin,
                             std::int64_t end, const float* alpha) const {
    constexpr __mmask32 kUpper = 0xaaaaaaaaU;
    const Floats d;
    Vec acc[kRows][2 * kBlocks];
    for (auto& of_row : acc) {
      for (Vec& a : of_row) a = hn::Zero(d);
    }
    for (std::int64_t j = begin; j < end; j += 2) {
      __m512i pairs[2 * kBlocks];
      for (int b = 0; b < kBlocks; ++b) {
        const __m512i v0 = load_numbers(w_.values[j] + c + b * kNumbers);
        const __m512i v1 = load_numbers(w_.values[j + 1] + c + b * kNumbers);
        pairs[2 * b] = _mm512_mask_blend_epi16(kUpper, v0, _mm512_slli_epi32(v1, 16));
        pairs[2 * b + 1] = _mm512_mask_blend_epi16(kUpper, _mm512_srli_epi32(v0, 16), v1);
      }
      for (int r = 0; r < kRows; ++r) {
        const __m512i both = _mm512_set1_epi32(static_cast<int>(weights_[(n + r) * kTile / 2 + j / 2]));
        for (int i = 0; i < 2 * kBlocks; ++i) acc[r][i] = add_products(acc[r][i], both, pairs[i]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      float* o = w_.state.o + (row + n + r) * w_.sizes.dim_v + c;
      const Vec factor = hn::Set(d, alpha[n + r]);
      for (int i = 0; i < 2 * kBlocks; ++i) {
        hn::StoreU(hn::MulAdd(hn::LoadU(d, o + i * kPairs), factor, acc[r][i]), d, o + i * kPairs);
      }
    }
  }

  const Work<BF16>& w_;
  const float scale_;
  BF16* const queries_;  ///< [row, dim], zeros behind each
  const std::int64_t stride_;
  std::uint32_t* const weights_;  ///< [row, pair of keys of the tile]
};

void attend_unit(const Unit& unit, const Sizes& sizes, float* scratch, const State& state) {
  const Work<BF16> w(unit, sizes, scratch, state, kStreams<kLoads>, kTile);
  const PairRows rows(w);
  start_rows(w);
  attend_tiles<kLoads>(w, [&]<int kRows>(std::int64_t row, std::int64_t at, std::int64_t count)
                              HWY_ATTR { rows.attend<kRows>(row, at, count); });
}

}  // namespace
}  // namespace saccade::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // SACCADE_HAS_PAIRS && HWY_TARGET == HWY_AVX3

#if HWY_ONCE
namespace saccade::decode {
#if SACCADE_HAS_PAIRS

bool has_pairs() {
  return (hwy::SupportedTargets() & HWY_AVX3) != 0 && __builtin_cpu_supports("avx512bf16") != 0;
}
void attend_by_pairs(const Unit& unit, const Sizes& sizes, float* scratch, const State& state) {
  N_AVX3::attend_unit(unit, sizes, scratch, state);
}

#else

bool has_pairs() {
  return false;
}
void attend_by_pairs(const Unit& unit, const Sizes& sizes, float* scratch, const State& state) {
  attend(unit, sizes, scratch, state);
}

#endif
}  // namespace saccade::decode
#endif  // HWY_ONCE
