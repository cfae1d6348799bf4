// Output rows out of the registers of a warp whose lanes share the columns.
#pragma once

#include "cuda/ladder/rung.h"
#include "cuda/ptx/memory.h"

namespace saccade::SACCADE_MACHINE::ladder {

/// Writes rows [first, first + kRows), those below a.len_q. A lane holds columns lane, lane + 32, ...
template <int kRows, int kColumns>
SACCADE_DEVICE void write_rows(const Arguments& a, const Unit& unit, int first,
                               const float (&o)[kRows][kColumns], const tile::RowState (&state)[kRows]) {
  SACCADE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    if (first + r >= a.len_q) continue;
    const float weight = state[r].weight();  // once a row: it is a division
    SACCADE_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      F16* to = unit.o + (first + r) * a.o.row + c * ptx::kWarpThreads + ptx::lane_index();
      ptx::store(to, ptx::from_float<F16>(o[r][c] * weight));
    }
  }
}

}  // namespace saccade::SACCADE_MACHINE::ladder
