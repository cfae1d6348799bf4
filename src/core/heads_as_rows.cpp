#include "core/heads_as_rows.h"

namespace saccade {

Problem heads_as_rows(const Problem& problem) {
  const std::int64_t group = problem.group();
  if (problem.len_q != 1 || group < 2 || problem.ragged_q || problem.alibi || problem.sinks) return problem;
  // The row is the last one when sequences end together: then only what is too far behind could be hidden.
  const bool last = problem.alignment == Alignment::bottom_right;
  const bool all_before = problem.window_left == kUnbounded;
  const bool all_after = last || (!problem.causal && problem.window_right == kUnbounded);
  if (!all_before || !all_after) return problem;

  Problem p = problem;
  p.heads_q = p.heads_kv;
  p.len_q = group;
  p.causal = false;
  p.window_right = kUnbounded;
  const auto fold = [group](auto& strides) {
    strides.row = strides.head;
    // Wraps around in strides that nobody has looked at: of what is not there.
    strides.head = static_cast<std::int64_t>(static_cast<std::uint64_t>(strides.head) *
                                             static_cast<std::uint64_t>(group));
  };
  fold(p.q);
  fold(p.o);
  fold(p.lse_strides);
  fold(p.mask_strides);
  return p;
}

}  // namespace saccade
