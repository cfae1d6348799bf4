// The tiles of queries that a launch has, and which keys a problem's mask leaves to their rows.
#pragma once

#include "core/sequence.h"
#include "cuda/tile/divisor.h"
#include "cuda/tile/keys.h"
#include "cuda/tile/scheduler.h"

namespace saccade::SACCADE_MACHINE::tile {

struct Queue {
  Divisor tiles;               ///< in a head
  Divisor heads;               ///< of all batches
  bool longest_first = false;  ///< the tiles of a head differ in length

  /// Of tiles of `rows` rows.
  static Queue of(const Problem& p, int rows) {
    return {.tiles = Divisor::of(static_cast<int>((p.len_q + rows - 1) / rows)),
            .heads = Divisor::of(static_cast<int>(p.batch * p.heads_q)),
            .longest_first = p.causal || p.window_right < KeySpan::kFar};
  }
  [[nodiscard]] SACCADE_BOTH int size() const { return static_cast<int>(tiles) * static_cast<int>(heads); }
  [[nodiscard]] SACCADE_DEVICE Work take(int number) const {
    return longest_first ? tile::longest_first(number, tiles, heads) : head_by_head(number, tiles);
  }
};

/// The keys that the problem's mask leaves to each row of a sequence.
SACCADE_BOTH KeySpan span_of(const Problem& p, std::int64_t len_kv, std::int64_t diagonal) {
  return KeySpan::of(static_cast<int>(len_kv), static_cast<int>(diagonal), p.window_left,
                     p.causal ? 0 : p.window_right);
}

}  // namespace saccade::SACCADE_MACHINE::tile
