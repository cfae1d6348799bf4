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

/// T: F16 or BF16; kDim: of keys and values; kTileKeys: in a tile; kKeys: whose scores are alive at once (64
/// cost 32 more registers than 32, which is what a second block on a multiprocessor needs); kRowTiles: of 16
/// rows, which share every key and value that is read from shared memory; kKeepQueries: in registers (kDim /
/// 4 of them for 16 rows) instead of reading them from shared memory for every kKeys keys.
template <class T, int kDim, int kTileKeys, int kKeys = 32, int kRowTiles = 1, bool kKeepQueries = true>
class WarpRows {
  static_assert(kDim % 16 == 0 && kKeys % 16 == 0 && kTileKeys % kKeys == 0);
  using Tile = SwizzledTile<kDim>;

 public:
  static constexpr int kRows = 16 * kRowTiles;

  /// Takes the queries from rows [first_row, first_row + kRows) of a swizzled tile, with the scale's sign.
  /// Unless kKeepQueries, they must stay there.
  SACCADE_DEVICE void load_queries(ptx::SharedPointer<T> queries, int first_row, ScoreScale scale) {
    my_query_ = queries + (first_row + lane() % 16) * kDim;
    sign_bits_ = scale.sign_bits;
    if constexpr (kKeepQueries) {
      SACCADE_UNROLL
      for (int c = 0; c < kDim / 16; ++c) fetch_queries(q_[c], c);
    }
  }

  /// Takes in one tile of kTileKeys keys, of which the mask leaves `coverage`. `scores` is what changes and
  /// hides scores (PlainScores and the like), `row` this warp's first row, `first_key` the tile's first key.
  /// before_values() is called when the weights are known and the values are about to be read, which is once
  /// when all scores of the tile are alive at once.
  template <class Scores, class Before>
  SACCADE_DEVICE void attend_tile(ptx::SharedPointer<T> keys, ptx::SharedPointer<T> values,
                                  const Scores& scores, int row, int first_key, Coverage coverage,
                                  Before&& before_values) {
    for (int j = 0; j < kTileKeys; j += kKeys) {
      const auto attend_some = [&](auto masked) {
        attend(keys + j * kDim, values + j * kDim, scores, row, first_key + j, masked, before_values);
      };
      if constexpr (Scores::kBranches) {
        attend_some(coverage != Coverage::full);
      } else if (coverage == Coverage::full) {  // two whole copies: nothing branches between the products
        attend_some(std::false_type());
      } else {
        attend_some(std::true_type());
      }
    }
  }

  /// Adds up what the lanes of each row have; after the last tile.
  SACCADE_DEVICE void finish() {
    SACCADE_UNROLL
    for (auto& pair : state_) {
      SACCADE_UNROLL
      for (RowState& state : pair) {
        state.l += ptx::shuffle_xor(state.l, 1);
        state.l += ptx::shuffle_xor(state.l, 2);
      }
    }
  }
  /// Calls act(row within the warp, state) for the rows that this lane holds a part of.
  template <class Act>
  SACCADE_DEVICE void for_each_row(Act&& act) const {
    SACCADE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      SACCADE_UNROLL
      for (int h = 0; h < 2; ++h) act(16 * r + 8 * h + lane() / 4, state_[r][h]);
    }
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

  /// Writes rows [row, row + kRows) of the output, those below `rows`.
  SACCADE_DEVICE void write(T* o, std::int64_t stride, int row, int rows) {
    finish();
    SACCADE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      SACCADE_UNROLL
      for (int h = 0; h < 2; ++h) {
        const float weight = state_[r][h].weight();  // once a row: it is a division
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
  /// 16 columns of the queries, as mma wants them.
  using Queries = std::uint32_t[kRowTiles][4];

  SACCADE_DEVICE void fetch_queries(Queries& q, int c) const {
    SACCADE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      ptx::load_matrices(q[r], my_query_ + (16 * r * kDim + chunk(c, lane() / 16)));
      SACCADE_UNROLL
      for (std::uint32_t& pair : q[r]) pair ^= sign_bits_;
    }
  }

  /// The weights of kKeys keys, in the registers of the lanes that computed the scores.
  using Weights = float[kRowTiles][kKeys / 8][4];

  /// The first half of the work: the weights of kKeys keys, and what was summed before in the same terms.
  /// `masked`, a bool or the type of one: there are keys to hide.
  template <class Scores, class Masked>
  SACCADE_DEVICE void find_weights(Weights& s, ptx::SharedPointer<T> keys, const Scores& scores, int row,
                                   int first_key, Masked masked) {
    SACCADE_UNROLL
    for (auto& rows : s) {
      SACCADE_UNROLL
      for (auto& part : rows) {
        SACCADE_UNROLL
        for (float& x : part) x = 0;
      }
    }
    const int my_key = (lane() / 16 * 8 + lane() % 8) * kDim;
    SACCADE_UNROLL
    for (int c = 0; c < kDim / 16; ++c) {
      if constexpr (!kKeepQueries) fetch_queries(q_[0], c);
      const auto& q = q_[kKeepQueries ? c : 0];
      SACCADE_UNROLL
      for (int j = 0; j < kKeys / 16; ++j) {
        std::uint32_t k[4];
        ptx::load_matrices(k, keys + (my_key + 16 * j * kDim + chunk(c, lane() / 8 % 2)));
        SACCADE_UNROLL
        for (int r = 0; r < kRowTiles; ++r) {
          ptx::multiply_add<T>(s[r][2 * j], q[r], k[0], k[1]);
          ptx::multiply_add<T>(s[r][2 * j + 1], q[r], k[2], k[3]);
        }
      }
    }
    SACCADE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      to_weights(s[r], scores.change(s[r], row + 16 * r, first_key, masked), r);
    }
  }

