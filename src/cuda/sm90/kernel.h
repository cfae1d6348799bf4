// The kernel: one warp starts copies, warpgroups compute. Blocks stay and take one tile of queries after the
// other, or, where keys are shared out, do one each.
#pragma once

#include "cuda/ptx/barrier.h"
#include "cuda/ptx/dependent_launch.h"
#include "cuda/ptx/registers.h"
#include "cuda/sm90/loader.h"
#include "cuda/sm90/results.h"
#include "cuda/tile/warpgroup_rows.h"

namespace saccade::SACCADE_MACHINE::sm90 {

/// Whose turn it is to start products: warpgroups take turns, so that one's weights are computed while
/// another's products run, unless each does both at once. All do so equally often.
template <class Instance>
struct Order {
  static constexpr Config kConfig = Instance::kConfig;
  static constexpr int kCount = kConfig.single() || kConfig.ahead() ? 1 : kConfig.groups();
  static constexpr int kFirst = Barrier::kTurns;
  static_assert(kFirst + kCount <= Barrier::kBegun);

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

/// A warpgroup that computes.
template <class T, class Instance>
class Computer {
  static constexpr Config kConfig = Instance::kConfig;
  using Memory = Shared<Instance>;
  using Order = sm90::Order<Instance>;
  using Tile = tile::Boxes<kConfig.tile_keys>;
  using Rows = tile::WarpgroupRows<T, kConfig.dim, kConfig.dim, kConfig.tile_keys, kConfig.bold(),
                                   kConfig.warp_rows, kConfig.holds_queries(), kConfig.ahead()>;
  static_assert(Rows::Queries::kBytes == kConfig.query_rows() * Rows::Queries::kRowBytes);
  static_assert(!kConfig.single() ||
                (kConfig.bold() && !kConfig.stays() && kConfig.tile_keys == 64 * kConfig.slices()));

 public:
  explicit SACCADE_DEVICE Computer(const Arguments<T, Instance>& a)
      : a_(a),
        group_(ptx::shuffle(ptx::thread_index() / 128, 0)),  // the same in all lanes, and known to be
        key_group_(kConfig.key_groups == 1 ? 0 : group_ / kConfig.row_groups),
        row_group_(kConfig.row_groups == 1 ? 0 : group_ % kConfig.row_groups),
        queries_(kConfig.warp_rows == 16 ? Rows::Queries::by_rows(Memory::queries(row_group_))
                                         : Rows::Queries::by_half_rows(Memory::queries(row_group_))),
        first_keys_(Tile::by_rows(Memory::keys(key_group_, 0))),
        first_values_(Tile::by_columns(Memory::values(key_group_, 0))) {}

  SACCADE_DEVICE void compute_all() {
    const int part = part_of<Instance>(key_group_);
    int parity = 0;
    Order::begin(group_);
    const auto wait_for_queries = [&] {
      ptx::wait_mbarrier(Memory::queries_full(row_group_), parity);
      parity ^= 1;
    };
    const auto compute = [&](const Unit<Instance>& unit) {
      unit_ = unit;
      tiles_ = tiles_of<T, Instance>(a_, unit);
      const int first_row = unit.first_row + row_group_ * kConfig.group_rows();
      warp_row_ = first_row + ptx::warp_index() % 4 * kConfig.warp_rows;
      const int end = end_of<T, Instance>(a_, unit, tiles_, first_row);
      rows_.begin();
      if constexpr (kConfig.ragged == 0) wait_for_queries();
      if constexpr (kConfig.holds_queries()) {
        rows_.take_queries(pointer(Memory::queries(row_group_)));
        ptx::sync_warp();
        release(Memory::queries_empty(row_group_));
      }
      const auto results = [&] { return Results<T, Instance>(a_, unit, warp_row_); };
      if constexpr (kConfig.single()) {
        const auto ahead = results();  // while there is nothing else to do
        attend(part, end);
        ahead.exchange_and_write(rows_, part);
      } else {
        attend(part, end);
        if constexpr (kConfig.skips()) pass_over(end);
        if constexpr (kConfig.parts() == 1) {
          results().write(rows_);
        } else {
          results().exchange_and_write(rows_, part);
        }
      }
    };
    if constexpr (kConfig.ragged == 0) {
      for_each_tile<T, Instance>(a_, compute);
    } else {
      SACCADE_NO_UNROLL
      do {
        wait_for_queries();
        const Notice told = Notice::read(Memory::notice(row_group_));
        if (told.head < 0) break;
        Unit<Instance> unit{};
        unit.head = told.head;  // as read_again() takes it
        unit.first_row = told.first_row;
        unit.own.len_q = told.len_q;
        unit.own.span = told.span;
        compute(unit);
      } while (kConfig.draws());
    }
  }

