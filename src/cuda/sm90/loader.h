// Which tiles of queries a block has, and the thread that starts their copies.
#pragma once

#include "cuda/ptx/cluster.h"
#include "cuda/ptx/tma.h"
#include "cuda/sm90/arguments.h"

namespace saccade::SACCADE_MACHINE::sm90 {

/// The first tile of queries of this block.
template <class T, class Instance>
SACCADE_DEVICE Unit<Instance> first_unit(const Arguments<T, Instance>& a) {
  constexpr Config kConfig = Instance::kConfig;
  return kConfig.stays() ? unit_of(a, ptx::block_index().x, kConfig.rows())
                         : unit_of_block(a, kConfig.rows(), kConfig.cluster);
}

/// Calls act(unit) for every tile of queries of this block. Where tiles differ in length and come longest
/// first, every other round goes backwards through the blocks, so that none gets the longer one every time.
template <class T, class Instance, class Act>
SACCADE_DEVICE void for_each_tile(const Arguments<T, Instance>& a, const Act& act) {
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
      back = a.queue.longest_first() && !back;
    }
  }
}

/// The part of the keys that a key group of this block has.
template <class Instance>
SACCADE_DEVICE int part_of(int key_group) {
  constexpr Config kConfig = Instance::kConfig;
  return kConfig.cluster == 1 ? key_group : ptx::cluster_rank() * kConfig.key_groups + key_group;
}

/// Starts the copies of a matrix's boxes, one after the other: the rows of a sequence from `row` on.
template <class Instance>
SACCADE_DEVICE void load(std::byte* to, int rows, const ptx::TensorMap& map, const Unit<Instance>& unit,
                         bool of_keys, int row, ptx::Mbarrier* full) {
  constexpr int kBoxes = Instance::kConfig.boxes();
  const int head = of_keys ? unit.key_head : unit.head;
  ptx::arrive_and_expect_bytes(full, kBoxes * rows * 128);
  SACCADE_UNROLL
  for (int box = 0; box < kBoxes; ++box) {
    std::byte* const here = to + box * rows * 128;
    if constexpr (Instance::kConfig.ragged == 0) {
      ptx::load_box(here, map, {64 * box, row, head, unit.batch}, full);
    } else {
      const Place& place = of_keys ? unit.own.kv : unit.own.q;
      ptx::load_box(here, map, {64 * box, row + place.first, place.second, place.third, head}, full);
    }
  }
}
template <class T, class Instance>
SACCADE_DEVICE void load_queries(const Arguments<T, Instance>& a, const Unit<Instance>& unit, int row_group) {
  using Memory = Shared<Instance>;
  constexpr Config kConfig = Instance::kConfig;
  if constexpr (kConfig.ragged != 0)  // it is read when the queries are there
    Notice{.head = unit.batch * static_cast<int>(a.heads_q) + unit.head,
           .first_row = unit.first_row,
           .len_q = unit.own.len_q,
           .span = unit.own.span}
        .write(Memory::notice(row_group));
  load<Instance>(Memory::queries(row_group), kConfig.query_rows(), a.q, unit, false,
                 unit.first_row + row_group * kConfig.group_rows(), Memory::queries_full(row_group));
}

/// The thread that starts copies.
template <class T, class Instance>
class Loader {
  static constexpr Config kConfig = Instance::kConfig;
  using Memory = Shared<Instance>;

 public:
  explicit SACCADE_DEVICE Loader(const Arguments<T, Instance>& a) : a_(a), draw_(draw_of(a)) {
    SACCADE_UNROLL
    for (auto& turn : turns_) turn.parity = 1;  // of the round before
  }
  /// Starts the copies that are waited for first, for which there is room.
  SACCADE_DEVICE void begin() {
    if constexpr (kConfig.draws()) {
      drawn_ = unit_of(a_, draw_.first());
      if (drawn_.batch >= 0) begin(drawn_);
    } else {
      begin(first_unit<T, Instance>(a_));
    }
  }
  /// Starts all others.
  SACCADE_DEVICE void go_on() {
    bool begun = true;
    int parity = 1;
    const auto load = [&](const Unit<Instance>& unit) {
      load_unit(unit, begun, parity);
      begun = false;
      parity ^= 1;
    };
    if constexpr (!kConfig.draws()) {
      for_each_tile<T, Instance>(a_, load);
    } else {
      while (drawn_.batch >= 0) {
        draw_.draw();
        load(drawn_);
        drawn_ = unit_of(a_, draw_.next());
      }
      SACCADE_UNROLL
      for (int r = 0; r < kConfig.row_groups; ++r) {
        ptx::wait_mbarrier(Memory::queries_empty(r), parity);
        Notice{}.write(Memory::notice(r));
        ptx::arrive_mbarrier(Memory::queries_full(r));
      }
    }
  }

