// The tiles of queries that a launch has, and which keys a problem's mask leaves to their rows.
#pragma once

#include <algorithm>
#include <cstdint>

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
  [[nodiscard]] SACCADE_BOTH Work take(int number) const {
    return longest_first ? tile::longest_first(number, tiles, heads) : head_by_head(number, tiles);
  }
};

/// Where the longest tiles come first, only so many heads at a time, a band, as have their keys and values in
/// the cache together. Bands go up and down in turns, and the last one down, so that no block that stays has
/// long tiles every time.
struct BandedQueue {
  Queue one;     ///< of a band
  Divisor band;  ///< tiles in one
  int bands = 1;

  /// Of tiles of `rows` rows.
  static BandedQueue of(const Problem& p, int rows) {
    Queue one = Queue::of(p, rows);
    const auto all = static_cast<int>(one.heads);
    const std::int64_t bytes = p.len_kv * (p.dim_qk + p.dim_v) * 2 / p.group();  // of a query head's keys
    const int heads = one.longest_first ? band_of(all, kCached / std::max<std::int64_t>(bytes, 1)) : all;
    one.heads = Divisor::of(heads);
    return {.one = one, .band = Divisor::of(one.size()), .bands = all / heads};
  }
  [[nodiscard]] SACCADE_BOTH int size() const { return static_cast<int>(band) * bands; }
  [[nodiscard]] SACCADE_BOTH Work take(int number) const {
    const int before = number / band;
    Work work = one.take(number - before * static_cast<int>(band));
    work.head += before * static_cast<int>(one.heads);
    if ((bands - 1 - before) % 2 != 0) work.tile = static_cast<int>(one.tiles) - 1 - work.tile;
    return work;
  }

 private:
  /// What the second-level cache holds beside queries and outputs: two thirds of Hopper's.
  static constexpr std::int64_t kCached = 36 << 20;

  /// The largest number that divides all heads and is at most `most`; all, where that leaves few together.
  static int band_of(int all, std::int64_t most) {
    if (most >= all) return all;
    for (auto heads = static_cast<int>(most); 2 * heads > most; --heads) {
      if (all % heads == 0) return heads;
    }
    return all;
  }
};

/// The keys that the problem's mask leaves to each row of a sequence.
SACCADE_BOTH KeySpan span_of(const Problem& p, std::int64_t len_kv, std::int64_t diagonal) {
  return KeySpan::of(static_cast<int>(len_kv), static_cast<int>(diagonal), p.window_left,
                     p.causal ? 0 : p.window_right);
}

}  // namespace saccade::SACCADE_MACHINE::tile
