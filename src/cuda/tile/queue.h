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

/// A tile of queries, and which of the blocks that share its keys a block is.
struct Share {
  int batch, head, tile;
  int block = 0;
};

/// What a GridQueue needs only where its grid has no room, or blocks share tiles or batches.
struct GridNumbers {
  Queue queue;
  Divisor sharing;  ///< blocks to a tile
  Divisor heads_q;
};

/// For blocks that take one tile, or share one. A block's coordinates say which, as far as there is room
/// along the axes of a grid: divisions take their time before the first copy. Tiles come from the last one
/// on, and where they differ in length those of all heads together.
struct GridQueue {
  bool by_axes = true;  ///< else along the first axis, by numbers
  bool longest_first = false;
  bool plain = true;  ///< coordinates say it all
  int tiles = 0;      ///< in a head

  /// Of tiles of `rows` rows.
  static GridNumbers numbers(const Problem& p, int rows, const Divisor& sharing) {
    return {Queue::of(p, rows), sharing, Divisor::of(static_cast<int>(p.heads_q))};
  }
  static GridQueue of(const Problem& p, const GridNumbers& n) {
    const auto tiles = static_cast<int>(n.queue.tiles);
    const auto sharing = static_cast<int>(n.sharing);
    const bool longest_first = n.queue.longest_first;
    constexpr std::int64_t kMostAlong = 65535;  // of the second and third axis
    const std::int64_t second = longest_first ? std::int64_t{tiles} * sharing : p.heads_q;
    const bool by_axes = std::max(second, longest_first ? 1 : p.batch) <= kMostAlong;
    return {.by_axes = by_axes,
            .longest_first = longest_first,
            .plain = by_axes && sharing == 1 && (!longest_first || p.batch == 1),
            .tiles = tiles};
  }
  [[nodiscard]] ptx::Index3 grid(const Problem& p, const GridNumbers& n) const {
    const int along = tiles * static_cast<int>(n.sharing);
    const auto heads = static_cast<int>(n.queue.heads);
    if (!by_axes) return {heads * along, 1, 1};
    if (longest_first) return {heads, along, 1};
    return {along, static_cast<int>(p.heads_q), static_cast<int>(p.batch)};
  }
  [[nodiscard]] SACCADE_BOTH Share take(const ptx::Index3& at, const GridNumbers& n) const {
    Share share{at.z, longest_first ? at.x : at.y, longest_first ? at.y : at.x};
    if (!plain) {
      const int along = by_axes ? share.tile : at.x;
      share.block = along % n.sharing;
      share.tile = along / n.sharing;
      if (!by_axes) {
        const Work work = n.queue.take(share.tile);
        share.head = work.head;
        share.tile = tiles - 1 - work.tile;
      }
      if (!by_axes || longest_first) {
        share.batch = share.head / n.heads_q;
        share.head = share.head % n.heads_q;
      }
    }
    share.tile = tiles - 1 - share.tile;
    return share;
  }
  /// Of all tiles, this one's.
  [[nodiscard]] SACCADE_BOTH int number(const Share& share, const GridNumbers& n) const {
    return (share.batch * static_cast<int>(n.heads_q) + share.head) * tiles + share.tile;
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
