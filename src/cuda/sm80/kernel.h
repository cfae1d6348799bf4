// The kernel: a block takes one tile of queries of one head. Every group of warps walks through its share of
// the key tiles, copies running ahead of it; then the groups' results meet in shared memory and are written
// 16 bytes at a time.
#pragma once

#include <algorithm>

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
  using Rows = tile::WarpRows<T, kConfig.dim, kConfig.tile_keys, kConfig.score_keys, kConfig.row_tiles,
                              kConfig.keeps_queries()>;
  constexpr int kKeys = kConfig.tile_keys;
  constexpr int kGroups = kConfig.key_groups;
  constexpr int kStages = kConfig.stages;
  const tile::Work work = a.queue.take(a.split.tile());
  const UnitOf<T, Instance> unit(a, work.head);
  const int first_row = work.tile * kConfig.rows();
  if (first_row >= unit.len_q()) return;  // the tiles are those of the longest sequence
  const auto scores = unit.scores();
  const int end_row = std::min(first_row + kConfig.rows(), unit.len_q());
  tile::TileRange tiles = tile::tiles_of<kKeys>(scores.span, first_row, end_row - 1);
  if (a.split.blocks() > 1) tiles = tiles.part(a.split.block(), a.split.count);
  const int thread = ptx::thread_index();
  const int group = thread / kConfig.group_threads();
  const int group_thread = thread % kConfig.group_threads();

  // Keys and values are groups of copies of their own, so that the first product need not wait for values.
  // Fetching always closes two groups, so that they can be counted.
  const auto fetch = [&](int t, int n) {  // tile t is the group's n-th
    const ptx::SharedPointer<T> to = Memory::stage(group, n % kStages);
    if (t < tiles.last) unit.template copy_keys<kConfig.group_threads()>(to, t * kKeys, group_thread);
    ptx::commit_copies();
    if (t < tiles.last)
      unit.template copy_values<kConfig.group_threads()>(to + Memory::kTile, t * kKeys, group_thread);
    ptx::commit_copies();
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
  unit.template copy_queries<kConfig.threads()>(Memory::queries(), first_row, thread);
  SACCADE_UNROLL
  for (int n = 0; n < kStages - 1; ++n) fetch(tiles.first + group + n * kGroups, n);

  const int warp_row = ptx::warp_index() % kConfig.row_warps * Rows::kRows;
  constexpr int kOnTheirWay = 2 * (kStages - 2);  // of the tiles after this one
  constexpr bool kInHalves = kConfig.score_keys == kKeys;
  Rows rows;
  ptx::wait_copies<kOnTheirWay + (kInHalves ? 1 : 0)>();
  ptx::sync_block();  // the queries, and every group's first keys
  rows.load_queries(Memory::queries(), warp_row, scores.scale);
  int taken = 0;
  for (int t = tiles.first + group; t < tiles.last; t += kGroups, ++taken) {
    const ptx::SharedPointer<T> keys = Memory::stage(group, taken % kStages);
    const ptx::SharedPointer<T> values = keys + Memory::kTile;
    if (taken > 0) {
      ptx::wait_copies<kOnTheirWay + (kInHalves ? 1 : 0)>();
      meet();  // these keys are here, and nobody reads the stage before any more
    }
    fetch(t + (kStages - 1) * kGroups, taken + kStages - 1);
    rows.attend_tile(keys, values, scores, first_row + warp_row, t * kKeys, tiles.coverage(t), [&] {
      if constexpr (kInHalves) {
        ptx::wait_copies<kOnTheirWay + 2>();
        meet();
      }
    });
  }
  ptx::wait_copies<0>();
  rows.finish();
  Results<T, Instance, UnitOf<T, Instance>>(unit, a.split, first_row).write(rows, group, warp_row);
}

}  // namespace saccade::SACCADE_MACHINE::sm80