 private:
  /// By a warp whose lanes have all passed their wait: one that has not might find the next round's instead.
  static SACCADE_DEVICE void release(ptx::Mbarrier* empty) {
    if (ptx::lane_index() == 0) ptx::arrive_mbarrier(empty);
  }
  /// They are read no more, unless that was so from the beginning.
  SACCADE_DEVICE void release_queries() const {
    if constexpr (!kConfig.holds_queries()) release(Memory::queries_empty(row_group_));
  }
  /// Until the other blocks are there to be written to.
  static SACCADE_DEVICE void wait_for_others() {
    if constexpr (kConfig.cluster > 1) ptx::wait_cluster();
  }
  static SACCADE_DEVICE ptx::SharedPointer<T> pointer(std::byte* at) {
    return ptx::SharedPointer<T>(reinterpret_cast<T*>(at));
  }
  SACCADE_DEVICE auto scores() const {
    if constexpr (kConfig.ragged != 0) {
      return OwnScores{Memory::notice(row_group_), a_.scores.scale};
    } else {
      return scores_of(a_, unit_);
    }
  }
  /// Starts the scores of the tile in this place of the ring, once its keys are there.
  SACCADE_DEVICE void start_scores(const Turn<kConfig.stages>& at) {
    ptx::wait_mbarrier(Memory::keys_full(key_group_, at.stage), at.parity);
    Order::wait(group_);
    rows_.start_scores(queries_, ptx::advance_descriptor(first_keys_, at.stage * 2 * kConfig.tile_bytes()));
  }
  SACCADE_DEVICE void start_values(const Turn<kConfig.stages>& at) {
    ptx::wait_mbarrier(Memory::values_full(key_group_, at.stage), at.parity);
    rows_.start_values(ptx::advance_descriptor(first_values_, at.stage * 2 * kConfig.tile_bytes()));
  }
  /// The scores of tile t are there, of keys in this stage, which are read no more in the end.
  template <tile::Sample kSample>
  SACCADE_DEVICE void weigh(int t, int stage) {
    if (!kConfig.bold()) release(Memory::keys_empty(key_group_, stage));
    rows_.template weigh<kSample>(
        scores(), warp_row_, t * kConfig.tile_keys, tiles_.coverage(t) != tile::Coverage::full,
        pointer(Memory::queries(row_group_)), pointer(Memory::keys(key_group_, stage)));
    if (kConfig.bold()) release(Memory::keys_empty(key_group_, stage));
  }

  /// All tiles of the part before `end`.
  SACCADE_DEVICE void attend(int part, int end) {
    const int first = tiles_.first + first_part(a_) + part;
    if (first >= end) {
      ptx::sync_warp();
      release_queries();
      wait_for_others();
    } else if constexpr (kConfig.single()) {
      attend_one(first);
    } else if constexpr (kConfig.ahead()) {
      attend_ahead(first, end);
    } else {
      attend_many(first, end);
    }
    if constexpr (kConfig.key_groups > 1 && Order::kCount > 1) {
      // Who has no tile in the last round takes his turn all the same: racecheck takes warps that have passed
      // different numbers of barriers for unordered.
      const auto all = static_cast<unsigned>(parts_of(a_));
      const int tiles = static_cast<int>(static_cast<unsigned>(end - tiles_.first) % all) - first_part(a_);
      if (part_of<Instance>(0) < tiles && part >= tiles) {
        Order::wait(group_);
        Order::pass(group_);
      }
    }
  }
  /// All from tile `first` on. What else runs while a warpgroup computes weights: its values of the tile
  /// before, and products of others.
  SACCADE_DEVICE void attend_many(int first, int end) {
    constexpr tile::Sample kLater =
        kConfig.samples_later() ? tile::Sample::if_needed : tile::Sample::never;  // than the first tile
    start_scores(turn_);
    Order::pass(group_);
    ptx::wait_products<0>();
    weigh<kLater == tile::Sample::never ? tile::Sample::always : kLater>(first, turn_.stage);
    rows_.take_weights();
    const int parts = parts_of(a_);
    SACCADE_NO_UNROLL
    for (int t = first + parts; t < end; t += parts) {
      const Turn<kConfig.stages> before = turn_;
      turn_.next();
      start_scores(turn_);
      start_values(before);
      Order::pass(group_);
      ptx::wait_products<1>();
      weigh<kLater>(t, turn_.stage);
      ptx::wait_products<0>();
      release(Memory::values_empty(key_group_, before.stage));
      rows_.take_weights();
    }
    release_queries();
    start_values(turn_);
    rows_.finish_states();
    wait_for_others();
    ptx::wait_products<0>();
    rows_.finish_sums();
    release(Memory::values_empty(key_group_, turn_.stage));
    turn_.next();
  }