  /// The second half: their values.
  SACCADE_DEVICE void add_values(const Weights& s, ptx::SharedPointer<T> values) {
    const int my_value = lane() % 16 * kDim;
    SACCADE_UNROLL
    for (int j = 0; j < kKeys / 16; ++j) {
      std::uint32_t p[kRowTiles][4];
      SACCADE_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        SACCADE_UNROLL
        for (int n = 0; n < 4; ++n) {
          const float(&two)[4] = s[r][2 * j + n / 2];
          p[r][n] = ptx::pack<T>(two[n % 2 * 2], two[n % 2 * 2 + 1]);
        }
      }
      SACCADE_UNROLL
      for (int c = 0; c < kDim / 16; ++c) {
        std::uint32_t v[4];
        ptx::load_matrices_transposed(v, values + (my_value + 16 * j * kDim + chunk(c, lane() / 16)));
        SACCADE_UNROLL
        for (int r = 0; r < kRowTiles; ++r) {
          ptx::multiply_add<T>(o_[r][2 * c], p[r], v[0], v[1]);
          ptx::multiply_add<T>(o_[r][2 * c + 1], p[r], v[2], v[3]);
        }
      }
    }
  }

  template <class Scores, class Masked, class Before>
  SACCADE_DEVICE void attend(ptx::SharedPointer<T> keys, ptx::SharedPointer<T> values, const Scores& scores,
                             int row, int first_key, Masked masked, Before&& before_values) {
    Weights weights;
    find_weights(weights, keys, scores, row, first_key, masked);
    before_values();
    add_values(weights, values);
  }

  /// Turns 16 rows' scores into weights, and what was summed before into the same terms.
  SACCADE_DEVICE void to_weights(float (&s)[kKeys / 8][4], float scale, int r) {
    float max[2];
    SACCADE_UNROLL
    for (int h = 0; h < 2; ++h) max[h] = larger(s[0][2 * h], s[0][2 * h + 1]);
    SACCADE_UNROLL
    for (int n = 1; n < kKeys / 8; ++n) {
      SACCADE_UNROLL
      for (int h = 0; h < 2; ++h) max[h] = larger(max[h], larger(s[n][2 * h], s[n][2 * h + 1]));
    }
    SACCADE_UNROLL
    for (int distance = 1; distance < 4; distance *= 2) {
      SACCADE_UNROLL
      for (float& x : max) x = larger(x, ptx::shuffle_xor(x, distance));
    }
    float keep[2];
    float base[2];
    SACCADE_UNROLL
    for (int h = 0; h < 2; ++h) {
      keep[h] = state_[r][h].raise(max[h] * scale);
      state_[r][h].l *= keep[h];
      base[h] = state_[r][h].base();
    }
    SACCADE_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      SACCADE_UNROLL
      for (int e = 0; e < 4; ++e) {
        s[n][e] = ptx::fast_exp2(ptx::fma(s[n][e], scale, -base[e / 2]));
        state_[r][e / 2].l += s[n][e];
      }
    }
    SACCADE_UNROLL
    for (auto& part : o_[r]) {
      SACCADE_UNROLL
      for (int e = 0; e < 4; ++e) part[e] *= keep[e / 2];
    }
  }

  static SACCADE_DEVICE int lane() { return ptx::lane_index(); }
  /// Tile::offset within a row, for rows whose number is this lane's modulo 8: half `half` (0 or 1) of column
  /// block c. The exchange stays within a line of 128 bytes, so lines are a constant apart, and only four
  /// addresses are alive however many columns there are.
  static SACCADE_DEVICE int chunk(int c, int half) {
    return ((half ^ Tile::exchange(lane() % 8)) ^ (2 * (c % 4))) * Tile::kChunk + c / 4 * 64;
  }

  Queries q_[kKeepQueries ? kDim / 16 : 1];
  ptx::SharedPointer<T> my_query_;  ///< this lane's row of the first 16
  std::uint32_t sign_bits_ = 0;
  float o_[kRowTiles][kDim / 8][4] = {};
  RowState state_[kRowTiles][2];  ///< of rows g and g + 8; l is the sum over this lane's keys until finish()
};

}  // namespace saccade::SACCADE_MACHINE::tile
