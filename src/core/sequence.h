// Where the rows of one batch entry lie, whatever the layout. All constexpr, so that device code can call
// them too.
#pragma once

#include <algorithm>
#include <cstdint>

#include <saccade/problem.h>
#include <saccade/run.h>

namespace saccade {

/// One batch entry: its lengths and where its rows start.
struct Sequence {
  std::int64_t batch = 0;
  std::int64_t len_q = 0;
  std::int64_t len_kv = 0;
  std::int64_t first_q = 0;   ///< Row of q, o and lse where the sequence starts (ragged; else 0).
  std::int64_t first_kv = 0;  ///< Row of k and v where the sequence starts (ragged; else 0).
  std::int64_t diagonal = 0;  ///< Query i sits on key i + diagonal.
};

/// Reads the lengths of batch entry `b`. The tensors must have been validated.
constexpr Sequence sequence(const Problem& p, const Tensors& t, std::int64_t b) {
  Sequence s{.batch = b, .len_q = p.len_q, .len_kv = p.len_kv};
  if (p.ragged_q) {
    s.first_q = t.cu_seqlens_q[b];
    s.len_q = t.cu_seqlens_q[b + 1] - s.first_q;
  }
  if (p.kv_layout == KvLayout::ragged) {
    s.first_kv = t.cu_seqlens_kv[b];
    s.len_kv = t.cu_seqlens_kv[b + 1] - s.first_kv;
  } else if (p.kv_lengths) {
    s.len_kv = t.kv_lengths[b];
  }
  s.diagonal = p.alignment == Alignment::bottom_right ? s.len_kv - s.len_q : 0;
  return s;
}

/// Element offset of row i of head h in q or o.
constexpr std::int64_t query_offset(const Problem& p, const Strides& strides, const Sequence& s,
                                    std::int64_t head, std::int64_t i) {
  const std::int64_t start = p.ragged_q ? s.first_q * strides.row : s.batch * strides.batch;
  return start + head * strides.head + i * strides.row;
}

/// Element offset of row i of head h in lse.
constexpr std::int64_t lse_offset(const Problem& p, const Sequence& s, std::int64_t head, std::int64_t i) {
  const std::int64_t start = p.ragged_q ? s.first_q * p.lse_strides.row : s.batch * p.lse_strides.batch;
  return start + head * p.lse_strides.head + i * p.lse_strides.row;
}

/// Element offset of key j of kv head g in k or v.
constexpr std::int64_t key_offset(const Problem& p, const Tensors& t, const Strides& strides,
                                  const Sequence& s, std::int64_t head, std::int64_t j) {
  switch (p.kv_layout) {
    case KvLayout::paged: {
      const std::int64_t page = t.block_table[s.batch * p.pages_per_sequence + j / p.page_size];
      return page * strides.batch + head * strides.head + j % p.page_size * strides.row;
    }
    case KvLayout::ragged:
      return head * strides.head + (s.first_kv + j) * strides.row;
    case KvLayout::dense:
      break;
  }
  return s.batch * strides.batch + head * strides.head + j * strides.row;
}

/// Element offset of the pair (i, j) in the mask.
constexpr std::int64_t mask_offset(const Problem& p, const Sequence& s, std::int64_t head, std::int64_t i,
                                   std::int64_t j) {
  const MaskStrides& m = p.mask_strides;
  return s.batch * m.batch + head * m.head + i * m.row + j * m.key;
}

/// A half-open range of keys.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The keys that the causal mask and the window leave to query i; empty as begin == end.
constexpr KeyRange visible_keys(const Problem& p, const Sequence& s, std::int64_t i) {
  // A window may be as large as kUnbounded. Nearer it means the same, and nothing overflows: nvcc turns
  // "left >= center ? 0 : center - left" into a maximum that a wrapped difference wins.
  constexpr std::int64_t kFar = std::int64_t{1} << 61;
  const std::int64_t center = i + s.diagonal;
  const std::int64_t left = std::min(p.window_left, kFar);
  const std::int64_t right = p.causal ? 0 : std::min(p.window_right, kFar);
  const std::int64_t end = std::clamp<std::int64_t>(center + right + 1, 0, s.len_kv);
  return {std::clamp<std::int64_t>(center - left, 0, end), end};
}

}  // namespace saccade
