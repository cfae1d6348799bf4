// Vector building blocks shared by the SIMD kernels. Compiled once for each instruction set (Highway's
// convention: no include guard in the usual sense).
#if defined(SACCADE_CPU_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SACCADE_CPU_SIMD_MATH_INL_H_
#undef SACCADE_CPU_SIMD_MATH_INL_H_
#else
#define SACCADE_CPU_SIMD_MATH_INL_H_
#endif

#include <hwy/highway.h>
#include <limits>

#include "core/dtypes.h"

HWY_BEFORE_NAMESPACE();
namespace saccade::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vec = hn::Vec<Floats>;

HWY_INLINE std::int64_t lane_count() {
  return static_cast<std::int64_t>(hn::Lanes(Floats()));
}

constexpr float kLog2e = 1.44269504088896340736F;

/// A bias in base 2. Only -inf hides a key: the lowest finite number, which many use to mask, stays one.
HWY_INLINE float bias_in_base_2(float bias) {
  const float x = kLog2e * bias;
  return x == -std::numeric_limits<float>::infinity() && bias != x ? std::numeric_limits<float>::lowest() : x;
}
constexpr float kLn2 = 0.693147180559945309417F;

/// The polynomial with these coefficients, highest power first.
template <class... Lower>
HWY_INLINE Vec polynomial(Floats d, Vec x, float highest, Lower... lower) {
  Vec p = hn::Set(d, highest);
  ((p = hn::MulAdd(p, x, hn::Set(d, lower))), ...);
  return p;
}

/// 2^x for x <= about 120, to about 0.7 ulp; 0 below -127 (at the latest) and for -inf, NaN for NaN.
HWY_INLINE Vec vector_exp2(Floats d, Vec x) {
#if HWY_TARGET <= HWY_AVX3
  // The hardware splits off f in [0, 1), which is 0 for infinities, and scales by 2 to the whole part.
  const Vec f{_mm512_reduce_ps(x.raw, _MM_FROUND_TO_NEG_INF)};
  // Minimax polynomial of 2^f with p(0) = 1; relative error 2e-9, so rounding decides.
  const Vec p = polynomial(d, f, 2.16129150e-4F, 1.24678464e-3F, 9.67545157e-3F, 5.54852806e-2F,
                           2.40229306e-1F, 6.93147044e-1F, 1.0F);
  // Subnormal numbers would slow down whoever multiplies by them.
  const auto normal = _mm512_cmp_ps_mask(x.raw, _mm512_set1_ps(-126.0F), _CMP_NLT_UQ);
  return Vec{_mm512_maskz_scalef_ps(normal, p.raw, x.raw)};
#else
  // Operand order matters: a NaN in the second operand of Max comes through on every target but the scalar
  // one.
#if HWY_TARGET == HWY_SCALAR
  x = hn::IfThenElse(hn::Lt(x, hn::Set(d, -127.0F)), hn::Set(d, -127.0F), x);
#else
  x = hn::Max(hn::Set(d, -127.0F), x);
#endif
  // Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits; 127 more is the exponent's
  // bias.
  const Vec magic = hn::Set(d, 0x1.8p23F + 127);
  const Vec shifted = hn::Add(x, magic);
  const Vec f = hn::Sub(x, hn::Sub(shifted, magic));  // in [-1/2, 1/2]
  // Minimax polynomial of 2^f with p(0) = 1; relative error 2e-9, so rounding decides.
  const Vec p = polynomial(d, f, 1.5353362e-4F, 1.3398875e-3F, 9.61843692e-3F, 5.55033237e-2F, 2.40226477e-1F,
                           6.93147182e-1F, 1.0F);
  const hn::RebindToSigned<Floats> di;
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
#endif
}

HWY_INLINE Vec load_as_float(Floats d, const float* from) {
  return hn::LoadU(d, from);
}
#if HWY_TARGET == HWY_SCALAR  // Highway's own scalar conversions lose NaN and infinity
HWY_INLINE Vec load_as_float(Floats d, const F16* from) {
  return hn::Set(d, to_float(*from));
}
HWY_INLINE void store_from_float(Floats, Vec x, F16* to) {
  *to = from_float<F16>(hn::GetLane(x));
}
#else
HWY_INLINE Vec load_as_float(Floats d, const F16* from) {
  const hn::Rebind<hwy::float16_t, Floats> half;
  return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from)));
}
HWY_INLINE void store_from_float(Floats, Vec x, F16* to) {
  const hn::Rebind<hwy::float16_t, Floats> half;
  hn::StoreU(hn::DemoteTo(half, x), half, reinterpret_cast<hwy::float16_t*>(to));
}
#endif
HWY_INLINE Vec load_as_float(Floats d, const BF16* from) {
  const hn::Rebind<std::uint16_t, Floats> half;
  const hn::RebindToUnsigned<Floats> du;
  const auto bits = hn::PromoteTo(du, hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(from)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

HWY_INLINE void store_from_float(Floats d, Vec x, float* to) {
  hn::StoreU(x, d, to);
}
HWY_INLINE void store_from_float(Floats, Vec x, BF16* to) {
  const hn::Rebind<std::uint16_t, Floats> half;
  const hn::RebindToUnsigned<Floats> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff))));
  // Rounding could carry a NaN's payload into infinity: keep its top half and make it quiet.
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(x));
  hn::StoreU(hn::TruncateTo(half, hn::IfThenElse(is_nan, quiet, rounded)), half,
             reinterpret_cast<std::uint16_t*>(to));
}

