// The kernel: a block takes one tile of queries of one head. Every group of warps walks through its share of
// the key tiles, copies running ahead of it; then the groups' results meet in shared memory and are written
// 16 bytes at a time.
#pragma once

#include "cuda/ptx/barrier.h"
#include "cuda/sm80/any_unit.h"
#include "cuda/sm80/dense_unit.h"
#include "cuda/tile/warp_rows.h"

namespace saccade::SACCADE_MACHINE::sm80 {

/// What blocks of an instance work on.
template <class T, class Instance>
using UnitOf =
    std::conditional_t<Instance::kConfig.general != 0, AnyUnit<T, Instance>, DenseUnit<T, Instance>>;
template <class T, class Instance>
using ArgumentsOf = typename UnitOf<T, Instance>::Arguments;

/// Shared memory: the queries, then the rings of keys and values; when those are done, the groups' partial
/// results in their place. The states of rows come last.
template <class T, class Instance>
struct Shared {
  static constexpr Config kConfig = Instance::kConfig;
  static constexpr int kTile = kConfig.tile_keys * kConfig.dim;

  static SACCADE_DEVICE ptx::SharedPointer<T> queries() {
    return ptx::SharedPointer<T>(reinterpret_cast<T*>(ptx::shared_memory()));
  }
  /// The keys of a stage of a group's ring; the values come behind them.
  static SACCADE_DEVICE ptx::SharedPointer<T> stage(int group, int n) {
    return queries() + (kConfig.rows() * kConfig.dim + (group * kConfig.stages + n) * 2 * kTile);
  }
  static SACCADE_DEVICE float* partial(int group, int row) {
    return reinterpret_cast<float*>(ptx::shared_memory()) +
           (group * kConfig.rows() + row) * kConfig.partial_stride();
  }
  /// Maximum and sum of a row in a group.
  static SACCADE_DEVICE ptx::Bytes8* state(int group, int row) {
    constexpr std::size_t kStates = sizeof(ptx::Bytes8) * kConfig.key_groups * kConfig.rows();
    return reinterpret_cast<ptx::Bytes8*>(ptx::shared_memory() + (kConfig.shared_bytes() - kStates)) +
           group * kConfig.rows() + row;
  }
};

/// The bits of `yes` or `no` as a number. By value: of two array elements, ?: would choose the address, and
/// both arrays would have to lie in memory.
SACCADE_DEVICE float float_of(bool which, std::uint32_t yes, std::uint32_t no) {
  return std::bit_cast<float>(which ? yes : no);
}

/// Adds up the groups' results and writes the rows from first_row on, in the order of the groups, so that the
/// bits are always the same.
template <class T, class Instance, class Rows>
SACCADE_DEVICE void write_results(const UnitOf<T, Instance>& unit, const Rows& rows, int group, int warp_row,
                                  int first_row) {
  constexpr Config kConfig = Instance::kConfig;
  using Memory = Shared<T, Instance>;
  ptx::sync_block();  // nobody reads keys, values or queries any more
  rows.for_each_row([&](int i, const tile::RowState& state) {
    if (ptx::lane_index() % 4 != 0) return;
    ptx::store(Memory::state(group, warp_row + i),
               {{std::bit_cast<std::uint32_t>(state.m), std::bit_cast<std::uint32_t>(state.l)}});
  });
  rows.for_each_pair([&](int i, int column, float x, float y) {
    ptx::store(reinterpret_cast<ptx::Bytes8*>(Memory::partial(group, warp_row + i) + column),
               {{std::bit_cast<std::uint32_t>(x), std::bit_cast<std::uint32_t>(y)}});
  });
  ptx::sync_block();

  const float sink = unit.sink();
  constexpr int kChunks = kConfig.dim / 8;  // a thread writes 8 numbers, 16 bytes
  for (int n = ptx::thread_index(); n < kConfig.rows() * kChunks; n += kConfig.threads()) {
    const int i = n / kChunks;
    const int column = n % kChunks * 8;
    if (first_row + i >= unit.len_q()) continue;
    tile::RowState all{.m = sink};
    tile::RowState states[kConfig.key_groups];
    SACCADE_UNROLL
    for (int g = 0; g < kConfig.key_groups; ++g) {
      const ptx::Bytes8 bits = ptx::load(Memory::state(g, i));
      states[g] = {std::bit_cast<float>(bits.words[0]), std::bit_cast<float>(bits.words[1])};
      all.m = tile::larger(all.m, states[g].m);
    }
    if (sink != -tile::kInfinity) all.l = ptx::fast_exp2(sink - all.m);
    float sum[8] = {};
    SACCADE_UNROLL
    for (int g = 0; g < kConfig.key_groups; ++g) {
      const float share = states[g].l == 0 ? 0.0F : ptx::fast_exp2(states[g].m - all.m);
      all.l += share * states[g].l;
      // Every other four threads read their second half first: else two of eight would want the same banks.
      const bool swapped = n / 4 % 2 == 1;
      const auto* from = reinterpret_cast<const ptx::Bytes16*>(Memory::partial(g, i) + column);
      const ptx::Bytes16 one = ptx::load(from + (swapped ? 1 : 0));
      const ptx::Bytes16 other = ptx::load(from + (swapped ? 0 : 1));
      SACCADE_UNROLL
      for (int e = 0; e < 4; ++e) {
        sum[e] = ptx::fma(share, float_of(swapped, other.words[e], one.words[e]), sum[e]);
        sum[4 + e] = ptx::fma(share, float_of(swapped, one.words[e], other.words[e]), sum[4 + e]);
      }
    }
    const float weight = all.weight();
    SACCADE_UNROLL
    for (int e = 0; e < 8; ++e) sum[e] *= weight;
    unit.write(first_row + i, column, sum);
    if (column == 0) unit.write_lse(first_row + i, all);
  }
}

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
  const tile::Work work = a.queue.take(ptx::block_index().x);
  const UnitOf<T, Instance> unit(a, work.head);
  const int first_row = work.tile * kConfig.rows();
  if (first_row >= unit.len_q()) return;  // the tiles are those of the longest sequence
  const auto scores = unit.scores();
  const tile::TileRange tiles = tile::tiles_of<kKeys>(scores.span, first_row, first_row + kConfig.rows() - 1);
  const int thread = ptx::thread_index();
  const int group = thread / kConfig.group_threads();
  const int group_thread = thread % kConfig.group_threads();

  // Keys and values are groups of copies of their own, so that the first product need not wait for values.
  // Fetching always closes two groups, so that they can be counted.
  int fetched = 0;
  const auto fetch = [&] {
    const int t = tiles.first + group + fetched * kGroups;
    const ptx::SharedPointer<T> to = Memory::stage(group, fetched % kStages);
    if (t < tiles.last) unit.template copy_keys<kConfig.group_threads()>(to, t * kKeys, group_thread);
    ptx::commit_copies();
    if (t < tiles.last)
      unit.template copy_values<kConfig.group_threads()>(to + Memory::kTile, t * kKeys, group_thread);
    ptx::commit_copies();
    ++fetched;
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
  for (int n = 0; n < kStages - 1; ++n) fetch();

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
    fetch();
    rows.attend_tile(keys, values, scores, first_row + warp_row, t * kKeys, tiles.coverage(t), [&] {
      if constexpr (kInHalves) {
        ptx::wait_copies<kOnTheirWay + 2>();
        meet();
      }
    });
  }
  ptx::wait_copies<0>();
  rows.finish();
  write_results<T, Instance>(unit, rows, group, warp_row, first_row);
}

}  // namespace saccade::SACCADE_MACHINE::sm80
