// Arithmetic that is one instruction on the GPU: conversions, packed halves, and the special-function unit.
#pragma once

#include <bit>
#include <cmath>

#include "core/dtypes.h"
#include "cuda/ptx/machine.h"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace saccade::SACCADE_MACHINE::ptx {

#ifdef __CUDACC__
SACCADE_DEVICE float to_float(float x) {
  return x;
}
SACCADE_DEVICE float to_float(F16 x) {
  return __half2float(__ushort_as_half(x.bits));
}
SACCADE_DEVICE float to_float(BF16 x) {
  return __bfloat162float(__ushort_as_bfloat16(x.bits));
}
/// Rounded to nearest even.
template <class T>
SACCADE_DEVICE T from_float(float x) {
  if constexpr (std::is_same_v<T, F16>) {
    return {__half_as_ushort(__float2half_rn(x))};
  } else if constexpr (std::is_same_v<T, BF16>) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  } else {
    return x;
  }
}
/// Two numbers rounded to T in one register, `low` in the lower half.
template <class T>
SACCADE_DEVICE std::uint32_t pack(float low, float high) {
  std::uint32_t packed;
  if constexpr (std::is_same_v<T, F16>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}
/// 2^x to about 2 ulp by the special-function unit; subnormal results are 0, -inf gives 0.
SACCADE_DEVICE float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// log2(x) to about 1e-7 absolute near 1; 0 gives -inf.
SACCADE_DEVICE float fast_log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// 1/x to about 1 ulp.
SACCADE_DEVICE float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// tanh(x), 2^x and log2(x) as accurate as float allows, in several instructions.
SACCADE_DEVICE float accurate_tanh(float x) {
  return tanhf(x);
}
SACCADE_DEVICE float accurate_exp2(float x) {
  return exp2f(x);
}
SACCADE_DEVICE float accurate_log2(float x) {
  return log2f(x);
}
/// a * b + c with one rounding.
SACCADE_DEVICE float fma(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
/// The larger number; NaN only if both are.
SACCADE_DEVICE float larger(float a, float b) {
  return fmaxf(a, b);
}
/// Bits that nobody looks at.
SACCADE_DEVICE std::uint32_t unspecified() {
  std::uint32_t bits;
  asm("" : "=r"(bits));
  return bits;
}
#else
SACCADE_DEVICE float to_float(float x) {
  return x;
}
SACCADE_DEVICE float to_float(F16 x) {
  return saccade::to_float(x);
}
SACCADE_DEVICE float to_float(BF16 x) {
  return saccade::to_float(x);
}
template <class T>
SACCADE_DEVICE T from_float(float x) {
  return saccade::from_float<T>(x);
}
template <class T>
SACCADE_DEVICE std::uint32_t pack(float low, float high) {
  return saccade::from_float<T>(low).bits | std::uint32_t{saccade::from_float<T>(high).bits} << 16;
}
namespace detail {
/// The special-function unit flushes subnormal numbers, in and out.
inline float flush(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x;
}
inline float count_mufu(float x) {
  ++emu::this_thread().block.cluster.counters.mufu;
  return x;
}
}  // namespace detail
SACCADE_DEVICE float fast_exp2(float x) {
  return detail::count_mufu(detail::flush(std::exp2(detail::flush(x))));
}
SACCADE_DEVICE float fast_log2(float x) {
  return detail::count_mufu(std::log2(detail::flush(x)));
}
SACCADE_DEVICE float fast_reciprocal(float x) {
  return detail::count_mufu(detail::flush(1 / detail::flush(x)));
}
SACCADE_DEVICE float accurate_tanh(float x) {
  return std::tanh(x);
}
SACCADE_DEVICE float accurate_exp2(float x) {
  return detail::count_mufu(std::exp2(x));
}
SACCADE_DEVICE float accurate_log2(float x) {
  return detail::count_mufu(std::log2(x));
}
SACCADE_DEVICE float fma(float a, float b, float c) {
  return std::fma(a, b, c);
}
SACCADE_DEVICE float larger(float a, float b) {
  return std::fmax(a, b);
}
SACCADE_DEVICE std::uint32_t unspecified() {
  return 0x7fff7fffU;  // no numbers, in either format: who looks at them sees it
}
#endif

}  // namespace saccade::SACCADE_MACHINE::ptx
