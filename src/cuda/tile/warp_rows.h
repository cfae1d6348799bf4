// One warp's 16 query rows against tiles of keys and values in swizzled shared memory: both products by mma,
// scores, weights and outputs in registers from beginning to end.
//
// The accumulator of the first product has the layout that the second wants of its left operand, so the
// weights never leave their lanes. With g = lane / 4, a lane holds pairs of neighbouring keys (columns) of
// rows g and g + 8.
#pragma once

#include "cuda/ptx/ldmatrix.h"
#include "cuda/ptx/memory.h"
#include "cuda/ptx/mma.h"
#include "cuda/ptx/warp.h"
#include "cuda/tile/keys.h"
#include "cuda/tile/softmax.h"
#include "cuda/tile/swizzle.h"

namespace saccade::SACCADE_MACHINE::tile {

/// T: F16 or BF16; kDim: of keys and values; kTileKeys: in a tile; kKeys: whose scores are alive at once (64
/// cost 32 more registers than 32, which is what a second block on a multiprocessor needs).
template <class T, int kDim, int kTileKeys, int kKeys = 32>
class WarpRows {
  static_assert(kDim % 16 == 0 && kKeys % 16 == 0 && kTileKeys % kKeys == 0);
  using Tile = SwizzledTile<kDim>;

 public:
  /// Takes the queries from rows [first_row, first_row + 16) of a swizzled tile.
  SACCADE_DEVICE void load_queries(ptx::SharedPointer<T> queries, int first_row) {
    SACCADE_UNROLL
    for (int c = 0; c < kDim / 16; ++c) {
      ptx::load_matrices(q_[c], queries + Tile::offset(first_row + lane() % 16, 16 * c + lane() / 16 * 8));
    }
  }

  /// Takes in one tile of kTileKeys keys, of which the mask leaves `coverage`. `row` is this warp's first
  /// row, `first_key` the tile's first key.
  SACCADE_DEVICE void attend_tile(ptx::SharedPointer<T> keys, ptx::SharedPointer<T> values, float scale,
                                  const KeySpan& span, int row, int first_key, Coverage coverage) {
    for (int j = 0; j < kTileKeys; j += kKeys) {
      if (coverage == Coverage::full) {
        attend<false>(keys + j * kDim, values + j * kDim, scale, span, row, first_key + j);
      } else {
        attend<true>(keys + j * kDim, values + j * kDim, scale, span, row, first_key + j);
      }
    }
  }

  /// Writes rows [row, row + 16) of the output, those below `rows`.
  SACCADE_DEVICE void write(T* o, std::int64_t stride, int row, int rows) {
    SACCADE_UNROLL
    for (int h = 0; h < 2; ++h) {
      state_[h].l += ptx::shuffle_xor(state_[h].l, 1);
      state_[h].l += ptx::shuffle_xor(state_[h].l, 2);
      const float weight = state_[h].weight();
      const int i = row + lane() / 4 + 8 * h;
      if (i >= rows) continue;
      SACCADE_UNROLL
      for (int n = 0; n < kDim / 8; ++n) {
        const std::uint32_t pair = ptx::pack<T>(o_[n][2 * h] * weight, o_[n][2 * h + 1] * weight);
        ptx::store(reinterpret_cast<std::uint32_t*>(o + i * stride + 8 * n + lane() % 4 * 2), pair);
      }
    }
  }

