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

/// For blocks that stay. Where the longest tiles come first, only so many heads at a time, a band, as have
/// their keys and values in the cache together. Bands go up and down in turns, and the last one down, so that
/// no block has long tiles every time.
struct BandedQueue {
  Divisor tiles;  ///< in a head
  Divisor heads;  ///< of a band, all batches counted
  int bands = 0;  ///< 0: the tiles of a head are of one length, and heads come one after the other

  /// Of tiles of `rows` rows.
  static BandedQueue of(const Problem& p, int rows) {
    const Queue all = Queue::of(p, rows);
    if (!all.longest_first) return {.tiles = all.tiles, .heads = all.heads};
    const auto group = static_cast<int>(p.group());
    const auto key_heads = static_cast<int>(all.heads) / group;
    const int band = band_of(key_heads, p.len_kv * (p.dim_qk + p.dim_v) * 2);
    return {.tiles = all.tiles, .heads = Divisor::of(band * group), .bands = key_heads / band};
  }
  [[nodiscard]] SACCADE_BOTH bool longest_first() const { return bands > 0; }
  [[nodiscard]] SACCADE_BOTH int size() const {
    return static_cast<int>(tiles) * static_cast<int>(heads) * (bands > 1 ? bands : 1);
  }
  [[nodiscard]] SACCADE_BOTH Work take(int number) const {
    if (bands == 0) return head_by_head(number, tiles);
    Work work = tile::longest_first(number, tiles, heads);
    if (bands == 1) return work;
    const int level = number / heads;
    const int band = level / tiles;
    const int in_band = level - band * static_cast<int>(tiles);
    const bool down = (bands - 1 - band) % 2 == 0;
    work.tile = down ? static_cast<int>(tiles) - 1 - in_band : in_band;
    work.head += band * static_cast<int>(heads);
    return work;
  }

 private:
  /// What the second-level cache holds beside queries and outputs: two thirds of Hopper's.
  static constexpr std::int64_t kCached = 36 << 20;

  /// Key heads of so many bytes to a band: the most that fit and divide all, or all, where these are not much
  /// more than fit (blocks share long and short tiles out less evenly then), or few would be together.
  static int band_of(int all, std::int64_t bytes) {
    if (2 * all * bytes < 3 * kCached) return all;
    const auto most = static_cast<int>(std::min<std::int64_t>(all, kCached / bytes));
    constexpr int kTries = 64;  // this is done for every launch
    for (int band = most; 2 * band > most && band > most - kTries; --band) {
      if (all % band == 0) return band;
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
