// The kernel: one warp starts copies, warpgroups compute. Blocks stay and take one tile of queries after the
// other, or, where keys are shared out, do one each.
#pragma once

#include <limits>

#include "cuda/ptx/barrier.h"
#include "cuda/ptx/dependent_launch.h"
#include "cuda/ptx/registers.h"
#include "cuda/ptx/tma.h"
#include "cuda/sm90/results.h"
#include "cuda/tile/warpgroup_rows.h"

namespace saccade::SACCADE_MACHINE::sm90 {

/// The first tile of queries of this block.
template <class T, class Instance>
SACCADE_DEVICE Unit first_unit(const Arguments<T>& a) {
  constexpr Config kConfig = Instance::kConfig;
  return kConfig.stays() ? unit_of(a, ptx::block_index().x, kConfig.rows())
                         : unit_of_block(a, kConfig.rows(), kConfig.cluster);
}

/// Calls act(unit) for every tile of queries of this block. Where tiles differ in length and come longest
/// first, every other round goes backwards through the blocks, so that none gets the longer one every time.
template <class T, class Instance, class Act>
SACCADE_DEVICE void for_each_tile(const Arguments<T>& a, const Act& act) {
  constexpr int kRows = Instance::kConfig.rows();
  if constexpr (!Instance::kConfig.stays()) {
    act(first_unit<T, Instance>(a));
  } else {
    const int block = ptx::block_index().x;
    const int blocks = ptx::grid_size().x;
    const int size = a.queue.size();
    bool back = false;
    SACCADE_NO_UNROLL
    for (int first = 0; first < size; first += blocks) {
      const int number = first + (back ? blocks - 1 - block : block);
      if (number < size) act(unit_of(a, number, kRows));
      back = a.queue.longest_first && !back;
    }
  }
}

/// The part of the keys that a key group of this block has.
template <class Instance>
SACCADE_DEVICE int part_of(int key_group) {
  constexpr Config kConfig = Instance::kConfig;
  return kConfig.cluster == 1 ? key_group : ptx::cluster_rank() * kConfig.key_groups + key_group;
}

/// Starts the copies of a matrix's boxes, one after the other.
template <class Instance>
SACCADE_DEVICE void load(std::byte* to, int rows, const ptx::TensorMap& map, int row, int head, int batch,
                         ptx::Mbarrier* full) {
  constexpr int kBoxes = Instance::kConfig.dim / 64;
  ptx::arrive_and_expect_bytes(full, kBoxes * rows * 128);
  SACCADE_UNROLL
  for (int box = 0; box < kBoxes; ++box)
    ptx::load_box(to + box * rows * 128, map, {64 * box, row, head, batch}, full);
}
template <class T, class Instance>
SACCADE_DEVICE void load_queries(const Arguments<T>& a, const Unit& unit, int row_group) {
  using Memory = Shared<Instance>;
  load<Instance>(Memory::queries(row_group), Config::kRows, a.q, unit.first_row + row_group * Config::kRows,
                 unit.head, unit.batch, Memory::queries_full(row_group));
}

/// Starts the copies of each unit's tiles from number kFrom to kTo, and of all queries but the block's very
/// first; by one thread. kFrom is 0 or the number of stages, when those before have been started.
template <class T, class Instance, int kFrom, int kTo>
SACCADE_DEVICE void load_all(const Arguments<T>& a) {
  constexpr Config kConfig = Instance::kConfig;
  using Memory = Shared<Instance>;
  Turn<kConfig.stages> turns[kConfig.key_groups];
  SACCADE_UNROLL
  for (auto& turn : turns) {
    turn.parity = kFrom == 0 ? 1 : 0;  // of the round before
    turn.again = kFrom > 0;
  }
  bool first = true;
  int queries_parity = 1;
  for_each_tile<T, Instance>(a, [&](const Unit& unit) {
    const auto load_queries_of = [&](int r) {
      if (!first) ptx::wait_mbarrier(Memory::queries_empty(r), queries_parity);
      load_queries<T, Instance>(a, unit, r);
    };
    if (!first) load_queries_of(0);
    tile::TileRange tiles[kConfig.key_groups];
    int most = 0;
    SACCADE_UNROLL
    for (int g = 0; g < kConfig.key_groups; ++g) {
      tiles[g] = tiles_of<T, Instance>(a, unit.first_row, part_of<Instance>(g));
      const int count = tiles[g].last - tiles[g].first;
      most = count > most ? count : most;
    }
    const auto load_others = [&] {
      SACCADE_UNROLL
      for (int r = 1; r < kConfig.row_groups; ++r) load_queries_of(r);
    };
    if (most == 0 && kFrom == 0) load_others();
    SACCADE_NO_UNROLL
    for (int n = kFrom; n < most && n < kTo; ++n) {
      SACCADE_UNROLL
      for (int g = 0; g < kConfig.key_groups; ++g) {
        const int t = tiles[g].first + n;
        if (t >= tiles[g].last) continue;
        const int stage = turns[g].stage;
        if (turns[g].again) ptx::wait_mbarrier(Memory::keys_empty(g, stage), turns[g].parity);
        load<Instance>(Memory::keys(g, stage), kConfig.tile_keys, a.k, t * kConfig.tile_keys, unit.key_head,
                       unit.batch, Memory::keys_full(g, stage));
      }
      if (n == 0) load_others();
      SACCADE_UNROLL
      for (int g = 0; g < kConfig.key_groups; ++g) {
        const int t = tiles[g].first + n;
        if (t >= tiles[g].last) continue;
        const int stage = turns[g].stage;
        if (turns[g].again) ptx::wait_mbarrier(Memory::values_empty(g, stage), turns[g].parity);
        load<Instance>(Memory::values(g, stage), kConfig.tile_keys, a.v, t * kConfig.tile_keys, unit.key_head,
                       unit.batch, Memory::values_full(g, stage));
        turns[g].next();
      }
    }
    first = false;
    queries_parity ^= 1;
  });
}

/// Whose turn it is to start products: warpgroups of other rows take turns, so that one's weights are
/// computed while another's products run.
template <class Instance>
struct Order {
  static constexpr int kCount = Instance::kConfig.key_groups == 1 ? Instance::kConfig.row_groups : 1;
  static constexpr int kFirst = 2;  ///< barrier of the first warpgroup