  /// The same, with scores a tile ahead, of a block that does not stay. Between two tiles there is one
  /// branch, which most pass by: nothing is mixed across branches, and there are few warps to hide that. What
  /// it asks for has been worked out before.
  SACCADE_DEVICE void attend_ahead(int first, int end) {
    static_assert(kConfig.bold() && kConfig.stages > 2,
                  "keys are held a tile longer, and come a tile sooner");
    const int parts = parts_of(a_);
    const auto number = [&](int t) {  // of tile t, or of the first one after it, among those of the part
      return t <= first ? 0
                        : static_cast<int>(static_cast<unsigned>(t - first + parts - 1) /
                                           static_cast<unsigned>(parts));
    };
    const int count = number(end);
    const int whole_first = number(tiles_.whole_first);
    const int whole = number(tiles_.whole_last) - whole_first;
    const auto first_key = [&](int n) { return (first + n * parts) * kConfig.tile_keys; };
    const auto masked = [&](int n) { return n < whole_first || n >= whole_first + whole; };
    // Of the tile whose weights are there, of the one before, and of the one whose scores come next: in the
    // end once more the last one's, which nobody reads.
    Turn<kConfig.stages> at = turn_;
    Turn<kConfig.stages> before = at;
    Turn<kConfig.stages> ahead = at;
    const auto keys = [&] {
      return ptx::advance_descriptor(first_keys_, ahead.stage * 2 * kConfig.tile_bytes());
    };
    const auto full = [&] {
      const bool with_keys = ptx::test_mbarrier(Memory::keys_full(key_group_, ahead.stage), ahead.parity);
      const bool with_values = ptx::test_mbarrier(Memory::values_full(key_group_, at.stage), at.parity);
      return with_keys && with_values;
    };

    start_scores(at);
    ptx::wait_products<0>();
    rows_.find_bases(scores(), warp_row_, first_key(0), masked(0));
    // The number of the next tile among the whole ones, and how many of those there are, or none as long as
    // rows have no base.
    int next = ptx::worked_out(1 - whole_first);
    int plain = ptx::worked_out(rows_.based() ? whole : 0);
    if (count > 1) ahead.next();
    ptx::wait_mbarrier(Memory::keys_full(key_group_, ahead.stage), ahead.parity);
    rows_.take_scores(a_.scores.scale.size);
    rows_.start_scores(queries_, keys());
    if (count > 2) ahead.next();
    bool there = full();
    rows_.weigh_taken();
    ptx::wait_products<0>();
    rows_.pack_taken();
    const auto rough = [&] {
      const bool well = rows_.taken_well();
      const bool is_plain = static_cast<unsigned>(next) < static_cast<unsigned>(plain);
      const bool hindered = ptx::any_lane(!(well && there));
      return hindered || !is_plain;
    };
    bool slow = rough();
    SACCADE_NO_UNROLL
    for (int n = 0;; ++n) {  // tile n is weighed
      if (slow) {
        if (ptx::any_lane(!rows_.taken_well()))
          rows_.weigh_again(scores(), warp_row_, first_key(n), masked(n),
                            pointer(Memory::queries(row_group_)),
                            pointer(Memory::keys(key_group_, at.stage)));
        if (n + 1 == count) break;
        ptx::wait_mbarrier(Memory::keys_full(key_group_, ahead.stage), ahead.parity);
        ptx::wait_mbarrier(Memory::values_full(key_group_, at.stage), at.parity);
        rows_.find_bases(scores(), warp_row_, first_key(n + 1), masked(n + 1));
        plain = ptx::worked_out(rows_.based() ? whole : 0);
      }
      release(Memory::keys_empty(key_group_, at.stage));
      if (n > 0) release(Memory::values_empty(key_group_, before.stage));
      rows_.take_scores(a_.scores.scale.size);
      rows_.start_both(ptx::advance_descriptor(first_values_, at.stage * 2 * kConfig.tile_bytes()), queries_,
                       keys());
      before = at;
      at.next();
      ++next;
      if (n + 3 < count) ahead.next();
      there = full();
      rows_.weigh_taken();
      slow = rough();
      ptx::wait_products<0>();
      rows_.pack_taken();
    }
    release_queries();
    start_values(at);
    rows_.accept_taken();
    rows_.finish_states();
    wait_for_others();
    ptx::wait_products<0>();
    rows_.finish_sums();
  }