 private:
  /// Takes in kKeys keys; with kMasked, those outside of the span are hidden.
  template <bool kMasked>
  SACCADE_DEVICE void attend(ptx::SharedPointer<T> keys, ptx::SharedPointer<T> values, float scale,
                             const KeySpan& span, int row, int first_key) {
    float s[kKeys / 8][4];
    SACCADE_UNROLL
    for (auto& part : s) {
      SACCADE_UNROLL
      for (float& x : part) x = 0;
    }
    const int my_key = (lane() / 16 * 8 + lane() % 8) * kDim;
    SACCADE_UNROLL
    for (int c = 0; c < kDim / 16; ++c) {
      SACCADE_UNROLL
      for (int j = 0; j < kKeys / 16; ++j) {
        std::uint32_t k[4];
        ptx::load_matrices(k, keys + (my_key + 16 * j * kDim + chunk(c, lane() / 8 % 2)));
        ptx::multiply_add<T>(s[2 * j], q_[c], k[0], k[1]);
        ptx::multiply_add<T>(s[2 * j + 1], q_[c], k[2], k[3]);
      }
    }

    // Limits of the two rows, counted from this lane's first key.
    int begin[2] = {};
    int end[2] = {};
    if constexpr (kMasked) {
      SACCADE_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int i = row + lane() / 4 + 8 * h;
        begin[h] = span.begin(i) - first_key - lane() % 4 * 2;
        end[h] = span.end(i) - first_key - lane() % 4 * 2;
      }
    }
    float max[2] = {-kInfinity, -kInfinity};
    SACCADE_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      SACCADE_UNROLL
      for (int e = 0; e < 4; ++e) {
        s[n][e] *= scale;
        if constexpr (kMasked) {
          const int j = 8 * n + e % 2;
          if (j < begin[e / 2] || j >= end[e / 2]) s[n][e] = -kInfinity;
        }
        max[e / 2] = larger(s[n][e], max[e / 2]);
      }
    }
    float keep[2];
    float base[2];
    SACCADE_UNROLL
    for (int h = 0; h < 2; ++h) {
      max[h] = larger(max[h], ptx::shuffle_xor(max[h], 1));
      max[h] = larger(max[h], ptx::shuffle_xor(max[h], 2));
      keep[h] = state_[h].raise(max[h]);
      state_[h].l *= keep[h];
      base[h] = state_[h].base();
    }
    SACCADE_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      SACCADE_UNROLL
      for (int e = 0; e < 4; ++e) {
        s[n][e] = ptx::fast_exp2(s[n][e] - base[e / 2]);
        state_[e / 2].l += s[n][e];
      }
    }
    SACCADE_UNROLL
    for (auto& part : o_) {
      SACCADE_UNROLL
      for (int e = 0; e < 4; ++e) part[e] *= keep[e / 2];
    }

    const int my_value = lane() % 16 * kDim;
    SACCADE_UNROLL
    for (int j = 0; j < kKeys / 16; ++j) {
      const std::uint32_t p[4] = {
          ptx::pack<T>(s[2 * j][0], s[2 * j][1]), ptx::pack<T>(s[2 * j][2], s[2 * j][3]),
          ptx::pack<T>(s[2 * j + 1][0], s[2 * j + 1][1]), ptx::pack<T>(s[2 * j + 1][2], s[2 * j + 1][3])};
      SACCADE_UNROLL
      for (int c = 0; c < kDim / 16; ++c) {
        std::uint32_t v[4];
        ptx::load_matrices_transposed(v, values + (my_value + 16 * j * kDim + chunk(c, lane() / 16)));
        ptx::multiply_add<T>(o_[2 * c], p, v[0], v[1]);
        ptx::multiply_add<T>(o_[2 * c + 1], p, v[2], v[3]);
      }
    }
  }

  static SACCADE_DEVICE int lane() { return ptx::lane_index(); }
  /// Tile::offset within a row, for rows whose number is this lane's modulo 8: half `half` (0 or 1) of column
  /// block c. Written out so that the XOR is with a constant and few addresses are alive.
  static SACCADE_DEVICE int chunk(int c, int half) {
    return ((half ^ (lane() % 8)) ^ (2 * c)) * Tile::kChunk;
  }

  std::uint32_t q_[kDim / 16][4];
  float o_[kDim / 8][4] = {};
  RowState state_[2];  ///< of rows g and g + 8; l is the sum over this lane's keys alone until write()
};

}  // namespace saccade::SACCADE_MACHINE::tile
