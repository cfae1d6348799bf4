// Conversions, against the definition of the formats: slow arithmetic on doubles, which hold every half,
// bfloat16 and the midpoints between neighbours exactly.
#include "core/dtypes.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

namespace saccade {
namespace {

struct Format {
  int exponent_bits;
  int mantissa_bits;
};
constexpr Format kHalf{5, 10};
constexpr Format kBrain{8, 7};

/// The value of a bit pattern by IEEE 754's definition.
double decode(Format format, std::uint16_t bits) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int exponent = bits >> format.mantissa_bits & ((1 << format.exponent_bits) - 1);
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const double sign = bits >> 15 != 0 ? -1 : 1;
  if (exponent == (1 << format.exponent_bits) - 1) {
    return mantissa == 0 ? sign * INFINITY : std::nan("");
  }
  const double fraction = std::ldexp(mantissa, -format.mantissa_bits);
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1 + fraction, exponent - bias);
}

/// The nearest pattern, ties to even, found by bisection over the ordered non-negative patterns.
std::uint16_t nearest(Format format, float x) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const double magnitude = std::abs(double{x});
  const int infinity = ((1 << format.exponent_bits) - 1) << format.mantissa_bits;
  int below = 0;
  int above = infinity;
  while (above - below > 1) {
    const int middle = (below + above) / 2;
    (decode(format, static_cast<std::uint16_t>(middle)) <= magnitude ? below : above) = middle;
  }
  // Infinity rounds as the next number after the largest would.
  const double low = decode(format, static_cast<std::uint16_t>(below));
  const double step = low - decode(format, static_cast<std::uint16_t>(below - 1));
  const double high = above == infinity ? low + step : decode(format, static_cast<std::uint16_t>(above));
  const double middle = (low + high) / 2;
  const bool up = magnitude > middle || (magnitude == middle && below % 2 == 1);
  return static_cast<std::uint16_t>(sign | (up ? above : below));
}

template <class T>
struct FormatOf;
template <>
struct FormatOf<F16> {
  static constexpr Format kFormat = kHalf;
};
template <>
struct FormatOf<BF16> {
  static constexpr Format kFormat = kBrain;
};

template <class T>
class SixteenBits : public testing::Test {
 public:
  static constexpr Format kFormat = FormatOf<T>::kFormat;
};
using SixteenBitTypes = testing::Types<F16, BF16>;
TYPED_TEST_SUITE(SixteenBits, SixteenBitTypes);

TYPED_TEST(SixteenBits, EveryPatternWidensToItsValueAndRoundsBack) {
  for (int bits = 0; bits < 65536; ++bits) {
    const TypeParam stored{static_cast<std::uint16_t>(bits)};
    const float wide = to_float(stored);
    const double expected = decode(this->kFormat, stored.bits);
    const TypeParam back = from_float<TypeParam>(wide);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      ASSERT_TRUE(std::isnan(to_float(back))) << bits;
      ASSERT_EQ(back.bits >> 15, bits >> 15) << bits;
    } else {
      ASSERT_EQ(double{wide}, expected) << bits;
      ASSERT_EQ(std::signbit(wide), bits >> 15 != 0) << bits;
      ASSERT_EQ(back.bits, bits);
    }
  }
}

TYPED_TEST(SixteenBits, MidpointsAndTheirNeighboursRoundToNearestEven) {
  for (int bits = 0; bits < 65536; ++bits) {
    const double here = decode(this->kFormat, static_cast<std::uint16_t>(bits));
    const double next = decode(this->kFormat, static_cast<std::uint16_t>((bits + 1) & 0xffff));
    if (!std::isfinite(here) || !std::isfinite(next) || std::signbit(here) != std::signbit(next)) continue;
    const auto middle = static_cast<float>((here + next) / 2);
    for (const float x : {std::nextafter(middle, -INFINITY), middle, std::nextafter(middle, INFINITY)}) {
      ASSERT_EQ(from_float<TypeParam>(x).bits, nearest(this->kFormat, x)) << bits << " " << x;
    }
  }
}

TYPED_TEST(SixteenBits, RandomFloatsRoundToNearestEven) {
  std::mt19937 random(7);
  for (int n = 0; n < 500'000; ++n) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(to_float(from_float<TypeParam>(x))));
    } else {
      ASSERT_EQ(from_float<TypeParam>(x).bits, nearest(this->kFormat, x)) << x;
    }
  }
}

TEST(DTypes, TheEdgesOfHalf) {
  EXPECT_EQ(from_float<F16>(65504.0F).bits, 0x7bff);
  EXPECT_EQ(from_float<F16>(65519.996F).bits, 0x7bff);
  EXPECT_EQ(from_float<F16>(65520.0F).bits, 0x7c00);
  EXPECT_EQ(from_float<F16>(-INFINITY).bits, 0xfc00);
  EXPECT_EQ(from_float<F16>(0x1p-24F).bits, 1);
  EXPECT_EQ(from_float<F16>(0x1p-25F).bits, 0) << "a tie goes to even";
  EXPECT_EQ(from_float<F16>(-0x1.8p-25F).bits, 0x8001);
  EXPECT_EQ(from_float<F16>(-0.0F).bits, 0x8000);
}

#ifdef __FLT16_MAX__
TEST(DTypes, HalfAgreesWithTheCompiler) {
  std::mt19937 random(11);
  for (int n = 0; n < 200'000; ++n) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(x)) continue;
    __extension__ const auto theirs = static_cast<_Float16>(x);
    ASSERT_EQ(from_float<F16>(x).bits, std::bit_cast<std::uint16_t>(theirs)) << x;
  }
}
#endif

TEST(DTypes, LoadAndStoreUseTheNamedType) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    alignas(4) std::uint8_t memory[16] = {};
    store(dtype, memory, 2, -1.5F);
    EXPECT_EQ(load(dtype, memory, 2), -1.5F);
    EXPECT_EQ(load(dtype, memory, 1), 0.0F) << "a neighbour was touched";
    EXPECT_EQ(load(dtype, memory, 3), 0.0F) << "a neighbour was touched";
  }
}

TEST(DTypes, SizesAndNames) {
  EXPECT_EQ(size_of(DType::f16), 2U);
  EXPECT_EQ(size_of(DType::bf16), 2U);
  EXPECT_EQ(size_of(DType::f32), 4U);
  EXPECT_EQ(size_of(static_cast<DType>(9)), 0U);
  EXPECT_EQ(to_string(DType::bf16), "bf16");
  EXPECT_EQ(to_string(static_cast<DType>(9)), "unknown");
}

}  // namespace
}  // namespace saccade