  /// Tile t, the only one of the part, of a block that does not stay: nobody waits for what it has read.
  SACCADE_DEVICE void attend_one(int t) {
    const bool masked = tiles_.coverage(t) != tile::Coverage::full;
    const int first_key = t * kConfig.tile_keys;
    start_scores(turn_);
    ptx::wait_products<0>();
    weigh_slices(first_key, masked);
    const bool well = rows_.is_well();
    rows_.finish_states();
    wait_for_others();
    ptx::wait_products<0>();
    rows_.finish_sums();
    if (!well) {
      rows_.attend_again(scores(), warp_row_, first_key, masked, pointer(Memory::queries(row_group_)),
                         pointer(Memory::keys(key_group_, 0)), pointer(Memory::values(key_group_, 0)));
      rows_.finish_states();
    }
  }
  template <int kSlice = 0>
  SACCADE_DEVICE void weigh_slices(int first_key, bool masked) {
    if constexpr (kSlice < kConfig.slices()) {
      rows_.template weigh_slice<kSlice, kConfig.slices()>(scores(), warp_row_, first_key, masked);
      if (kSlice == 0) ptx::wait_mbarrier(Memory::values_full(key_group_, 0), 0);
      rows_.template start_values<kSlice, kConfig.slices()>(first_values_);
      weigh_slices<kSlice + 1>(first_key, masked);
    }
  }

  /// Tiles from `end` on are for other row groups alone.
  SACCADE_DEVICE void pass_over(int end) {
    SACCADE_NO_UNROLL
    for (int t = end; t < tiles_.last; ++t, turn_.next()) {
      ptx::wait_mbarrier(Memory::keys_full(key_group_, turn_.stage), turn_.parity);
      ptx::sync_warp();
      release(Memory::keys_empty(key_group_, turn_.stage));
      Order::wait(group_);
      Order::pass(group_);
      ptx::wait_mbarrier(Memory::values_full(key_group_, turn_.stage), turn_.parity);
      ptx::sync_warp();
      release(Memory::values_empty(key_group_, turn_.stage));
    }
  }

  const Arguments<T, Instance>& a_;
  const int group_, key_group_, row_group_;
  const std::uint64_t queries_, first_keys_, first_values_;
  Turn<kConfig.stages> turn_;  ///< of the next tile
  Unit<Instance> unit_;
  tile::TileRange tiles_;
  int warp_row_ = 0;
  Rows rows_;
};

template <class T, class Instance>
SACCADE_KERNEL(Instance::kConfig.threads(), Instance::kConfig.blocks())
attend(SACCADE_ARGUMENT(Arguments<T, Instance>) a) {
  constexpr Config kConfig = Instance::kConfig;
  if constexpr (ptx::kHopper) {
    static_assert(kConfig.ragged == 0 || kConfig.cluster == 1,
                  "blocks of a cluster would wait for one that has ended");
    constexpr int kComputing = 128 * kConfig.groups();
    constexpr int kThreads = kComputing + ptx::kWarpThreads;  // that meet at the beginning
    if constexpr (kConfig.ragged != 0 && !kConfig.draws()) {
      const Unit<Instance> unit = first_unit<T, Instance>(a);
      if (unit.first_row >= unit.own.len_q) return;  // this one is shorter than the longest
    }
    if (ptx::thread_index() >= kComputing) {
      if constexpr (kConfig.hands_over()) ptx::give_registers<kConfig.loader_registers()>();
      if (ptx::warp_index() == kComputing / ptx::kWarpThreads) {
        const bool chosen = ptx::elect_one();
        Loader<T, Instance> loader(a);
        if (chosen) {
          Shared<Instance>::init_first();
          ptx::wait_for_previous_kernel();  // what all else waits for
          loader.begin();
          Shared<Instance>::init_full();
        }
        ptx::sync_warp();
        ptx::arrive_some(Barrier::kBegun, kThreads);
        if constexpr (kConfig.cluster > 1) ptx::arrive_cluster_relaxed();
        ptx::sync_some(Barrier::kOthers, kThreads);
        if (chosen) loader.go_on();
      } else if constexpr (kConfig.cluster > 1) {
        ptx::arrive_cluster_relaxed();
      }
    } else {
      ptx::let_next_kernel_start();
      if constexpr (kConfig.hands_over()) ptx::take_registers<kConfig.computer_registers()>();
      if (ptx::elect_one()) Shared<Instance>::init_others(ptx::warp_index());
      ptx::sync_warp();
      if constexpr (kConfig.cluster > 1) ptx::arrive_cluster_relaxed();
      ptx::arrive_some(Barrier::kOthers, kThreads);
      // Until then there is nothing to do that would not slow them down.
      ptx::sync_some(Barrier::kBegun, kThreads);
      Computer<T, Instance>(a).compute_all();
    }
  }
}

}  // namespace saccade::SACCADE_MACHINE::sm90