/// to[0, count) = scale * from[0, count), as floats.
template <class T>
HWY_INLINE void convert_row(const T* HWY_RESTRICT from, std::int64_t count, float scale,
                            float* HWY_RESTRICT to) {
  const Floats d;
  const std::int64_t lanes = lane_count();
  const Vec factor = hn::Set(d, scale);
  std::int64_t n = 0;
  for (; n + lanes <= count; n += lanes) hn::StoreU(hn::Mul(factor, load_as_float(d, from + n)), d, to + n);
  for (; n < count; ++n) to[n] = scale * to_float(from[n]);
}

/// to[0, count) = scale * from[0, count), rounded to the storage type.
template <class T>
HWY_INLINE void store_row(const float* HWY_RESTRICT from, std::int64_t count, float scale,
                          T* HWY_RESTRICT to) {
  const Floats d;
  const std::int64_t lanes = lane_count();
  const Vec factor = hn::Set(d, scale);
  std::int64_t n = 0;
  for (; n + lanes <= count; n += lanes) store_from_float(d, hn::Mul(factor, hn::LoadU(d, from + n)), to + n);
  for (; n < count; ++n) to[n] = from_float<T>(scale * from[n]);
}

#if HWY_TARGET <= HWY_AVX3
/// to[c][r] = from[r][c], 16 x 16 numbers of 32 bits. Four words of every fourth row are gathered while they
/// are read, so that half of the shuffles is left.
template <class Word>
HWY_INLINE void transpose_16(const Word* HWY_RESTRICT from, std::int64_t from_stride, Word* HWY_RESTRICT to,
                             std::int64_t to_stride) {
  static_assert(sizeof(Word) == 4);
  for (int c = 0; c < 16; c += 4) {
    const auto lines = [&](int first) HWY_ATTR {
      const auto quarter = [&](int r) HWY_ATTR {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + r * from_stride + c));
      };
      __m512i x = _mm512_castsi128_si512(quarter(first));
      x = _mm512_inserti32x4(x, quarter(first + 4), 1);
      x = _mm512_inserti32x4(x, quarter(first + 8), 2);
      return _mm512_inserti32x4(x, quarter(first + 12), 3);
    };
    const __m512i r0 = lines(0);
    const __m512i r1 = lines(1);
    const __m512i r2 = lines(2);
    const __m512i r3 = lines(3);
    const __m512i low01 = _mm512_unpacklo_epi32(r0, r1);
    const __m512i high01 = _mm512_unpackhi_epi32(r0, r1);
    const __m512i low23 = _mm512_unpacklo_epi32(r2, r3);
    const __m512i high23 = _mm512_unpackhi_epi32(r2, r3);
    Word* column = to + c * to_stride;
    _mm512_storeu_si512(column, _mm512_unpacklo_epi64(low01, low23));
    _mm512_storeu_si512(column + to_stride, _mm512_unpackhi_epi64(low01, low23));
    _mm512_storeu_si512(column + 2 * to_stride, _mm512_unpacklo_epi64(high01, high23));
    _mm512_storeu_si512(column + 3 * to_stride, _mm512_unpackhi_epi64(high01, high23));
  }
}
#endif

/// to[c][r] = from[r][c] for r < rows and c < columns, both multiples of 4 (any on the scalar target).
HWY_INLINE void transpose(const float* HWY_RESTRICT from, std::int64_t from_stride, std::int64_t rows,
                          std::int64_t columns, float* HWY_RESTRICT to, std::int64_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }
#else
#if HWY_TARGET <= HWY_AVX3
  if (rows % 16 == 0 && columns % 16 == 0) {
    for (std::int64_t r = 0; r < rows; r += 16) {
      for (std::int64_t c = 0; c < columns; c += 16) {
        transpose_16(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
      }
    }
    return;
  }
#endif
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> pairs;
  for (std::int64_t r = 0; r < rows; r += 4) {
    for (std::int64_t c = 0; c < columns; c += 4) {
      const float* block = from + r * from_stride + c;
      const auto r0 = hn::LoadU(d, block);
      const auto r1 = hn::LoadU(d, block + from_stride);
      const auto r2 = hn::LoadU(d, block + 2 * from_stride);
      const auto r3 = hn::LoadU(d, block + 3 * from_stride);
      const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
      const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
      const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
      const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
      float* column = to + c * to_stride + r;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, column);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, column + to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, column + 2 * to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, column + 3 * to_stride);
    }
  }
#endif
}

}  // namespace saccade::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SACCADE_CPU_SIMD_MATH_INL_H_
