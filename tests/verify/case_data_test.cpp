#include "verify/case_data.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <set>

#include "core/dtypes.h"
#include "core/validate.h"
#include "verify/crash_note.h"
#include "verify/random.h"

namespace saccade {
namespace {

Problem shape(std::string_view text) {
  return parse_problem(text).value();
}

TEST(Random, NormalHasTheMomentsOfN01) {
  constexpr int kCount = 200'000;
  double sums[5] = {};
  for (int i = 0; i < kCount; ++i) {
    const double x = normal(5, static_cast<std::uint64_t>(i));
    for (int power = 1; power <= 4; ++power) sums[power] += std::pow(x, power) / kCount;
  }
  EXPECT_NEAR(sums[1], 0, 0.01);
  EXPECT_NEAR(sums[2], 1, 0.01);
  EXPECT_NEAR(sums[3], 0, 0.03);
  EXPECT_NEAR(sums[4], 3, 0.1);
}

TEST(Random, NormalIsTheSameOnEveryMachine) {
  EXPECT_EQ(normal(1, 0), -0x1.5c216ap-1F);
  EXPECT_EQ(normal(1, 1), 0x1.5cabd4p-1F);
  EXPECT_EQ(normal(2, 0), 0x1.4629c2p+1F);
}

TEST(GuardedBuffer, ReadingPastTheEndFaults) {
  for (const std::size_t bytes : {0U, 2U, 4096U, 5000U}) {
    const GuardedBuffer buffer(bytes, 2, PastEnd::fault);
    const volatile std::byte* data = buffer.bytes().data();
    EXPECT_DEATH(static_cast<void>(data[bytes]), "");
  }
}

TEST(GuardedBuffer, BandIsReadableAndNan) {
  const GuardedBuffer buffer(6, 2, PastEnd::band);
  ASSERT_EQ(buffer.bytes().size(), 6U);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    EXPECT_TRUE(std::isnan(load(dtype, buffer.bytes().data(), 3)));
    EXPECT_TRUE(std::isnan(load(dtype, buffer.bytes().data(), -1)));
  }
  const GuardedBuffer floats(8, 4, PastEnd::band);
  EXPECT_TRUE(std::isnan(load(DType::f32, floats.bytes().data(), 2)));
}

TEST(GuardedBuffer, NoticesWritesOnBothSides) {
  for (const std::ptrdiff_t offset : {-4096, -1, 10, 4096}) {
    const GuardedBuffer buffer(10, 2, PastEnd::band);
    EXPECT_TRUE(buffer.bands_intact());
    buffer.bytes().data()[offset] ^= std::byte{1};
    EXPECT_FALSE(buffer.bands_intact()) << offset;
  }
}

TEST(CrashNote, IsPrintedWhenTheProcessDies) {
  const GuardedBuffer buffer(2, 2, PastEnd::fault);
  const volatile std::byte* data = buffer.bytes().data();
  EXPECT_DEATH(
      {
        const CrashNote outer("outer");
        const CrashNote inner("crashed in: this test\n");
        static_cast<void>(data[2]);
      },
      "crashed in: this test");
}

TEST(CaseData, DependsOnSeedAndProblemOnly) {
  const Problem p = shape("b2 h2 l9 d8 f16");
  const CaseData a(p, 3);
  const CaseData b(p, 3, PastEnd::band);
  const CaseData other(p, 4);
  const std::size_t bytes = 2 * 2 * 9 * 8 * 2;
  EXPECT_EQ(std::memcmp(a.tensors().q, b.tensors().q, bytes), 0);
  EXPECT_NE(std::memcmp(a.tensors().q, other.tensors().q, bytes), 0);
  EXPECT_NE(std::memcmp(a.tensors().q, a.tensors().k, bytes), 0);
  EXPECT_NE(std::memcmp(a.tensors().k, a.tensors().v, bytes), 0);
}

TEST(CaseData, GapsAndUnusedRowsAreNan) {
  const Problem p = shape("b2 h2 lq3 lk6 d4 f32 kvlens ks=100,50,6 qs=-40,-20,-6");
  const CaseData data(p, 1);
  const auto* k = static_cast<const float*>(data.tensors().k);
  const auto* q = static_cast<const float*>(data.tensors().q);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t j = 0; j < 6; ++j) {
        const bool used = j < data.tensors().kv_lengths[b];
        for (std::int64_t d = 0; d < 4; ++d) EXPECT_EQ(std::isnan(k[b * 100 + h * 50 + j * 6 + d]), !used);
        if (j < 5) {
          EXPECT_TRUE(std::isnan(k[b * 100 + h * 50 + j * 6 + 4]));
        }
      }
      for (std::int64_t i = 0; i < 3; ++i) {
        EXPECT_FALSE(std::isnan(q[-b * 40 - h * 20 - i * 6]));
      }
    }
  }
}

TEST(CaseData, IndicesAreLegalAndReachTheEdges) {
  bool saw_empty = false, saw_longest = false, saw_unused_rows = false;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Problem p = shape("b4 h1 lq7 lk9 d2 f16 varlen-q=30 varlen-kv=20");
    const CaseData data(p, seed);
    EXPECT_TRUE(validate_indices(p, data.tensors()).ok());
    for (std::int64_t b = 0; b < 4; ++b) {
      const Sequence s = sequence(p, data.tensors(), b);
      saw_empty = saw_empty || s.len_q == 0;
      saw_longest = saw_longest || s.len_q == 7;
    }
    saw_unused_rows = saw_unused_rows || data.tensors().cu_seqlens_q[4] < 30;
  }
  EXPECT_TRUE(saw_empty && saw_longest && saw_unused_rows);
}

