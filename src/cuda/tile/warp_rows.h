// One warp's query rows against tiles of keys and values in swizzled shared memory: both products by mma,
// scores, weights and outputs in registers from beginning to end.
//
// The accumulator of the first product has the layout that the second wants of its left operand, so the
// weights never leave their lanes. With g = lane / 4, a lane holds pairs of neighbouring keys (columns) of
// rows g and g + 8 of each 16 rows.
#pragma once

#include <type_traits>

#include "cuda/ptx/ldmatrix.h"
#include "cuda/ptx/memory.h"
#include "cuda/ptx/mma.h"
#include "cuda/ptx/warp.h"
#include "cuda/tile/scores.h"
#include "cuda/tile/swizzle.h"

namespace saccade::SACCADE_MACHINE::tile {

/// T: F16 or BF16; kDim: of keys and values; kKeys: whose scores are alive at once; kRowTiles: of 16
/// rows, which share every key and value that is read from shared memory; kKeepQueries: in registers (kDim /
/// 4 of them for 16 rows) instead of reading them from shared memory for every kKeys keys; kBold: weights are
/// computed before it is known that none is too large, which pays with many tiles; kEarly: look_at() brings
/// what the first products of a tile need.
template <class T, int kDim, int kKeys = 32, int kRowTiles = 1, bool kKeepQueries = true, bool kBold = false,
          bool kEarly = false>
class WarpRows {
  static_assert(kDim % 16 == 0 && kKeys % 16 == 0);
  using Tile = SwizzledTile<kDim>;

 public:
  static constexpr int kRows = 16 * kRowTiles;

  /// For attend_tile().
  struct Nothing {
    SACCADE_DEVICE void operator()() const {}
  };

  /// Takes the queries from rows [first_row, first_row + kRows) of a swizzled tile, with the scale's sign.
  /// Unless kKeepQueries, they must stay there and be this warp's alone.
  SACCADE_DEVICE void load_queries(ptx::SharedPointer<T> queries, int first_row, ScoreScale scale) {
    // Pinned where the compiler finds a register for it: at head dim 128 one more or less spills.
    queries_ = queries + (ptx::kHopper ? ptx::pinned(first_row * kDim) : first_row * kDim);
    my_key_ = ptx::pinned(place(lane() / 16 * 8 + lane() % 8, lane() / 8 % 2));
    my_value_ = ptx::pinned(place(lane() % 16, lane() / 16));
    if constexpr (kKeepQueries) {
      SACCADE_UNROLL
      for (int c = 0; c < kDim / 16; ++c) {
        fetch_queries(q_[c], c);
        SACCADE_UNROLL
        for (auto& rows : q_[c]) {
          SACCADE_UNROLL
          for (std::uint32_t& pair : rows) pair ^= scale.sign_bits;
        }
      }
    } else if (scale.sign_bits != 0) {  // once, where they lie, instead of at every use
      SACCADE_NO_UNROLL
      for (int n = lane(); n < kRows * Tile::kChunks; n += ptx::kWarpThreads) {
        auto* chunk = reinterpret_cast<ptx::Bytes16*>((queries_ + n * Tile::kChunk).generic());
        ptx::Bytes16 numbers = ptx::load(chunk);
        SACCADE_UNROLL
        for (std::uint32_t& pair : numbers.words) pair ^= scale.sign_bits;
        ptx::store(chunk, numbers);
      }
      ptx::sync_warp();
    }
    fetch_first_queries();
  }

  /// With kEarly, before attend_tile() and once its keys are there: starts to read the first columns of those
  /// whose scores come first. They are on their way while the caller starts copies, say.
  SACCADE_DEVICE void look_at(ptx::SharedPointer<T> keys) {
    static_assert(kEarly);
    SACCADE_UNROLL
    for (int j = 0; j < kFirstKeys / 16; ++j) ptx::load_matrices(first_k_[j], keys + my_key_ + 16 * j * kDim);
  }

  /// Takes in a tile of kTileKeys keys, of which the mask leaves `coverage`, and their values. `change` is
  /// what changes and hides scores (PlainScores and the like), `row` this warp's first row, `first_key` the
  /// tile's first key. before_values() is called when the weights are known and the values are about to be
  /// read, after_scores(), without kBold, when the scores are on their way, when_read() when the values are
  /// read but for the last products: once each when all scores of the tile are alive at once.
  template <int kTileKeys, class Change, class Before, class After = Nothing, class Read = Nothing>
  SACCADE_DEVICE void attend_tile(ptx::SharedPointer<T> keys, ptx::SharedPointer<T> values,
                                  const Change& change, int row, int first_key, Coverage coverage,
                                  Before&& before_values, const After& after_scores = {},
                                  const Read& when_read = {}) {
    static_assert(!kEarly || kTileKeys == kKeys);
    for (int j = 0; j < kTileKeys; j += kKeys) {
      bool done = false;
      if constexpr (Change::kPlain && kBold) {
        if (coverage == Coverage::full && based_) done = weigh_boldly(keys + j * kDim, change.scale.size);
      }
      if (!done)
        weigh_carefully(keys + j * kDim, change, row, first_key + j, coverage != Coverage::full,
                        after_scores);
      before_values();
      add_values(values + j * kDim, when_read);
      fetch_first_queries();
    }
  }

