#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <set>
#include <vector>

#include <saccade/problem.h>
#include <saccade/saccade.h>

namespace saccade {
namespace {

/// One change to each field, so that none can be forgotten by == or hash.
std::vector<std::function<void(Problem&)>> single_changes() {
  return {
      [](Problem& p) { p.dtype = DType::bf16; },
      [](Problem& p) { p.batch = 3; },
      [](Problem& p) { p.heads_q = 16; },
      [](Problem& p) { p.heads_kv = 4; },
      [](Problem& p) { p.len_q = 11; },
      [](Problem& p) { p.len_kv = 11; },
      [](Problem& p) { p.dim_qk = 32; },
      [](Problem& p) { p.dim_v = 32; },
      [](Problem& p) { p.q.batch += 1; },
      [](Problem& p) { p.q.head += 1; },
      [](Problem& p) { p.k.row += 1; },
      [](Problem& p) { p.v.dim = 2; },
      [](Problem& p) { p.o.batch += 1; },
      [](Problem& p) { p.scale = 0.0F; },
      [](Problem& p) { p.scale = 1.0F; },
      [](Problem& p) { p.softcap = 30; },
      [](Problem& p) { p.causal = true; },
      [](Problem& p) { p.alignment = Alignment::bottom_right; },
      [](Problem& p) { p.window_left = 3; },
      [](Problem& p) { p.window_right = 3; },
      [](Problem& p) { p.mask = MaskKind::boolean; },
      [](Problem& p) { p.mask = MaskKind::additive; },
      [](Problem& p) { p.mask_dtype = DType::f16; },
      [](Problem& p) { p.mask_strides.batch += 1; },
      [](Problem& p) { p.mask_strides.key = 0; },
      [](Problem& p) { p.alibi = true; },
      [](Problem& p) { p.alibi_batch_stride = 8; },
      [](Problem& p) { p.sinks = true; },
      [](Problem& p) { p.lse = true; },
      [](Problem& p) { p.lse_strides.row = 2; },
      [](Problem& p) { p.ragged_q = true; },
      [](Problem& p) { p.total_q = 5; },
      [](Problem& p) { p.kv_layout = KvLayout::ragged; },
      [](Problem& p) { p.kv_layout = KvLayout::paged; },
      [](Problem& p) { p.total_kv = 5; },
      [](Problem& p) { p.kv_lengths = true; },
      [](Problem& p) { p.page_size = 16; },
      [](Problem& p) { p.num_pages = 16; },
      [](Problem& p) { p.pages_per_sequence = 16; },
  };
}

TEST(Problem, EqualityAndHashSeeEveryField) {
  const Problem base = Problem::dense(2, 8, 128, 64);
  std::set<std::size_t> hashes = {hash(base)};
  for (const auto& change : single_changes()) {
    Problem changed = base;
    change(changed);
    EXPECT_NE(changed, base);
    EXPECT_TRUE(hashes.insert(hash(changed)).second) << "change " << hashes.size();
    Problem again = base;
    change(again);
    EXPECT_EQ(again, changed);
    EXPECT_EQ(std::hash<Problem>{}(again), hash(changed));
  }
}

TEST(Problem, BothZerosHashAlike) {
  Problem positive = Problem::dense(1, 1, 1, 1);
  Problem negative = positive;
  positive.scale = 0.0F;
  negative.scale = -0.0F;
  negative.softcap = -0.0F;
  EXPECT_EQ(positive, negative);
  EXPECT_EQ(hash(positive), hash(negative));
}

TEST(Problem, PacksBothOrders) {
  Problem p = Problem::dense(2, 8, 128, 64);
  p.heads_kv = 2;
  p.len_kv = 100;
  p.dim_v = 32;
  p.pack(Order::bhld);
  EXPECT_EQ(p.q, (Strides{8 * 128 * 64, 128 * 64, 64, 1}));
  EXPECT_EQ(p.k, (Strides{2 * 100 * 64, 100 * 64, 64, 1}));
  EXPECT_EQ(p.v, (Strides{2 * 100 * 32, 100 * 32, 32, 1}));
  EXPECT_EQ(p.o, (Strides{8 * 128 * 32, 128 * 32, 32, 1}));
  EXPECT_EQ(p.lse_strides, (LseStrides{8 * 128, 128, 1}));
  EXPECT_EQ(p.mask_strides, (MaskStrides{8 * 128 * 100, 128 * 100, 100, 1}));
  p.pack(Order::blhd);
  EXPECT_EQ(p.q, (Strides{128 * 8 * 64, 64, 8 * 64, 1}));
  EXPECT_EQ(p.v, (Strides{100 * 2 * 32, 32, 2 * 32, 1}));
}

TEST(Problem, TheScaleInForce) {
  Problem p = Problem::dense(1, 1, 1, 16);
  EXPECT_EQ(p.effective_scale(), 0.25F);
  p.dim_qk = 0;
  EXPECT_EQ(p.effective_scale(), 1.0F);
  p.scale = -3.0F;
  EXPECT_EQ(p.effective_scale(), -3.0F);
}

TEST(Problem, FlopsFollowTheHouseConvention) {
  Problem p = Problem::dense(1, 8, 512, 64);
  EXPECT_EQ(flops(p), 4.0 * 8 * 512 * 512 * 64) << "the mission shape: 0.537 GFLOP";
  p.causal = true;
  EXPECT_EQ(flops(p), 2.0 * 8 * 512 * 512 * 64) << "halved when causal and square";
  p.len_kv = 1024;
  EXPECT_EQ(flops(p), 4.0 * 8 * 512 * 1024 * 64) << "not halved when not square";
  p.dim_v = 128;
  EXPECT_EQ(flops(p), 2.0 * 8 * 512 * 1024 * (64 + 128));
  p.batch = 3;
  EXPECT_EQ(flops(p), 3 * 2.0 * 8 * 512 * 1024 * (64 + 128)) << "no division by batch or heads";
  p.window_left = 1;
  EXPECT_EQ(flops(p), 3 * 2.0 * 8 * 512 * 1024 * (64 + 128)) << "windows are not subtracted";
}

TEST(Problem, LeastTraffic) {
  Problem p = Problem::dense(2, 8, 100, 64);
  p.heads_kv = 2;
  EXPECT_EQ(min_bytes(p), 2.0 * 100 * (8 + 2) * (64 + 64) * 2);
  p.lse = true;
  EXPECT_EQ(min_bytes(p), 2.0 * 100 * ((8 + 2) * (64 + 64) * 2 + 8 * 4));
  p.ragged_q = true;
  p.total_q = 150;
  p.kv_layout = KvLayout::ragged;
  p.total_kv = 70;
  EXPECT_EQ(min_bytes(p), (150.0 * 8 + 70.0 * 2) * (64 + 64) * 2 + 150.0 * 8 * 4);
}

TEST(Status, CodesHaveTheNumbersOfTheCInterface) {
  EXPECT_EQ(static_cast<int>(Code::ok), SACCADE_OK);
  EXPECT_EQ(static_cast<int>(Code::internal), SACCADE_INTERNAL);
  EXPECT_STREQ(to_string(Code::workspace_too_small), "workspace_too_small");
  EXPECT_STREQ(to_string(static_cast<Code>(99)), "unknown");
  EXPECT_TRUE(Status().ok());
  EXPECT_FALSE(Status(Code::internal, "x").ok());
}

}  // namespace
}  // namespace saccade
