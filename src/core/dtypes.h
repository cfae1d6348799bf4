// Scalar conversions between storage types and float, exact or rounded to nearest even.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <saccade/problem.h>

namespace saccade {

/// A half-precision number as stored.
struct F16 {
  std::uint16_t bits = 0;
};

/// A bfloat16 number as stored.
struct BF16 {
  std::uint16_t bits = 0;
};

inline float to_float(float x) {
  return x;
}

inline float to_float(BF16 x) {
  return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
}

inline float to_float(F16 x) {
  const std::uint32_t sign = std::uint32_t{x.bits} >> 15 << 31;
  const std::uint32_t magnitude = x.bits & 0x7fffU;
  if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
  // Rebiasing by a multiplication makes the hardware normalise subnormals.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
}

template <class T>
T from_float(float x);

template <>
inline float from_float<float>(float x) {
  return x;
}

template <>
inline BF16 from_float<BF16>(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return {static_cast<std::uint16_t>(bits >> 16 | 0x40U)};  // keep NaN a (quiet) NaN
  return {static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16)};
}

template <>
inline F16 from_float<F16>(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000U) {
    half = 0x7e00U;
  } else if (magnitude >= 0x477ff000U) {  // 65520 and above round to infinity
    half = 0x7c00U;
  } else if (magnitude >= 0x38800000U) {  // normal halves
    half = (magnitude - 0x38000000U + 0xfffU + (magnitude >> 13 & 1U)) >> 13;
  } else {  // subnormal halves: adding 0.5 lines the float's ulp up with the half's, and the adder rounds
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    half = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U;
  }
  return {static_cast<std::uint16_t>(sign | half)};
}

/// Calls f with a value of the storage type that `dtype` names: f(F16{}), f(BF16{}) or f(float{}).
template <class F>
decltype(auto) with_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f16:
      return f(F16{});
    case DType::bf16:
      return f(BF16{});
    case DType::f32:
      break;
  }
  return f(float{});
}

/// Reads element `index` of an array of `dtype`.
inline float load(DType dtype, const void* data, std::int64_t index) {
  return with_dtype(dtype,
                    [&](auto zero) { return to_float(static_cast<const decltype(zero)*>(data)[index]); });
}

/// Writes element `index` of an array of `dtype`, rounded to nearest even.
inline void store(DType dtype, void* data, std::int64_t index, float value) {
  with_dtype(dtype, [&](auto zero) {
    static_cast<decltype(zero)*>(data)[index] = from_float<decltype(zero)>(value);
  });
}

}  // namespace saccade
