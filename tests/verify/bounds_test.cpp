#include "verify/bounds.h"

#include <cmath>
#include <gtest/gtest.h>

#include "core/dtypes.h"

namespace saccade {
namespace {

TEST(ErrorBounds, UnitRoundoffIsWhatRoundingDoes) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    const double u = unit_roundoff(dtype);
    const auto rounded = [&](double x) {
      float result = 0;
      with_dtype(dtype,
                 [&](auto zero) { result = to_float(from_float<decltype(zero)>(static_cast<float>(x))); });
      return static_cast<double>(result);
    };
    EXPECT_EQ(rounded(1 + u), 1) << "half an ulp rounds to even";
    EXPECT_EQ(rounded(1 + 2 * u), 1 + 2 * u) << "the next number is representable";
    EXPECT_EQ(rounded(2 * half_subnormal(dtype)), 2 * half_subnormal(dtype)) << "the smallest number";
    EXPECT_EQ(rounded(half_subnormal(dtype)), 0) << "half of it rounds to even";
  }
}

TEST(ErrorBounds, AnEmptyRowHasNoTolerance) {
  EXPECT_EQ(ErrorBounds(Problem::dense(1, 1, 8, 64)).element(0, 0, -INFINITY), 0);
}

TEST(ErrorBounds, ElementBoundIsTheSumOfItsRoundings) {
  const ErrorBounds bounds(Problem::dense(1, 1, 64, 64, DType::bf16));
  const double bound = bounds.element(0.5, 0.8, 5);
  EXPECT_GT(bound, 0x1p-8 * (0.5 + 0.8));
  EXPECT_LT(bound, 0x1p-8 * (0.5 + 0.8) * 1.01) << "f32 arithmetic is far below bf16";
}

TEST(ErrorBounds, F32IsHeldToF32) {
  const ErrorBounds bounds(Problem::dense(1, 1, 512, 64, DType::f32));
  const RowSummary rows{.o_norm = 1, .elements = 1e4, .mean_abs_key_lse = 7, .deviation = 0.01};
  EXPECT_LT(bounds.l2(rows), 5e-6);
  EXPECT_GT(bounds.l2(rows), 0x1p-24);
  EXPECT_LT(bounds.lse(7), 1e-5);
  EXPECT_LT(bounds.plain_floor(rows), bounds.l2(rows));
}

TEST(ErrorBounds, OfHalfPrecisionAreAboutTwoRoundings) {
  const RowSummary rows{.o_norm = 10, .elements = 1e4, .mean_abs_key_lse = 7, .deviation = 0.1};
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const ErrorBounds bounds(Problem::dense(1, 1, 512, 64, dtype));
    const double u = unit_roundoff(dtype);
    EXPECT_NEAR(bounds.l2(rows) / (rows.o_norm * u), 2.1, 0.1);
    EXPECT_LT(bounds.plain_floor(rows), 0.05 * rows.o_norm * u) << "twice the plain error means twice";
  }
}

TEST(ErrorBounds, CopiesOfARowAreAllowedWhatTheRowIs) {
  const RowSummary one{.o_norm = 0.1, .elements = 3, .mean_abs_key_lse = 7, .deviation = 0.1};
  RowSummary many = one;
  many.copies = 49;
  many.o_norm *= 7;
  many.elements *= 49;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    const ErrorBounds bounds(Problem::dense(1, 1, 512, 64, dtype));
    EXPECT_NEAR(bounds.l2(many) / bounds.l2(one), 7, 1e-6);
    EXPECT_NEAR(bounds.plain_floor(many) / bounds.plain_floor(one), 7, 0.01);
  }
}

TEST(ErrorBounds, GrowWithLengthDimAndScores) {
  const auto error = [](std::int64_t len, std::int64_t dim, double lse) {
    return ErrorBounds(Problem::dense(1, 1, len, dim)).typical_weight_error(lse);
  };
  EXPECT_LT(error(64, 64, 0), error(4096, 64, 0));
  EXPECT_LT(error(64, 64, 0), error(64, 512, 0));
  EXPECT_LT(error(64, 64, 0), error(64, 64, -100));
}

}  // namespace
}  // namespace saccade