  /// Adds up what the lanes of each row have; after the last tile.
  SACCADE_DEVICE void finish() {
    for_each_state([&](int r, int h) {
      RowState& state = state_[r][h];
      state.l += ptx::shuffle_xor(state.l, 1);
      state.l += ptx::shuffle_xor(state.l, 2);
    });
  }
  /// Calls act(row within the warp, state) for the rows that this lane holds a part of.
  template <class Act>
  SACCADE_DEVICE void for_each_row(Act&& act) const {
    for_each_state([&](int r, int h) { act(16 * r + 8 * h + lane() / 4, state_[r][h]); });
  }
  /// Calls act(row within the warp, column, two neighbouring sums of weighted values) for all it holds.
  template <class Act>
  SACCADE_DEVICE void for_each_pair(Act&& act) const {
    SACCADE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      SACCADE_UNROLL
      for (int h = 0; h < 2; ++h) {
        SACCADE_UNROLL
        for (int n = 0; n < kDim / 8; ++n) {
          act(16 * r + 8 * h + lane() / 4, 8 * n + lane() % 4 * 2, o_[r][n][2 * h], o_[r][n][2 * h + 1]);
        }
      }
    }
  }

  /// Puts all rows into a swizzled tile, from `to` on, each times factor(state).
  template <class Factor>
  SACCADE_DEVICE void put(ptx::SharedPointer<T> to, const Factor& factor) const {
    PerRow factors;
    for_each_state([&](int r, int h) { factors[r][h] = factor(state_[r][h]); });
    const ptx::SharedPointer<T> mine = to + (Tile::offset(lane() / 4, 0) + lane() % 4 * 2);
    for_each_state([&](int r, int h) {
      SACCADE_UNROLL
      for (int n = 0; n < kDim / 8; ++n) {
        const ptx::SharedPointer<T> pair = chunks(mine, n) + (16 * r + 8 * h) * kDim;
        ptx::store(reinterpret_cast<std::uint32_t*>(pair.generic()),
                   ptx::pack<T>(o_[r][n][2 * h] * factors[r][h], o_[r][n][2 * h + 1] * factors[r][h]));
      }
    });
  }

