#include "core/heads_as_rows.h"

#include <gtest/gtest.h>

#include "core/sequence.h"

namespace saccade {
namespace {

Problem parsed(const char* text) {
  return parse_problem(text).value();
}

// Row g of key head h is query head h * group + g, in every tensor that has query heads.
TEST(HeadsAsRows, AreTheSameElements) {
  for (const char* text :
       {"b2 h12/3 lq1 lk40 d64 f16 lse mask", "b2 h12/3 lq1 lk40 d64 f16 blhd lse bias=hk",
        "b2 h12/3 lq1 lk40 d64 f16 kvlens causal br softcap=9 lse",
        "b2 h12/3 lq1 lk40 d64 f16 paged=16 causal br", "b2 h8/1 lq1 lk40 d64 f16 window=inf,3 br"}) {
    const Problem p = parsed(text);
    const Problem folded = heads_as_rows(p);
    ASSERT_TRUE(validate(folded).ok()) << text << ": " << validate(folded).message();
    ASSERT_EQ(folded.heads_q, p.heads_kv) << text;
    ASSERT_EQ(folded.len_q, p.group()) << text;
    for (std::int64_t batch = 0; batch < p.batch; ++batch) {
      const Sequence s{.batch = batch, .len_q = 1, .len_kv = p.len_kv};
      for (std::int64_t head = 0; head < p.heads_q; ++head) {
        const std::int64_t key_head = head / p.group();
        const std::int64_t row = head % p.group();
        EXPECT_EQ(query_offset(folded, folded.q, s, key_head, row), query_offset(p, p.q, s, head, 0)) << text;
        EXPECT_EQ(query_offset(folded, folded.o, s, key_head, row), query_offset(p, p.o, s, head, 0)) << text;
        EXPECT_EQ(lse_offset(folded, s, key_head, row), lse_offset(p, s, head, 0)) << text;
        EXPECT_EQ(mask_offset(folded, s, key_head, row, 7), mask_offset(p, s, head, 0, 7)) << text;
      }
    }
    const Sequence whole{.len_q = folded.len_q, .len_kv = 33, .diagonal = 33 - folded.len_q};
    for (std::int64_t row = 0; row < folded.len_q; ++row) {
      EXPECT_EQ(visible_keys(folded, whole, row).begin, 0) << text;
      EXPECT_EQ(visible_keys(folded, whole, row).end, 33) << text;
    }
  }
}

TEST(HeadsAsRows, LeavesAllOthersAlone) {
  for (const char* text :
       {"h4 lq1 lk40 d64 f16", "h4/2 lq2 lk40 d64 f16", "h4/2 lq1 lk40 d64 f16 causal",
        "h4/2 lq1 lk40 d64 f16 sinks", "h4/2 lq1 lk40 d64 f16 alibi", "h4/2 lq1 lk40 d64 f16 window=5,0 br",
        "h4/2 lq1 lk40 d64 f16 window=inf,3", "b2 h4/2 lq1 lk40 d64 f16 varlen", "h4/2 lq0 lk40 d64 f16"}) {
    EXPECT_EQ(heads_as_rows(parsed(text)), parsed(text)) << text;
  }
}

}  // namespace
}  // namespace saccade
