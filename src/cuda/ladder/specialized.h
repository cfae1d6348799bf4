// Producer and consumer warps around a ring of key and value tiles: what rungs 9 and 10 share.
//
// Two named barriers a stage: `full` is where the producer announces a tile, `empty` where the consumers give
// its buffer back. Whoever only announces arrives without waiting.
#pragma once

#include "cuda/ladder/rung.h"
#include "cuda/ptx/barrier.h"
#include "cuda/tile/copy.h"
#include "cuda/tile/warp_rows.h"

namespace saccade::SACCADE_MACHINE::ladder {

constexpr int kConsumerWarps = 4;
constexpr int kConsumers = kConsumerWarps * ptx::kWarpThreads;
constexpr int kSpecializedThreads = kConsumers + ptx::kWarpThreads;  // and one warp that produces
constexpr int kSpecializedRows = 16 * kConsumerWarps;
constexpr int kSpecializedKeys = 64;  // in a stage of the ring

template <int kDim>
struct Ring {
  static constexpr int kStages = kDim == 64 ? 3 : 2;  // within the 99 KB of Ada
  F16 q[kSpecializedRows * kDim];
  F16 k[kStages][kSpecializedKeys * kDim];
  F16 v[kStages][kSpecializedKeys * kDim];

  [[nodiscard]] SACCADE_DEVICE ptx::SharedPointer<F16> keys(int stage) const {
    return ptx::SharedPointer<F16>(k[0]) + stage * kSpecializedKeys * kDim;
  }
  [[nodiscard]] SACCADE_DEVICE ptx::SharedPointer<F16> values(int stage) const {
    return ptx::SharedPointer<F16>(v[0]) + stage * kSpecializedKeys * kDim;
  }
  [[nodiscard]] SACCADE_DEVICE ptx::SharedPointer<F16> queries() const { return ptx::SharedPointer<F16>(q); }

  static SACCADE_DEVICE int full(int stage) { return 1 + stage; }
  static SACCADE_DEVICE int empty(int stage) { return 1 + kStages + stage; }
  /// Only consumers meet here.
  static constexpr int kConsumerBarrier = 1 + 2 * kStages;
};

/// The producer's side: fills tiles in the order in which the consumers will ask for them.
template <int kDim>
class Producer {
  static constexpr int kStages = Ring<kDim>::kStages;

 public:
  SACCADE_DEVICE explicit Producer(Ring<kDim>& ring) : ring_(ring) {}

  SACCADE_DEVICE void fill(const Arguments& a, const Unit& unit, int first_key) {
    const int stage = filled_ % kStages;
    if (filled_ >= kStages) ptx::sync_some(Ring<kDim>::empty(stage), kSpecializedThreads);
    constexpr int kKeys = kSpecializedKeys;
    const int lane = ptx::lane_index();
    tile::copy_rows<F16, kKeys, kDim, ptx::kWarpThreads>(ring_.keys(stage), unit.k, a.k.row, first_key,
                                                         a.span.len_kv, lane);
    tile::copy_rows<F16, kKeys, kDim, ptx::kWarpThreads>(ring_.values(stage), unit.v, a.v.row, first_key,
                                                         a.span.len_kv, lane);
    ptx::commit_copies();
    ++filled_;
    if (filled_ >= kStages) {  // one tile is announced while the next ones are on their way
      ptx::wait_copies<kStages - 1>();
      announce();
    }
  }
  /// Announces what is still on its way.
  SACCADE_DEVICE void finish() {
    ptx::wait_copies<0>();
    while (announced_ < filled_) announce();
  }

 private:
  SACCADE_DEVICE void announce() {
    ptx::arrive_some(Ring<kDim>::full(announced_ % kStages), kSpecializedThreads);
    ++announced_;
  }
  Ring<kDim>& ring_;
  int filled_ = 0, announced_ = 0;
};

/// The consumers' side: `taken` counts the tiles that this warp has used; `last` is how many there will be in
/// all.
template <int kDim>
SACCADE_DEVICE void consume_unit(Ring<kDim>& ring, const Arguments& a, const Unit& unit, int& taken,
                                 int last) {
  constexpr int kStages = Ring<kDim>::kStages;
  constexpr int kKeys = kSpecializedKeys;
  const int row = unit.first_row + 16 * ptx::warp_index();
  const tile::TileRange tiles =
      tile::tiles_of<kKeys>(a.span, unit.first_row, unit.first_row + kSpecializedRows - 1);
  // The queries are the consumers' own business, the first barrier being there for the unit before.
  ptx::sync_some(Ring<kDim>::kConsumerBarrier, kConsumers);
  tile::copy_rows<F16, kSpecializedRows, kDim, kConsumers>(ring.queries(), unit.q, a.q.row, unit.first_row,
                                                           a.len_q, ptx::thread_index());
  ptx::commit_copies();
  ptx::wait_copies<0>();
  ptx::sync_some(Ring<kDim>::kConsumerBarrier, kConsumers);
  tile::WarpRows<F16, kDim, kKeys> rows;
  rows.load_queries(ring.queries(), 16 * ptx::warp_index());
  for (int t = tiles.first; t < tiles.last; ++t, ++taken) {
    const int stage = taken % kStages;
    ptx::sync_some(Ring<kDim>::full(stage), kSpecializedThreads);
    rows.attend_tile(ring.keys(stage), ring.values(stage), a.scale, a.span, row, t * kKeys,
                     tiles.coverage(t));
    // The producer asks for the buffer only where it has another tile for it.
    if (taken + kStages < last) ptx::arrive_some(Ring<kDim>::empty(stage), kSpecializedThreads);
  }
  rows.write(unit.o, a.o.row, row, a.len_q);
}

/// The tiles of keys that a unit needs.
SACCADE_DEVICE tile::TileRange tiles_of(const Arguments& a, const Unit& unit) {
  return tile::tiles_of<kSpecializedKeys>(a.span, unit.first_row, unit.first_row + kSpecializedRows - 1);
}

}  // namespace saccade::SACCADE_MACHINE::ladder