  /// Writes rows [row, row + kRows) of the output, those below `rows`.
  SACCADE_DEVICE void write(T* o, std::int64_t stride, int row, int rows) {
    finish();
    SACCADE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      SACCADE_UNROLL
      for (int h = 0; h < 2; ++h) {
        const float weight = state_[r][h].weight();
        const int i = row + 16 * r + 8 * h + lane() / 4;
        if (i >= rows) continue;
        SACCADE_UNROLL
        for (int n = 0; n < kDim / 8; ++n) {
          const std::uint32_t pair = ptx::pack<T>(o_[r][n][2 * h] * weight, o_[r][n][2 * h + 1] * weight);
          ptx::store(reinterpret_cast<std::uint32_t*>(o + i * stride + 8 * n + lane() % 4 * 2), pair);
        }
      }
    }
  }

 private:
  /// Something for each row that a lane has a part of.
  using PerRow = float[kRowTiles][2];

  /// 16 columns of the queries, as mma wants them.
  using Queries = std::uint32_t[kRowTiles][4];

  SACCADE_DEVICE void fetch_queries(Queries& q, int c) const {
    SACCADE_UNROLL
    for (int r = 0; r < kRowTiles; ++r)
      ptx::load_matrices(q[r], columns(queries_ + my_value_, c) + 16 * r * kDim);
  }
  /// Those that the next tile begins with.
  SACCADE_DEVICE void fetch_first_queries() {
    if constexpr (kEarly && !kKeepQueries) fetch_queries(q_[0], 0);
  }

  /// The scores of kKeys keys, in the registers of the lanes that computed them.
  using Scores = float[kRowTiles][kKeys / 8][4];

  /// The sum of a lane's weights of kKeys keys is this at most: far from f16's end.
  static constexpr float kMostWeight = 1 << 14;
  /// Scores are so far above the base at most when it is looked at closely.
  static constexpr float kSlack = 8;

  /// Whether weigh_boldly() takes the keys half by half.
  static constexpr bool kInHalves = kBold && kKeys == 64 && kKeepQueries;
  /// Whose scores come first.
  static constexpr int kFirstKeys = kInHalves ? kKeys / 2 : kKeys;

  /// The products of the queries with kSome of the kKeys keys. kFetched: the first columns are here already.
  template <int kFirst, int kSome, bool kFetched = false>
  SACCADE_DEVICE void multiply_keys(Scores& s, ptx::SharedPointer<T> keys) {
    SACCADE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      SACCADE_UNROLL
      for (int n = kFirst / 8; n < (kFirst + kSome) / 8; ++n) {
        SACCADE_UNROLL
        for (float& x : s[r][n]) x = 0;
      }
    }
    const ptx::SharedPointer<T> mine = keys + my_key_;
    SACCADE_UNROLL
    for (int c = 0; c < kDim / 16; ++c) {
      const bool fetched = kFetched && c == 0;
      if (!kKeepQueries && !fetched) fetch_queries(q_[0], c);
      const auto& q = q_[kKeepQueries ? c : 0];
      SACCADE_UNROLL
      for (int j = kFirst / 16; j < (kFirst + kSome) / 16; ++j) {
        std::uint32_t read[4];
        if (!fetched) ptx::load_matrices(read, columns(mine, c) + 16 * j * kDim);
        const auto& k = fetched ? first_k_[j] : read;
        SACCADE_UNROLL
        for (int r = 0; r < kRowTiles; ++r) {
          ptx::multiply_add<T>(s[r][2 * j], q[r], k[0], k[1]);
          ptx::multiply_add<T>(s[r][2 * j + 1], q[r], k[2], k[3]);
        }
      }
    }
  }

  /// Turns scores into weights relative to `base`, as the second product wants them, and adds each lane's up.
  SACCADE_DEVICE void weigh(const Scores& s, float scale, const PerRow& base, PerRow& sum) {
    SACCADE_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      SACCADE_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        SACCADE_UNROLL
        for (int h = 0; h < 2; ++h) {
          const float left = ptx::fast_exp2(ptx::fma(s[r][n][2 * h], scale, -base[r][h]));
          const float right = ptx::fast_exp2(ptx::fma(s[r][n][2 * h + 1], scale, -base[r][h]));
          sum[r][h] += left;
          sum[r][h] += right;
          weights_[r][n / 2][n % 2 * 2 + h] = ptx::pack<T>(left, right);
        }
      }
    }
  }

  /// The weights of kKeys keys that all rows see, by bases that all rows have. Nothing here waits for the
  /// largest score, so exponentials of the first keys run beside products of the later ones. False if a
  /// weight is too large, and then they are worth nothing.
  SACCADE_DEVICE bool weigh_boldly(ptx::SharedPointer<T> keys, float scale) {
    Scores s;
    multiply_keys<0, kFirstKeys, kEarly>(s, keys);
    if constexpr (kInHalves) multiply_keys<kFirstKeys, kKeys - kFirstKeys>(s, keys);
    PerRow sum = {};
    PerRow base;
    for_each_state([&](int r, int h) { base[r][h] = state_[r][h].m; });
    weigh(s, scale, base, sum);
    bool far = false;
    for_each_state([&](int r, int h) { far = far || sum[r][h] > kMostWeight; });  // NaN is not, and stays
    if (ptx::any_lane(far)) return false;
    add(sum);
    return true;
  }

  /// The weights of any kKeys keys, by bases that move up to the largest scores where those are far above.
  template <class Change, class After>
  SACCADE_DEVICE void weigh_carefully(ptx::SharedPointer<T> keys, const Change& change, int row,
                                      int first_key, bool masked, const After& after_scores) {
    Scores s;
    multiply_keys<0, kKeys, kEarly && !kBold>(s, keys);  // boldness may have been here before
    after_scores();
    const float scale = change.change(s, row, first_key, masked);
    PerRow largest;
    bool far = false;
    for_each_state([&](int r, int h) {
      float even = s[r][0][2 * h];
      float odd = s[r][0][2 * h + 1];
      SACCADE_UNROLL
      for (int n = 1; n < kKeys / 8; ++n) {
        even = ptx::larger(even, s[r][n][2 * h]);
        odd = ptx::larger(odd, s[r][n][2 * h + 1]);
      }
      largest[r][h] = ptx::larger(even, odd) * scale;
      far = far || largest[r][h] - state_[r][h].m > kSlack;  // not m + kSlack, which may round up
    });
    if (ptx::any_lane(far)) raise(largest);
    PerRow sum = {};
    PerRow base;
    for_each_state([&](int r, int h) { base[r][h] = state_[r][h].base(); });
    weigh(s, scale, base, sum);
    add(sum);
  }

  /// Makes the largest scores what weights are relative to, and puts what was summed before in these terms.
  SACCADE_DEVICE void raise(const PerRow& largest) {
    PerRow keep;
    bool all = true;
    for_each_state([&](int r, int h) {
      float max = largest[r][h];
      max = ptx::larger(max, ptx::shuffle_xor(max, 1));
      max = ptx::larger(max, ptx::shuffle_xor(max, 2));
      RowState& state = state_[r][h];
      keep[r][h] = state.raise(max);
      state.l *= keep[r][h];
      all = all && state.m != -kInfinity;
    });
    SACCADE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      SACCADE_UNROLL
      for (auto& part : o_[r]) {
        SACCADE_UNROLL
        for (int e = 0; e < 4; ++e) part[e] *= keep[r][e / 2];
      }
    }
    if constexpr (kBold) based_ = !ptx::any_lane(!all);
  }

  SACCADE_DEVICE void add(const PerRow& sum) {
    for_each_state([&](int r, int h) { state_[r][h].l += sum[r][h]; });
  }
  /// Calls act(r, h) for the row tiles and halves whose rows this lane has a part of.
  template <class Act>
  static SACCADE_DEVICE void for_each_state(Act&& act) {
    SACCADE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      SACCADE_UNROLL
      for (int h = 0; h < 2; ++h) act(r, h);
    }
  }

  /// Adds the weighted values.
  template <class Read>
  SACCADE_DEVICE void add_values(ptx::SharedPointer<T> values, const Read& when_read) {
    constexpr bool kTells = !std::is_same_v<Read, Nothing>;
    constexpr int kSteps = kKeys / 16;
    const ptx::SharedPointer<T> mine = values + my_value_;
    const auto fetch = [&](std::uint32_t(&v)[4], int j, int c) {
      ptx::load_matrices_transposed(v, columns(mine, c) + 16 * j * kDim);
    };
    SACCADE_UNROLL
    for (int j = 0; j < kSteps - (kTells ? 1 : 0); ++j) {
      SACCADE_UNROLL
      for (int c = 0; c < kDim / 16; ++c) {
        std::uint32_t v[4];
        fetch(v, j, c);
        add_values(j, c, v);
      }
    }
    if constexpr (kTells) {  // the last ones all at once
      std::uint32_t v[kDim / 16][4];
      SACCADE_UNROLL
      for (int c = 0; c < kDim / 16; ++c) fetch(v[c], kSteps - 1, c);
      when_read();
      SACCADE_UNROLL
      for (int c = 0; c < kDim / 16; ++c) add_values(kSteps - 1, c, v[c]);
    }
  }
  /// 16 columns of those of keys 16 j and on.
  SACCADE_DEVICE void add_values(int j, int c, const std::uint32_t (&v)[4]) {
    SACCADE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      ptx::multiply_add<T>(o_[r][2 * c], weights_[r][j], v[0], v[1]);
      ptx::multiply_add<T>(o_[r][2 * c + 1], weights_[r][j], v[2], v[3]);
    }
  }

  static SACCADE_DEVICE int lane() { return ptx::lane_index(); }
  /// Where a row's first or second eight numbers lie.
  static SACCADE_DEVICE int place(int row, int half) { return Tile::offset(row, 8 * half); }
  /// The same for 16 columns further on, c times. The exchange of chunks stays within a line of 128 bytes (64
  /// where rows are half a line longer), so within one columns differ by bits, lines by a constant, and only
  /// few addresses are alive however many columns there are.
  static SACCADE_DEVICE ptx::SharedPointer<T> columns(ptx::SharedPointer<T> mine, int c) {
    return chunks(mine, 2 * c);
  }
  /// The same for chunks of eight columns.
  static SACCADE_DEVICE ptx::SharedPointer<T> chunks(ptx::SharedPointer<T> mine, int n) {
    constexpr int kTurn = Tile::kChunks % 8 == 0 ? 8 : 4;
    return (mine ^ (n % kTurn * 8)) + n / kTurn * kTurn * 8;
  }

  std::uint32_t weights_[kRowTiles][kKeys / 16][4];
  Queries q_[kKeepQueries ? kDim / 16 : 1];
  std::uint32_t first_k_[kEarly ? kFirstKeys / 16 : 1][4];  ///< look_at()'s
  ptx::SharedPointer<T> queries_;                           ///< this warp's
  int my_key_, my_value_;  ///< where this lane reads in 16 keys, and in 16 values or queries
  float o_[kRowTiles][kDim / 8][4] = {};
  /// Of rows g and g + 8; m is what weights are relative to, l the sum over this lane's keys until finish().
  ///
  /// m is a score that the row has seen, not always the largest: as long as no weight leaves the range of f16
  /// it does not matter, and one that stays spares the maxima, exchanges and multiplications of an online
  /// softmax.
  RowState state_[kRowTiles][2];
  bool based_ = false;  ///< every row of the warp has seen a key
};

}  // namespace saccade::SACCADE_MACHINE::tile
