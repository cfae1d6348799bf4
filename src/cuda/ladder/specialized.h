// Producer and consumer warps around a ring of key and value tiles: what rungs 9 and 10 share.
//
// Two mbarriers a stage: at `full` the producer's lanes arrive by themselves when their copies are there, so
// the producer waits for nothing but a free stage; at `empty` every consumer arrives when it has read the
// tile (one lane for its warp would do, but racecheck does not follow the order through the warp's barrier).
#pragma once

#include "cuda/ladder/rung.h"
#include "cuda/ptx/barrier.h"
#include "cuda/ptx/mbarrier.h"
#include "cuda/tile/copy.h"
#include "cuda/tile/warp_rows.h"

namespace saccade::SACCADE_MACHINE::ladder {

constexpr int kConsumerWarps = 4;
constexpr int kConsumers = kConsumerWarps * ptx::kWarpThreads;
constexpr int kSpecializedThreads = kConsumers + ptx::kWarpThreads;  // and one warp that produces
constexpr int kSpecializedRows = 16 * kConsumerWarps;
constexpr int kSpecializedKeys = 64;  // in a stage of the ring
constexpr int kConsumerBarrier = 1;   // the named barrier where only consumers meet

template <int kDim>
struct Ring {
  static constexpr int kStages = kDim == 64 ? 3 : 2;  // within the 99 KB of Ada
  F16 q[kSpecializedRows * kDim];
  F16 k[kStages][kSpecializedKeys * kDim];
  F16 v[kStages][kSpecializedKeys * kDim];
  ptx::Mbarrier full[kStages], empty[kStages];

  [[nodiscard]] SACCADE_DEVICE ptx::SharedPointer<F16> keys(int stage) const {
    return ptx::SharedPointer<F16>(k[0]) + stage * kSpecializedKeys * kDim;
  }
  [[nodiscard]] SACCADE_DEVICE ptx::SharedPointer<F16> values(int stage) const {
    return ptx::SharedPointer<F16>(v[0]) + stage * kSpecializedKeys * kDim;
  }
  [[nodiscard]] SACCADE_DEVICE ptx::SharedPointer<F16> queries() const { return ptx::SharedPointer<F16>(q); }

  /// By the whole block, before anything else.
  SACCADE_DEVICE void start() {
    if (ptx::thread_index() == 0) {
      for (int stage = 0; stage < kStages; ++stage) {
        ptx::init_mbarrier(full + stage, ptx::kWarpThreads);
        ptx::init_mbarrier(empty + stage, kConsumers);
      }
    }
    ptx::sync_block();
  }
};

/// Where a side of the ring stands: the stage it is at, and the parity of the rounds through the ring.
template <int kStages>
struct RingPosition {
  int stage = 0, parity = 0;
  SACCADE_DEVICE void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

/// The tiles of keys that a unit needs.
SACCADE_DEVICE tile::TileRange tiles_of(const Arguments& a, const Unit& unit) {
  return tile::tiles_of<kSpecializedKeys>(a.span, unit.first_row, unit.first_row + kSpecializedRows - 1);
}

/// The producer's side: fills tiles in the order in which the consumers will ask for them.
template <int kDim>
class Producer {
  static constexpr int kStages = Ring<kDim>::kStages;

 public:
  SACCADE_DEVICE explicit Producer(Ring<kDim>& ring) : ring_(ring) {}

  SACCADE_DEVICE void fill(const Arguments& a, const Unit& unit, int first_key) {
    ptx::wait_mbarrier(ring_.empty + at_.stage, at_.parity ^ 1);  // at once in the first round
    constexpr int kKeys = kSpecializedKeys;
    const int lane = ptx::lane_index();
    tile::copy_rows<F16, kKeys, kDim, ptx::kWarpThreads>(ring_.keys(at_.stage), unit.k, a.k.row, first_key,
                                                         a.span.len_kv, lane);
    tile::copy_rows<F16, kKeys, kDim, ptx::kWarpThreads>(ring_.values(at_.stage), unit.v, a.v.row, first_key,
                                                         a.span.len_kv, lane);
    ptx::arrive_when_copied(ring_.full + at_.stage);
    at_.advance();
  }
  /// Stays until the last copies are there.
  SACCADE_DEVICE void finish() {
    ptx::commit_copies();
    ptx::wait_copies<0>();
  }

 private:
  Ring<kDim>& ring_;
  RingPosition<kStages> at_;
};

/// The consumers' side: `at` is where this warp stands in the ring.
template <int kDim>
SACCADE_DEVICE void consume_unit(Ring<kDim>& ring, const Arguments& a, const Unit& unit,
                                 RingPosition<Ring<kDim>::kStages>& at) {
  constexpr int kKeys = kSpecializedKeys;
  const int row = unit.first_row + 16 * ptx::warp_index();
  const tile::TileRange tiles = tiles_of(a, unit);
  // The queries are the consumers' own business, the first barrier being there for the unit before.
  ptx::sync_some(kConsumerBarrier, kConsumers);
  tile::copy_rows<F16, kSpecializedRows, kDim, kConsumers>(ring.queries(), unit.q, a.q.row, unit.first_row,
                                                           a.len_q, ptx::thread_index());
  ptx::commit_copies();
  ptx::wait_copies<0>();
  ptx::sync_some(kConsumerBarrier, kConsumers);
  tile::WarpRows<F16, kDim> rows;
  rows.load_queries(ring.queries(), 16 * ptx::warp_index(), a.split_scale);
  for (int t = tiles.first; t < tiles.last; ++t, at.advance()) {
    ptx::wait_mbarrier(ring.full + at.stage, at.parity);
    rows.template attend_tile<kKeys>(ring.keys(at.stage), ring.values(at.stage),
                                     tile::PlainScores{a.span, a.split_scale}, row, t * kKeys,
                                     tiles.coverage(t), [] {});
    ptx::arrive_mbarrier(ring.empty + at.stage);
  }
  rows.write(unit.o, a.o.row, row, a.len_q);
}

}  // namespace saccade::SACCADE_MACHINE::ladder
