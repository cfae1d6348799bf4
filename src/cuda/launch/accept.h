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

/// Whether strides lead from one 16-byte address to others only. Those of axes that have one step or none do
/// not count.
inline bool keeps_alignment(const Problem& p, const Strides& s, bool of_keys) {
  const auto unit = static_cast<std::int64_t>(16 / size_of(p.dtype));
  const bool ragged = of_keys ? p.kv_layout == KvLayout::ragged : p.ragged_q;
  const bool paged = of_keys && p.kv_layout == KvLayout::paged;
  const std::int64_t batches = ragged ? 1 : paged ? p.num_pages : p.batch;
  const std::int64_t heads = of_keys ? p.heads_kv : p.heads_q;
  const std::int64_t rows = of_keys  ? ragged  ? p.total_kv
                                       : paged ? p.page_size
                                               : p.len_kv
                            : ragged ? p.total_q
                                     : p.len_q;
  return (rows <= 1 || s.row % unit == 0) && (heads <= 1 || s.head % unit == 0) &&
         (batches <= 1 || s.batch % unit == 0);
}

/// Whether every row of q, k, v and o begins at a multiple of 16 bytes if the first does.
inline bool has_aligned_rows(const Problem& p) {
  return keeps_alignment(p, p.q, false) && keeps_alignment(p, p.o, false) && keeps_alignment(p, p.k, true) &&
         keeps_alignment(p, p.v, true);
}
inline bool has_aligned_pointers(const Tensors& t) {
  return std::ranges::all_of(std::initializer_list<const void*>{t.q, t.k, t.v, t.o}, [](const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  });
}

}  // namespace saccade