  static SACCADE_DEVICE void begin(int group) {
    if constexpr (kCount > 1) {
      if (group == kCount - 1) ptx::arrive_some(kFirst, 256);
    }
  }
  static SACCADE_DEVICE void wait(int group) {
    if constexpr (kCount > 1) ptx::sync_some(kFirst + group, 256);
  }
  static SACCADE_DEVICE void pass(int group) {
    if constexpr (kCount > 1) ptx::arrive_some(kFirst + (group + 1 == kCount ? 0 : group + 1), 256);
  }
};

/// What a warpgroup does.
template <class T, class Instance>
SACCADE_DEVICE void compute_all(const Arguments<T>& a) {
  constexpr Config kConfig = Instance::kConfig;
  using Memory = Shared<Instance>;
  using Rows = tile::WarpgroupRows<T, kConfig.dim, kConfig.dim, kConfig.tile_keys, kConfig.bold()>;
  using Queries = tile::Boxes<Config::kRows>;
  using Tile = tile::Boxes<kConfig.tile_keys>;
  const int group = ptx::shuffle(ptx::thread_index() / 128, 0);  // the same in all lanes, and known to be
  const int key_group = kConfig.key_groups == 1 ? 0 : group / kConfig.row_groups;
  const int row_group = kConfig.row_groups == 1 ? 0 : group % kConfig.row_groups;
  const int part = part_of<Instance>(key_group);
  const std::uint64_t queries = Queries::by_rows(Memory::queries(row_group));
  const std::uint64_t first_keys = Tile::by_rows(Memory::keys(key_group, 0));
  const std::uint64_t first_values = Tile::by_columns(Memory::values(key_group, 0));
  const auto keys = [&](int stage) {
    return ptx::advance_descriptor(first_keys, stage * 2 * kConfig.tile_bytes());
  };
  const auto values = [&](int stage) {
    return ptx::advance_descriptor(first_values, stage * 2 * kConfig.tile_bytes());
  };
  // By a warp whose lanes have all passed their wait: one that has not might find the next round's instead.
  const auto release = [](ptx::Mbarrier* empty) {
    if (ptx::lane_index() == 0) ptx::arrive_mbarrier(empty);
  };
  const auto pointer = [](std::byte* at) { return ptx::SharedPointer<T>(reinterpret_cast<T*>(at)); };
  const auto wait_for_others = [] {  // until they are there to be written to
    if constexpr (Instance::kConfig.cluster > 1) ptx::wait_cluster();
  };
  using Order = sm90::Order<Instance>;
  Order::begin(group);
  Turn<kConfig.stages> turn;  // of the next tile
  int queries_parity = 0;
  Rows rows;
  for_each_tile<T, Instance>(a, [&](const Unit& unit) {
    const tile::TileRange tiles = tiles_of<T, Instance>(a, unit.first_row, part);
    const int warp_row = unit.first_row + row_group * Config::kRows + ptx::warp_index() % 4 * 16;
    /// The scores of tile t are there, of keys in this stage, which are read no more in the end.
    const auto weigh = [&](int t, int stage) {
      constexpr bool kStay = Instance::kConfig.bold();
      if (!kStay) release(Memory::keys_empty(key_group, stage));
      rows.weigh(a.scores, warp_row, t * kConfig.tile_keys, tiles.coverage(t) != tile::Coverage::full,
                 pointer(Memory::queries(row_group)), pointer(Memory::keys(key_group, stage)));
      if (kStay) release(Memory::keys_empty(key_group, stage));
    };
    rows.begin();
    ptx::wait_mbarrier(Memory::queries_full(row_group), queries_parity);
    queries_parity ^= 1;
    const int end = end_of<T, Instance>(a, tiles, unit.first_row + row_group * Config::kRows);
    if (tiles.first < end) {
      ptx::wait_mbarrier(Memory::keys_full(key_group, turn.stage), turn.parity);
      Order::wait(group);
      rows.start_scores(queries, keys(turn.stage));
      Order::pass(group);
      ptx::wait_products<0>();
      weigh(tiles.first, turn.stage);
      rows.take_weights();
      SACCADE_NO_UNROLL
      for (int t = tiles.first + 1; t < end; ++t) {
        const Turn<kConfig.stages> before = turn;
        turn.next();
        ptx::wait_mbarrier(Memory::keys_full(key_group, turn.stage), turn.parity);
        Order::wait(group);
        rows.start_scores(queries, keys(turn.stage));
        ptx::wait_mbarrier(Memory::values_full(key_group, before.stage), before.parity);
        rows.start_values(values(before.stage));
        Order::pass(group);
        ptx::wait_products<1>();
        weigh(t, turn.stage);
        ptx::wait_products<0>();
        release(Memory::values_empty(key_group, before.stage));
        rows.take_weights();
      }
      release(Memory::queries_empty(row_group));
      ptx::wait_mbarrier(Memory::values_full(key_group, turn.stage), turn.parity);
      rows.start_values(values(turn.stage));
      wait_for_others();
      ptx::wait_products<0>();
      release(Memory::values_empty(key_group, turn.stage));
      turn.next();
    } else {
      ptx::sync_warp();
      release(Memory::queries_empty(row_group));
      wait_for_others();
    }
    if constexpr (Instance::kConfig.skips()) {
      SACCADE_NO_UNROLL
      for (int t = end; t < tiles.last; ++t, turn.next()) {  // for other row groups alone
        ptx::wait_mbarrier(Memory::keys_full(key_group, turn.stage), turn.parity);
        ptx::sync_warp();
        release(Memory::keys_empty(key_group, turn.stage));
        Order::wait(group);
        Order::pass(group);
        ptx::wait_mbarrier(Memory::values_full(key_group, turn.stage), turn.parity);
        ptx::sync_warp();
        release(Memory::values_empty(key_group, turn.stage));
      }
    }
    rows.finish();
    const Results<T, Instance> results(a, unit, warp_row);
    if constexpr (Instance::kConfig.parts() == 1) {
      results.write(rows);
    } else {
      results.exchange_and_write(rows, part);
    }
  });
}

template <class T, class Instance>
SACCADE_KERNEL(Instance::kConfig.threads(), Instance::kConfig.blocks())
attend(SACCADE_ARGUMENT(Arguments<T>) a) {
  constexpr Config kConfig = Instance::kConfig;
  if constexpr (ptx::kHopper) {
    constexpr int kReady = 1;  // barrier: the mbarriers are
    constexpr int kComputing = 128 * kConfig.groups();
    constexpr int kMeeting = kComputing + ptx::kWarpThreads;
    if (ptx::thread_index() >= kComputing) {
      if constexpr (kConfig.hands_over()) ptx::give_registers<kConfig.loader_registers()>();
      if (ptx::warp_index() == kComputing / ptx::kWarpThreads) {
        const bool chosen = ptx::elect_one();
        if (chosen) {
          Shared<Instance>::init_full();
          ptx::wait_for_previous_kernel();  // what all else waits for
          load_queries<T, Instance>(a, first_unit<T, Instance>(a), 0);
          Shared<Instance>::init_empty();
        }
        ptx::sync_warp();
        ptx::arrive_some(kReady, kMeeting);
        constexpr int kAll = std::numeric_limits<int>::max();
        if constexpr (kConfig.cluster == 1) {
          if (chosen) load_all<T, Instance, 0, kAll>(a);
        } else {  // arriving takes its time, and must not wait for what others do after it
          if (chosen) load_all<T, Instance, 0, kConfig.stages>(a);
          ptx::sync_warp();
          ptx::arrive_cluster_relaxed();
          if (chosen) load_all<T, Instance, kConfig.stages, kAll>(a);
        }
      } else if constexpr (kConfig.cluster > 1) {
        ptx::arrive_cluster_relaxed();
      }
    } else {
      ptx::let_next_kernel_start();
      if constexpr (kConfig.hands_over()) ptx::take_registers<kConfig.computer_registers()>();
      if constexpr (kConfig.parts() > 1) {
        if (ptx::thread_index() == 0) Shared<Instance>::init_inboxes();
      }
      if constexpr (kConfig.cluster > 1) {
        ptx::sync_warp();
        ptx::arrive_cluster_relaxed();
      }
      ptx::sync_some(kReady, kMeeting);
      compute_all<T, Instance>(a);
    }
  }
}

}  // namespace saccade::SACCADE_MACHINE::sm90
