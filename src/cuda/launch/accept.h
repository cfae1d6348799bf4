// What kernels ask of a problem before they take it.
#pragma once

#include <algorithm>

#include "core/kernel.h"

namespace saccade {

/// Scores that are scaled products, hidden by position alone, in one softmax over keys alone.
inline bool has_plain_scores(const Problem& p) {
  return p.softcap == 0 && !p.alibi && !p.sinks && p.mask == MaskKind::none;
}

/// All sequences of one length, at distances that strides say.
inline bool has_dense_tensors(const Problem& p) {
  return !p.ragged_q && p.kv_layout == KvLayout::dense && !p.kv_lengths;
}

/// Every row of q, k, v and o begins at a multiple of 16 bytes.
inline bool has_aligned_rows(const Problem& p, const Machine& machine) {
  const auto unit = static_cast<std::int64_t>(16 / size_of(p.dtype));
  return machine.pointer_alignment % 16 == 0 &&
         std::ranges::all_of(std::initializer_list<Strides>{p.q, p.k, p.v, p.o}, [unit](const Strides& s) {
           return s.row % unit == 0 && s.head % unit == 0 && s.batch % unit == 0;
         });
}

}  // namespace saccade