TEST(CaseData, PagesAreDistinctAndUnusedEntriesOutOfRange) {
  const Problem p = shape("b3 h1 lq1 lk40 d2 f16 paged=8,20,7 kvlens");
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const CaseData data(p, seed);
    EXPECT_TRUE(validate_indices(p, data.tensors()).ok());
    std::set<std::int32_t> pages;
    for (std::int64_t b = 0; b < 3; ++b) {
      for (std::int64_t n = 0; n < 7; ++n) {
        const std::int32_t entry = data.tensors().block_table[b * 7 + n];
        if (n * 8 < data.tensors().kv_lengths[b]) {
          EXPECT_TRUE(pages.insert(entry).second);
        } else {
          EXPECT_TRUE(entry < 0 || entry >= 20);
        }
      }
    }
  }
}

TEST(CaseData, BooleanMaskLetsAboutSevenTenthsThroughAndHidesRows) {
  const Problem p = shape("b2 h4 l64 d2 f16 mask");
  const CaseData data(p, 1);
  const auto* mask = static_cast<const std::uint8_t*>(data.tensors().mask);
  std::int64_t seen = 0, hidden_rows = 0;
  bool other_than_one = false;
  for (std::int64_t row = 0; row < 2 * 4 * 64; ++row) {
    std::int64_t in_row = 0;
    for (std::int64_t j = 0; j < 64; ++j) {
      in_row += mask[row * 64 + j] != 0 ? 1 : 0;
      other_than_one = other_than_one || mask[row * 64 + j] > 1;
    }
    seen += in_row;
    hidden_rows += in_row == 0 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(seen) / (2 * 4 * 64 * 64), 0.7 * 0.95, 0.04);
  EXPECT_GT(hidden_rows, 0);
  EXPECT_TRUE(other_than_one);
}

TEST(CaseData, AdditiveMaskHasNumbersAndMinusInfinity) {
  const Problem p = shape("b1 h2 l32 d2 f16 bias32");
  const CaseData data(p, 1);
  const auto* bias = static_cast<const float*>(data.tensors().mask);
  std::int64_t hidden = 0;
  for (std::int64_t n = 0; n < 2 * 32 * 32; ++n) {
    if (bias[n] == -std::numeric_limits<float>::infinity()) {
      ++hidden;
    } else {
      EXPECT_LT(std::abs(bias[n]), 8);
    }
  }
  EXPECT_GT(hidden, 100);
  EXPECT_LT(hidden, 600);
}

TEST(CaseData, EveryEighthSeedHasANan) {
  const Problem p = shape("b1 h1 l4 d4 f32");
  std::set<int> tensors;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const CaseData data(p, seed);
    const void* all[] = {data.tensors().q, data.tensors().k, data.tensors().v};
    int nans = 0;
    for (int tensor = 0; tensor < 3; ++tensor) {
      for (std::int64_t n = 0; n < 16; ++n) {
        if (!std::isnan(load(DType::f32, all[tensor], n))) continue;
        ++nans;
        tensors.insert(tensor);
      }
    }
    EXPECT_EQ(nans, seed % CaseData::kNanEvery == 0 ? 1 : 0) << seed;
    EXPECT_EQ(data.has_nan(), nans == 1);
  }
  EXPECT_EQ(tensors.size(), 3U);
}

TEST(CaseData, DamageNamesWhatChanged) {
  const Problem p = shape("b1 h2 l8 d4 f16 lse mask sinks os=100,50,6");
  const auto damaged = [&](const auto& damage) {
    const CaseData data(p, 1, PastEnd::band);
    EXPECT_EQ(data.damage(), "");
    damage(data.tensors());
    return data.damage();
  };
  EXPECT_NE(damaged([](const Tensors& t) {
              static_cast<std::uint16_t*>(const_cast<void*>(t.q))[3] ^= 1;
            }).find("input q"),
            std::string::npos);
  EXPECT_NE(damaged([](const Tensors& t) { const_cast<float*>(t.sinks)[-1] = 0; }).find("input sinks"),
            std::string::npos);
  EXPECT_NE(damaged([](const Tensors& t) { static_cast<std::uint16_t*>(t.o)[-1] = 0; }).find("after o"),
            std::string::npos);
  EXPECT_NE(damaged([](const Tensors& t) { t.lse[16] = 0; }).find("after lse"), std::string::npos);
  EXPECT_NE(
      damaged([](const Tensors& t) { static_cast<std::uint16_t*>(t.o)[4] = 0; }).find("gap at element 4"),
      std::string::npos);
  EXPECT_EQ(damaged([](const Tensors& t) { static_cast<std::uint16_t*>(t.o)[3] = 0; }), "");
}

TEST(CaseData, PoisonIsRecognisedInEveryDtype) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    Problem p = Problem::dense(1, 1, 2, 3, dtype);
    p.lse = true;
    const CaseData data(p, 1);
    for (std::int64_t n = 0; n < 6; ++n) {
      EXPECT_TRUE(data.poisoned_o(n));
      EXPECT_TRUE(std::isnan(load(dtype, data.tensors().o, n)));
    }
    EXPECT_TRUE(data.poisoned_lse(1));
    store(dtype, data.tensors().o, 4, std::numeric_limits<float>::quiet_NaN());
    EXPECT_FALSE(data.poisoned_o(4));
    // A NaN that came from a gap of an input must not pass for poison either.
    store(dtype, data.tensors().o, 5, std::numeric_limits<float>::signaling_NaN());
    EXPECT_FALSE(data.poisoned_o(5));
  }
}

}  // namespace
}  // namespace saccade