 private:
  using DrawOrNot = std::conditional_t<kConfig.draws(), Draw, Nothing>;
  static SACCADE_DEVICE DrawOrNot draw_of(const Arguments<T, Instance>& a) {
    if constexpr (kConfig.draws()) {
      return Draw(a.any, a.drawn, Memory::notice(kConfig.row_groups), kConfig.rows(),
                  a.queue.longest_first());
    } else {
      return {};
    }
  }
  SACCADE_DEVICE void begin(const Unit<Instance>& unit) {
    load_queries<T, Instance>(a_, unit, 0);
    const tile::TileRange tiles = tiles_of<T, Instance>(a_, unit);
    SACCADE_UNROLL
    for (int g = 0; g < kConfig.key_groups; ++g) {
      const int t = tiles.first + first_part(a_) + part_of<Instance>(g);
      if (t < tiles.last) load_keys(unit, g, 0, t);
    }
  }
  /// A unit's queries and tiles, when there is room; `begun`: but for what begin() has started.
  SACCADE_DEVICE void load_unit(const Unit<Instance>& unit, bool begun, int parity) {
    const tile::TileRange tiles = tiles_of<T, Instance>(a_, unit);
    const auto load_queries_of = [&](int r) {
      ptx::wait_mbarrier(Memory::queries_empty(r), parity);
      load_queries<T, Instance>(a_, unit, r);
    };
    if (!begun) load_queries_of(0);
    bool others = kConfig.row_groups > 1;  // have not begun to load
    const auto load_others = [&] {
      SACCADE_UNROLL
      for (int r = 1; r < kConfig.row_groups; ++r) load_queries_of(r);
      others = false;
    };
    const int first = tiles.first + first_part(a_) + part_of<Instance>(0);  // of this block's parts
    SACCADE_NO_UNROLL
    for (int n = first; n < tiles.last; n += parts_of(a_)) {
      SACCADE_UNROLL
      for (int g = 0; g < kConfig.key_groups; ++g) {
        const int t = n + g + (kConfig.ahead() ? parts_of(a_) : 0);  // a round before its values
        if (t >= tiles.last || (!kConfig.ahead() && begun && n == first)) continue;
        Turn<kConfig.stages> turn = turns_[g];
        if (kConfig.ahead()) turn.next();
        ptx::wait_mbarrier(Memory::keys_empty(g, turn.stage), turn.parity);
        load_keys(unit, g, turn.stage, t);
      }
      if (others) load_others();
      SACCADE_UNROLL
      for (int g = 0; g < kConfig.key_groups; ++g) {
        if (n + g >= tiles.last) continue;
        const int stage = turns_[g].stage;
        ptx::wait_mbarrier(Memory::values_empty(g, stage), turns_[g].parity);
        load<Instance>(Memory::values(g, stage), kConfig.tile_keys, a_.v, unit, true,
                       (n + g) * kConfig.tile_keys, Memory::values_full(g, stage));
        turns_[g].next();
      }
    }
    if (others) load_others();
  }
  SACCADE_DEVICE void load_keys(const Unit<Instance>& unit, int g, int stage, int t) {
    load<Instance>(Memory::keys(g, stage), kConfig.tile_keys, a_.k, unit, true, t * kConfig.tile_keys,
                   Memory::keys_full(g, stage));
  }

  const Arguments<T, Instance>& a_;
  DrawOrNot draw_;
  std::conditional_t<kConfig.draws(), Unit<Instance>, Nothing> drawn_{};  ///< comes next
  Turn<kConfig.stages> turns_[kConfig.key_groups];
};

}  // namespace saccade::SACCADE_MACHINE::sm90
