// The kernel: a block takes one tile of queries of one head. Every group of warps walks through its share of
// the key tiles, copies running ahead of it; then the groups' results meet in shared memory and are written
// 16 bytes at a time.
#pragma once

#include <algorithm>

#include "cuda/ptx/registers.h"
#include "cuda/sm80/any_unit.h"
#include "cuda/sm80/dense_unit.h"
#include "cuda/sm80/results.h"
#include "cuda/tile/warp_rows.h"

namespace saccade::SACCADE_MACHINE::sm80 {

/// What blocks of an instance work on.
template <class T, class Instance>
using UnitOf =
    std::conditional_t<Instance::kConfig.general != 0, AnyUnit<T, Instance>, DenseUnit<T, Instance>>;
template <class T, class Instance>
using ArgumentsOf = typename UnitOf<T, Instance>::Arguments;

template <class T, class Instance>
SACCADE_KERNEL(Instance::kConfig.threads(), Instance::kConfig.blocks)
attend(SACCADE_ARGUMENT(ArgumentsOf<T, Instance>) a) {
  constexpr Config kConfig = Instance::kConfig;
  using Memory = Shared<T, Instance>;
  using Rows = tile::WarpRows<T, kConfig.dim, kConfig.score_keys, kConfig.row_tiles, kConfig.keeps_queries(),
                              kConfig.bold(), kConfig.early()>;
  constexpr int kKeys = kConfig.tile_keys;
  constexpr int kGroups = kConfig.key_groups;
  static_assert(kConfig.keeps_queries() || kGroups == 1, "groups would share queries that a warp may change");
  constexpr int kStages = kConfig.stages;
  const tile::Share share = a.queue.take(ptx::block_index(), a.numbers);
  using Unit = UnitOf<T, Instance>;
  Unit unit(a, share.batch, share.head);
  const int first_row = share.tile * kConfig.rows();
  if (first_row >= unit.len_q()) return;  // the tiles are those of the longest sequence
  const auto scores = unit.scores();
  const int end_row = std::min(first_row + kConfig.rows(), unit.len_q());
  tile::TileRange tiles = tile::tiles_of<kKeys>(scores.span, first_row, end_row - 1);
  if (a.blocks > 1) tiles = tiles.part(share.block, a.split.count);
  const int thread = ptx::thread_index();
  const int group = kGroups == 1 ? 0 : thread / kConfig.group_threads();
  // A ring of stages. Keys and values are groups of copies of their own: with few tiles the first product
  // need not wait for values.
  constexpr int kStage = 2 * Memory::kTile;
  const ptx::SharedPointer<T> ring = Memory::ring(group);
  typename Unit::Tiles copies(unit, (tiles.first + group) * kKeys, thread % kConfig.group_threads());
  const auto fetch = [&](int place, int t) {
    copies.copy(ring + place, ring + (place + Memory::kTile), t * kKeys, t < tiles.last);
  };
  const auto meet = [&] {
    if constexpr (kGroups == 1) {
      ptx::sync_block();
    } else {  // numbers that the compiler knows: racecheck may not follow one in a register
      SACCADE_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        if (group == g) ptx::sync_some(1 + g, kConfig.group_threads());
      }
    }
  };
  unit.copy_queries(Memory::queries(), first_row, thread);
  const int warp_row = ptx::warp_index() % kConfig.row_warps * Rows::kRows;
  Rows rows;
  const auto attend_tile = [&](int place, int t, tile::Coverage coverage, const auto& before_values,
                               const auto&... hooks) {
    rows.template attend_tile<kKeys>(ring + place, ring + (place + Memory::kTile), scores,
                                     first_row + warp_row, t * kKeys, coverage, before_values, hooks...);
  };
  if constexpr (kConfig.holds_all()) {
    ptx::commit_copies();
    const int t = tiles.first + group;
    fetch(0, t);
    unit.look_ahead(first_row + thread / (kConfig.dim / 8));
    ptx::wait_copies<2>();
    ptx::sync_block();  // the queries
    rows.load_queries(Memory::queries(), warp_row, scores.scale);
    ptx::wait_copies<1>();
    meet();  // this group's keys
    const auto wait_for_values = [&] {
      ptx::wait_copies<0>();
      meet();
    };
    if (t < tiles.last) {
      attend_tile(0, t, tiles.coverage(t), wait_for_values);
    } else {
      wait_for_values();  // all groups meet equally often (see below)
    }
  } else {
    constexpr bool kInHalves = kGroups > 1 && kConfig.score_keys == kKeys;
    constexpr int kOnTheirWay = 2 * (kStages - 2);  // copies of the tiles after this one
    // With many groups copies take long to start: the scores, whose keys are there, come first.
    constexpr bool kScoresFirst = kInHalves && kGroups > 2;
    static_assert(!kScoresFirst || !kConfig.bold());
    // Values of a tile that is not in halves come with its keys. But bold warps are careful with the first
    // tile, apart from the others: there a wait for its values costs nobody anything.
    constexpr bool kFirstInHalves = kInHalves || kConfig.bold();
    const auto wait_for_keys = [] { ptx::wait_copies<kOnTheirWay + (kInHalves ? 1 : 0)>(); };
    // A tile's turn comes when it has arrived and nobody reads the stage before it any more.
    constexpr bool kTellsEarly = kConfig.tells_early();
    if constexpr (kTellsEarly) {
      if (thread == 0) ptx::init_mbarrier(Memory::turn(), kConfig.threads());
    }
    [[maybe_unused]] int parity = 0;
    const auto wait_for_turn = [&] {
      if constexpr (kTellsEarly) {
        ptx::wait_mbarrier(Memory::turn(), parity);
        parity ^= 1;
      } else {
        wait_for_keys();
        meet();
      }
    };
    const auto tell = [&] {
      if constexpr (kTellsEarly) {
        wait_for_keys();
        ptx::arrive_mbarrier(Memory::turn());
      }
    };
    SACCADE_UNROLL
    for (int n = 0; n < kStages - 1; ++n) {
      copies.look_ahead();
      fetch(n * kStage, tiles.first + group + n * kGroups);
    }
    unit.look_ahead(first_row + thread / (kConfig.dim / 8));
    ptx::wait_copies<kOnTheirWay + (kFirstInHalves ? 1 : 0)>();
    ptx::sync_block();  // the queries, and every group's first keys
    rows.load_queries(Memory::queries(), warp_row, scores.scale);
    // All groups go round equally often, whether or not there is a tile left for them: racecheck takes warps
    // that have passed different numbers of barriers for unordered.
    int take = 0;
    bool more = false;
    // Kept where the compiler finds registers for it; else worked out again for every tile.
    const int whole_first = ptx::kHopper ? ptx::worked_out(tiles.whole_first) : 0;
    const int whole_last = ptx::kHopper ? ptx::worked_out(tiles.whole_last) : 0;
    for (int some = tiles.first; some < tiles.last; some += kGroups, more = true) {
      if constexpr (!kScoresFirst) copies.look_ahead();
      if (more) wait_for_turn();
      const int t = some + group;
      const auto coverage = !ptx::kHopper                        ? tiles.coverage(t)
                            : t >= whole_first && t < whole_last ? tile::Coverage::full
                                                                 : tile::Coverage::partial;
      const auto wait_for_values = [&] {
        if (kInHalves || (kFirstInHalves && !more)) {
          ptx::wait_copies<kOnTheirWay + 2>();
          meet();
        }
      };
      const auto fetch_next = [&] {
        if constexpr (kScoresFirst) copies.look_ahead();
        fetch(take == 0 ? (kStages - 1) * kStage : take - kStage, t + (kStages - 1) * kGroups);
      };
      const bool has_tile = kGroups == 1 || t < tiles.last;
      if constexpr (kConfig.early()) {
        if (has_tile) rows.look_at(ring + take);
      }
      if (!kScoresFirst || !has_tile) fetch_next();
      const auto after_scores = [&] {
        if constexpr (kScoresFirst) fetch_next();
      };
      if constexpr (kTellsEarly) {
        attend_tile(take, t, coverage, wait_for_values, after_scores, tell);
      } else if (has_tile) {
        attend_tile(take, t, coverage, wait_for_values, after_scores);
      } else {
        wait_for_values();
      }
      take = take == (kStages - 1) * kStage ? 0 : take + kStage;
    }
  }
  ptx::wait_copies<0>();
  rows.finish();
  const Part part{a.blocks, share.block, a.blocks > 1 ? a.queue.number(share, a.numbers) : 0};
  const Results<T, Instance, Unit> results(unit, a.split, part, first_row);
  if (kGroups == 1 && part.blocks == 1) {
    results.write_alone(rows, warp_row);
  } else {
    results.write(rows, group, warp_row);
  }
}

}  // namespace saccade::SACCADE_MACHINE::sm80
