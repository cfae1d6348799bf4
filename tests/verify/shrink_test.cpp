#include <gtest/gtest.h>

#include "verify/fuzz.h"

namespace saccade {
namespace {

TEST(Shrink, FindsTheSmallestSizes) {
  const Problem start = parse_problem("b3 h6/2 lq100 lk200 d64 f16 causal mask alibi sinks lse blhd").value();
  const Problem smallest = shrink(start, [](const Problem& p) { return p.len_kv >= 17 && p.dim_v >= 3; });
  EXPECT_EQ(smallest.len_kv, 17);
  EXPECT_EQ(smallest.dim_v, 3);
  EXPECT_LE(smallest.len_q, 1);
  EXPECT_LE(smallest.batch, 1);
  EXPECT_LE(smallest.heads_q, 1);
  EXPECT_FALSE(smallest.causal || smallest.alibi || smallest.sinks || smallest.lse);
  EXPECT_EQ(smallest.mask, MaskKind::none);
}

TEST(Shrink, KeepsTheFeatureThatMatters) {
  const Problem start =
      parse_problem("b2 h4 lq30 lk60 d32 bf16 window=5,7 br softcap=3 bias paged=16 kvlens lse scale=0.5")
          .value();
  const Problem smallest =
      shrink(start, [](const Problem& p) { return p.window_left == 5 && p.kv_layout == KvLayout::paged; });
  EXPECT_EQ(smallest.window_left, 5);
  EXPECT_EQ(smallest.kv_layout, KvLayout::paged);
  EXPECT_EQ(smallest.window_right, kUnbounded);
  EXPECT_EQ(smallest.mask, MaskKind::none);
  EXPECT_FALSE(smallest.kv_lengths || smallest.lse || smallest.scale.has_value());
  EXPECT_EQ(smallest.softcap, 0);
}

TEST(Shrink, KeepsTheStridesThatMatter) {
  const Problem start = parse_problem("b2 h4 l30 d32 f16 qs=-9000,2000,40 ks=0,1000,32").value();
  const Problem smallest = shrink(start, [](const Problem& p) { return p.q.batch < 0; });
  EXPECT_LT(smallest.q.batch, 0);
  EXPECT_EQ(smallest.k, Problem(smallest).pack().k);
}

TEST(Shrink, OnlyTriesValidProblems) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const Problem start = random_problem(seed);
    const Problem smallest = shrink(start, [&](const Problem& p) {
      EXPECT_TRUE(validate(p).ok()) << to_string(p);
      return true;
    });
    EXPECT_EQ(flops(smallest), 0) << to_string(smallest);
  }
}

TEST(Shrink, ReturnsTheStartWhenNothingSmallerFails) {
  const Problem start = random_problem(3);
  EXPECT_EQ(shrink(start, [&](const Problem& p) { return p == start; }), start);
}

}  // namespace
}  // namespace saccade
