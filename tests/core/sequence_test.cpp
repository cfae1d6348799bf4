#include "core/sequence.h"

#include <array>
#include <gtest/gtest.h>

namespace saccade {
namespace {

/// The definition, key by key.
bool visible(const Problem& p, const Sequence& s, std::int64_t i, std::int64_t j) {
  const std::int64_t distance = j - (i + s.diagonal);
  if (p.causal && distance > 0) return false;
  return distance > 0 ? distance <= p.window_right : -distance <= p.window_left;
}

TEST(VisibleKeys, AreThoseOfTheDefinition) {
  const std::int64_t windows[] = {0, 1, 2, 5, kUnbounded - 1, kUnbounded};
  for (const std::int64_t len_q : {0, 1, 2, 5, 9}) {
    for (const std::int64_t len_kv : {0, 1, 3, 5, 8}) {
      for (const Alignment alignment : {Alignment::top_left, Alignment::bottom_right}) {
        for (const bool causal : {false, true}) {
          for (const std::int64_t left : windows) {
            for (const std::int64_t right : windows) {
              Problem p;
              p.causal = causal;
              p.window_left = left;
              p.window_right = right;
              const std::int64_t diagonal = alignment == Alignment::bottom_right ? len_kv - len_q : 0;
              const Sequence s{.len_q = len_q, .len_kv = len_kv, .diagonal = diagonal};
              for (std::int64_t i = 0; i < len_q; ++i) {
                const KeyRange range = visible_keys(p, s, i);
                ASSERT_LE(0, range.begin);
                ASSERT_LE(range.begin, range.end);
                ASSERT_LE(range.end, len_kv);
                for (std::int64_t j = 0; j < len_kv; ++j) {
                  ASSERT_EQ(range.begin <= j && j < range.end, visible(p, s, i, j))
                      << "query " << i << " key " << j << " of " << len_q << "x" << len_kv << " diagonal "
                      << diagonal << " causal " << causal << " window " << left << "," << right;
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST(Sequences, DenseUsesTheProblemsLengths) {
  Problem p = Problem::dense(3, 2, 10, 4);
  p.len_kv = 12;
  p.pack();
  const Sequence s = sequence(p, {}, 2);
  EXPECT_EQ(s.len_q, 10);
  EXPECT_EQ(s.len_kv, 12);
  EXPECT_EQ(s.diagonal, 0);
  EXPECT_EQ(query_offset(p, p.q, s, 1, 3), (2 * 2 + 1) * 40 + 3 * 4);
  EXPECT_EQ(key_offset(p, {}, p.k, s, 1, 3), (2 * 2 + 1) * 48 + 3 * 4);
  EXPECT_EQ(lse_offset(p, s, 1, 3), (2 * 2 + 1) * 10 + 3);
  EXPECT_EQ(mask_offset(p, s, 1, 3, 5), ((2 * 2 + 1) * 10 + 3) * 12 + 5);
}

TEST(Sequences, RaggedReadsBothOffsets) {
  Problem p = Problem::dense(2, 2, 5, 4);
  p.ragged_q = true;
  p.kv_layout = KvLayout::ragged;
  p.total_q = 7;
  p.total_kv = 9;
  p.alignment = Alignment::bottom_right;
  p.pack();
  const std::array<std::int32_t, 3> cu_q = {0, 5, 7};
  const std::array<std::int32_t, 3> cu_kv = {0, 4, 9};
  const Tensors t{.cu_seqlens_q = cu_q.data(), .cu_seqlens_kv = cu_kv.data()};
  const Sequence s = sequence(p, t, 1);
  EXPECT_EQ(s.len_q, 2);
  EXPECT_EQ(s.len_kv, 5);
  EXPECT_EQ(s.diagonal, 3);
  EXPECT_EQ(query_offset(p, p.q, s, 1, 1), (5 + 1) * 8 + 4) << "[total, head, dim]";
  EXPECT_EQ(key_offset(p, t, p.k, s, 1, 2), (4 + 2) * 8 + 4);
  EXPECT_EQ(lse_offset(p, s, 1, 1), 1 * 7 + 5 + 1) << "[head, total]";
}

TEST(Sequences, PagedFollowsTheBlockTable) {
  Problem p = Problem::dense(2, 1, 6, 4);
  p.kv_layout = KvLayout::paged;
  p.page_size = 4;
  p.num_pages = 9;
  p.pages_per_sequence = 2;
  p.kv_lengths = true;
  p.pack();
  const std::array<std::int32_t, 2> lengths = {6, 5};
  const std::array<std::int32_t, 4> table = {8, 1, 3, 7};
  const Tensors t{.kv_lengths = lengths.data(), .block_table = table.data()};
  const Sequence s = sequence(p, t, 1);
  EXPECT_EQ(s.len_kv, 5);
  EXPECT_EQ(key_offset(p, t, p.k, s, 0, 3), 3 * 16 + 3 * 4) << "row 3 of page 3";
  EXPECT_EQ(key_offset(p, t, p.k, s, 0, 4), 7 * 16) << "row 0 of page 7";
}

}  // namespace
}  // namespace saccade
