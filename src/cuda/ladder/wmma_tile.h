// What the two WMMA rungs share: a tile of 64 queries against tiles of 64 keys, scores by WMMA into shared
// memory, and the softmax of a tile there.
#pragma once

#include "cuda/ladder/copy_tile.h"
#include "cuda/ladder/rung.h"
#include "cuda/ptx/barrier.h"
#include "cuda/ptx/warp.h"
#include "cuda/ptx/wmma.h"

namespace saccade::SACCADE_MACHINE::ladder {

constexpr int kWmmaRows = 64;
constexpr int kWmmaKeys = 64;
constexpr int kWmmaWarps = 4;
constexpr int kWmmaThreads = kWmmaWarps * ptx::kWarpThreads;
constexpr int kWmmaWarpRows = kWmmaRows / kWmmaWarps;  // a warp keeps its 16 rows throughout
constexpr int kFragment = 16;

/// Rows are padded by 16 bytes, so that the rows of a fragment start in different banks.
template <int kDim>
struct WmmaShared {
  static constexpr int kStride = kDim + 8;
  static constexpr int kScoreStride = kWmmaKeys + 4;
  static constexpr int kWeightStride = kWmmaKeys + 8;
  static constexpr int kOutputStride = kDim + 4;
  alignas(32) F16 q[kWmmaRows][kStride];
  alignas(32) F16 kv[kWmmaKeys][kStride];  ///< the keys, then the values: 99 KB is all that Ada has
  alignas(32) float scores[kWmmaRows][kScoreStride];
  alignas(32) F16 weights[kWmmaRows][kWeightStride];
  alignas(32) float o[kWmmaRows][kOutputStride];
  float keep[kWmmaRows];  ///< what the row's output so far is worth
};

/// The scores of this warp's rows against the tile of keys.
template <int kDim>
SACCADE_DEVICE void score_tile(WmmaShared<kDim>& shared) {
  const int first = ptx::warp_index() * kWmmaWarpRows;
  SACCADE_UNROLL
  for (int j = 0; j < kWmmaKeys; j += kFragment) {
    ptx::FragmentD d;
    ptx::clear_fragment(d);
    SACCADE_UNROLL
    for (int c = 0; c < kDim; c += kFragment) {
      ptx::FragmentA a;
      ptx::FragmentB<true> b;
      ptx::load_fragment(a, &shared.q[first][c], WmmaShared<kDim>::kStride);
      ptx::load_fragment(b, &shared.kv[j][c], WmmaShared<kDim>::kStride);
      ptx::multiply_add(d, a, b);
    }
    ptx::store_fragment(&shared.scores[first][j], d, WmmaShared<kDim>::kScoreStride);
  }
  ptx::sync_warp();
}

/// The softmax of this warp's rows: weights in place of scores, and `keep`. Two lanes share a row; both
/// return its state. Scores are scaled here.
template <int kDim>
SACCADE_DEVICE void weigh_tile(WmmaShared<kDim>& shared, const Arguments& a, const Unit& unit, int first_key,
                               tile::RowState& state) {
  constexpr int kHalf = kWmmaKeys / 2;
  const int row = ptx::warp_index() * kWmmaWarpRows + ptx::lane_index() / 2;
  const int from = ptx::lane_index() % 2;  // the even or the odd keys: neighbours fall into different banks
  const int end = a.span.end(unit.first_row + row) - first_key;
  float max = -tile::kInfinity;
  for (int n = 0; n < kHalf; ++n) {
    const int j = 2 * n + from;
    if (j < end) max = tile::larger(a.scale * ptx::load(&shared.scores[row][j]), max);
  }
  max = tile::larger(max, ptx::shuffle_xor(max, 1));
  const float keep = state.raise(max);
  float sum = 0;
  for (int n = 0; n < kHalf; ++n) {
    const int j = 2 * n + from;
    const float weight =
        j < end ? ptx::fast_exp2(a.scale * ptx::load(&shared.scores[row][j]) - state.base()) : 0.0F;
    sum += weight;
    ptx::store(&shared.weights[row][j], ptx::from_float<F16>(weight));
  }
  state.l = state.l * keep + sum + ptx::shuffle_xor(sum, 1);
  if (from == 0) ptx::store(&shared.keep[row], keep);
  ptx::sync_warp();
}

/// Writes this warp's rows of `o`, divided by the sums of their weights.
template <int kDim>
SACCADE_DEVICE void write_tile(WmmaShared<kDim>& shared, const Arguments& a, const Unit& unit,
                               const tile::RowState& state) {
  for (int r = 0; r < kWmmaWarpRows; ++r) {
    const int row = ptx::warp_index() * kWmmaWarpRows + r;
    const float weight = ptx::shuffle(state.weight(), 2 * r);
    if (unit.first_row + row >= a.len_q) continue;
    for (int d = ptx::lane_index(); d < kDim; d += ptx::kWarpThreads) {
      ptx::store(unit.o + (unit.first_row + row) * a.o.row + d,
                 ptx::from_float<F16>(ptx::load(&shared.o[row][d]) * weight));
    }
  }
}

/// The loop over key tiles; add_values(shared) does what differs between the rungs: o = keep * o + weights *
/// v.
template <int kDim, class AddValues>
SACCADE_DEVICE void attend_by_wmma(const Arguments& a, AddValues&& add_values) {
  auto& shared = *reinterpret_cast<WmmaShared<kDim>*>(ptx::shared_memory());
  constexpr int kStride = WmmaShared<kDim>::kStride;
  const Unit unit = unit_of(a, ptx::block_index().x, kWmmaRows);
  copy_tile<kWmmaRows, kDim, kStride, kWmmaThreads>(&shared.q[0][0], unit.q, a.q.row, unit.first_row,
                                                    a.len_q);
  for (int n = ptx::thread_index(); n < kWmmaRows * kDim; n += kWmmaThreads) {
    ptx::store(&shared.o[n / kDim][n % kDim], 0.0F);
  }
  tile::RowState state;
  const tile::TileRange tiles =
      tile::tiles_of<kWmmaKeys>(a.span, unit.first_row, unit.first_row + kWmmaRows - 1);
  for (int t = tiles.first; t < tiles.last; ++t) {
    ptx::sync_block();
    copy_tile<kWmmaKeys, kDim, kStride, kWmmaThreads>(&shared.kv[0][0], unit.k, a.k.row, t * kWmmaKeys,
                                                      a.span.len_kv);
    ptx::sync_block();
    score_tile(shared);
    ptx::sync_block();
    copy_tile<kWmmaKeys, kDim, kStride, kWmmaThreads>(&shared.kv[0][0], unit.v, a.v.row, t * kWmmaKeys,
                                                      a.span.len_kv);
    weigh_tile(shared, a, unit, t * kWmmaKeys, state);
    ptx::sync_block();
    add_values(shared);
    ptx::sync_warp();
  }
  ptx::sync_block();
  write_tile(shared, a, unit, state);
}

}  // namespace saccade::SACCADE_MACHINE::ladder
