// How rows leave a warp: from registers to global memory, 16 bytes at a time where columns suffice. Warps
// that have the same rows, and other keys, add up first, in steps: two of them send each other half of the
// columns they still have and go on with the other half; those of several clusters then meet in the
// workspace. Who adds what to what is fixed, so the bits never depend on who was first.
#pragma once

#include <bit>

#include "cuda/ptx/barrier.h"
#include "cuda/ptx/cluster.h"
#include "cuda/ptx/memory.h"
#include "cuda/ptx/registers.h"
#include "cuda/ptx/warp.h"
#include "cuda/sm90/arguments.h"
#include "cuda/tile/arrivals.h"
#include "cuda/tile/softmax.h"

namespace saccade::SACCADE_MACHINE::sm90 {

/// What four neighbouring lanes hold of a row as [chunk][lane], each lane gets as [lane][chunk]: kWords
/// chunks to kWords lanes (4, 2 or 1).
template <int kWords>
SACCADE_DEVICE void turn_words(std::uint32_t (&x)[kWords]) {
  SACCADE_UNROLL
  for (int distance = 1; distance < kWords; distance *= 2) {
    const bool upper = (ptx::lane_index() & distance) != 0;
    SACCADE_UNROLL
    for (int n = 0; n < kWords; ++n) {
      if ((n & distance) != 0) continue;
      const std::uint32_t mine = upper ? x[n] : x[n + distance];
      const std::uint32_t theirs = ptx::shuffle_xor(mine, distance);
      if (upper) {
        x[n] = theirs;
      } else {
        x[n + distance] = theirs;
      }
    }
  }
}

template <class T, class Instance>
class Results {
  static constexpr Config kConfig = Instance::kConfig;
  static constexpr int kParts = kConfig.parts();
  static constexpr int kHalves = kConfig.warp_rows / 8;  ///< rows of a lane: lane / 4, and 8 more
  using States = tile::RowState[kHalves];
  using Memory = Shared<Instance>;

 public:
  /// `first_row`: of this warp.
  SACCADE_DEVICE Results(const Arguments<T, Instance>& a, const Unit<Instance>& unit, int first_row)
      : a_(a),
        unit_(read_again(a, unit)),
        row_(first_row + ptx::lane_index() / 4),
        to_(ahead(a.o.rows(unit_.batch, unit_.head) + (first_q_of(unit_) + row_) * a.o.row)),
        eight_rows_(kHalves == 1 ? 0 : ahead(8 * a.o.row)),
        len_q_(len_q_of(a, unit_)),
        dim_v_(a.dim_v) {}

  template <class Rows>
  SACCADE_DEVICE void write(const Rows& rows) const {
    const float sink = sink_of(a_, unit_);
    SACCADE_UNROLL
    for (int h = 0; h < kHalves; ++h) {
      tile::RowState state = rows.state(h);
      float share = 1;
      if (kConfig.general != 0 && sink != -tile::kInfinity) {
        const float base = tile::larger(state.m, sink);
        share = share_of(state, base);
        state = {base, ptx::fma(share, state.l, ptx::fast_exp2(sink - base))};
      }
      const float weight = share * state.weight();
      write_columns<kConfig.dim>(h, 0, [&](int n, int e) { return rows.sum(n, h, e) * weight; });
      write_lse(h, state);
    }
  }

  /// The same for a warp that has one part of the keys; all warps of its rows do it.
  template <class Rows>
  SACCADE_DEVICE void exchange_and_write(const Rows& rows, int part) const {
    States state;
    SACCADE_UNROLL
    for (int h = 0; h < kHalves; ++h) state[h] = rows.state(h);
    float sums[kConfig.dim / 4 * kHalves];
    SACCADE_UNROLL
    for (int n = 0; n < kConfig.dim / 4 * kHalves; ++n)
      sums[n] = rows.sum(n / (2 * kHalves), n / 2 % kHalves, n % 2);
    add_up<0>(sums, state, part, 0);
  }

 private:
  /// Works out what is needed in the end while there is nothing else to do, if there are registers for it.
  template <class Word>
  static SACCADE_DEVICE Word ahead(Word x) {
    return kConfig.single() ? ptx::worked_out(x) : x;
  }
  static_assert(1 << kConfig.steps() == kParts && kConfig.key_groups <= 2);
  static_assert(kParts == 1 || kConfig.general == 0, "sinks would be added by every part");

  /// The steps from kStep on, of a warp that has these sums, of the columns from `first` on:
  /// [n][h][e] is of row lane / 4 + 8 h and column 8 n + lane % 4 * 2 + e.
  template <int kStep, int kSums>
  SACCADE_DEVICE void add_up(const float (&sums)[kSums], States& state, int part, int first) const {
    constexpr int kColumns = 4 * kSums / kHalves;
    if constexpr (kStep == kConfig.steps()) {
      if ((part & kConfig.silent()) != 0) return;
      float all[kSums];
      SACCADE_UNROLL
      for (int n = 0; n < kSums; ++n) all[n] = sums[n];
      if constexpr (kConfig.splits()) {
        if (!add_clusters(all, state[0])) return;
      }
      SACCADE_UNROLL
      for (int h = 0; h < kHalves; ++h) {
        const float weight = state[h].weight();
        write_columns<kColumns>(h, first,
                                [&](int n, int e) { return all[2 * kHalves * n + 2 * h + e] * weight; });
      }
      // Not between two rows, where a branch would keep the second one's numbers waiting: nobody else hides
      // that here. (Where blocks stay, and rows have more columns, it costs 2 to 5% at head dim 64.)
      if (part != 0 || a_.lse == nullptr) return;
      SACCADE_UNROLL
      for (int h = 0; h < kHalves; ++h) write_lse(h, state[h]);
    } else {
      constexpr int kHalf = kConfig.sums(kStep);
      constexpr bool kAll = kHalf == kSums;  // too few to share out: both get all of them
      const bool upper = !kAll && (part >> kStep & 1) != 0;
      float mine[kHalf];
      float others[kHalf];
      SACCADE_UNROLL
      for (int n = 0; n < kHalf; ++n) {
        const float low = sums[n];
        const float high = sums[kAll ? n : n + kHalf];
        mine[n] = upper ? high : low;
        others[n] = upper ? low : high;
      }
      send<kStep>(others, state, part);
      const int warp = ptx::warp_index();
      std::byte* inbox = Memory::template inbox<kStep>(warp);
      if constexpr (kStep < kConfig.near_steps()) {
        ptx::sync_some(Barrier::kMeeting + warp / 4 % kConfig.row_groups, 256);
      } else {
        ptx::wait_mbarrier(Memory::inbox_full(warp, kStep), 0);
      }
      const ptx::Bytes16 bits = ptx::load(states_in(inbox));
      States theirs;
      bool close = true;
      SACCADE_UNROLL
      for (int h = 0; h < kHalves; ++h) {
        theirs[h] = {std::bit_cast<float>(bits.words[2 * h]), std::bit_cast<float>(bits.words[2 * h + 1])};
        close = close && theirs[h].m - state[h].m <= kCloseBases;  // no key yet: not so
      }
      // With one tile more instructions take less time than a way around them.
      if (kConfig.single() || ptx::any_lane(!close)) raise(mine, state, theirs);
      float share[kHalves];  // what theirs are worth
      SACCADE_UNROLL
      for (int h = 0; h < kHalves; ++h) {
        share[h] = ptx::fast_exp2(theirs[h].m - state[h].base());
        state[h].l = ptx::fma(share[h], theirs[h].l, state[h].l);
      }
      SACCADE_UNROLL
      for (int n = 0; n < kHalf; n += 4) {
        const ptx::Bytes16 four = ptx::load(sums_in(inbox, n));
        SACCADE_UNROLL
        for (int e = 0; e < 4; ++e)
          mine[n + e] = ptx::fma(share[e / 2 % kHalves], std::bit_cast<float>(four.words[e]), mine[n + e]);
      }
      add_up<kStep + 1>(mine, state, part, first + (upper ? kColumns / 2 : 0));
    }
  }
  /// Adds up what all clusters have that share the keys of these rows, in the last one that gets here; false
  /// in the others.
  template <int kSums>
  SACCADE_DEVICE bool add_clusters(float (&sums)[kSums], tile::RowState& state) const {
    static_assert(kHalves == 1);
    const int split = split_of(a_);
    if (split == 1) return true;
    constexpr int kWarps = kConfig.cluster_warps();
    const int head = unit_.batch * static_cast<int>(a_.heads_q) + unit_.head;
    const int tile = head * static_cast<int>(a_.queue.tiles) + unit_.first_row / kConfig.rows();
    const int warp = tile * kWarps + ptx::cluster_rank() * (kWarps / kConfig.cluster) + ptx::warp_index();
    constexpr int kBytes = kConfig.message_bytes(kConfig.steps() - 1);
    std::byte* const messages = a_.workspace.messages + std::int64_t{warp} * split * kBytes;

    std::byte* const mine = messages + cluster_of(a_) * kBytes;
    if (ptx::lane_index() % 4 == 0) ptx::store(states_in(mine), four(state.m, state.l, 0, 0));
    SACCADE_UNROLL
    for (int n = 0; n < kSums; n += 4)
      ptx::store(sums_in(mine, n), four(sums[n], sums[n + 1], sums[n + 2], sums[n + 3]));
    ptx::sync_warp();
    int last = 0;
    if (ptx::lane_index() == 0) {  // its fences stand for all lanes, who meet before and after
      ptx::fence_device();
      last = tile::arrive_last(a_.workspace.arrivals + warp, split) ? 1 : 0;
      ptx::fence_device();
    }
    ptx::sync_warp();
    if (ptx::shuffle(last, 0) == 0) return false;

    // All are asked for before any is waited for.
    tile::RowState theirs[kConfig.kMostSplit];
    ptx::Bytes16 parts[kConfig.kMostSplit][kSums / 4] = {};
    SACCADE_UNROLL
    for (int n = 0; n < kConfig.kMostSplit; ++n) {
      if (n >= split) continue;
      std::byte* const message = messages + n * kBytes;
      const ptx::Bytes16 bits = ptx::load(states_in(message));
      theirs[n] = {std::bit_cast<float>(bits.words[0]), std::bit_cast<float>(bits.words[1])};
      SACCADE_UNROLL
      for (int e = 0; e < kSums; e += 4) parts[n][e / 4] = ptx::load(sums_in(message, e));
    }
    state = {};
    SACCADE_UNROLL
    for (const tile::RowState& one : theirs) state.m = tile::larger(one.m, state.m);
    SACCADE_UNROLL
    for (float& sum : sums) sum = 0;
    SACCADE_UNROLL
    for (int n = 0; n < kConfig.kMostSplit; ++n) {
      const float share = share_of(theirs[n], state.base());
      state.l = ptx::fma(share, theirs[n].l, state.l);
      SACCADE_UNROLL
      for (int e = 0; e < kSums; ++e) {
        const float part = std::bit_cast<float>(parts[n][e / 4].words[e % 4]);
        sums[e] = ptx::fma(share, part, sums[e]);
      }
    }
    return true;
  }
  static SACCADE_DEVICE ptx::Bytes16 four(float a, float b, float c, float d) {
    return {{std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b),
             std::bit_cast<std::uint32_t>(c), std::bit_cast<std::uint32_t>(d)}};
  }
  /// Another part's base may be so far above this one's, in every step: with two steps as far as bold weights
  /// may be above their base, and no farther in all with more.
  static constexpr float kCloseBases = kConfig.steps() > 2 ? 28.0F / kConfig.steps() : 14.0F;
  /// Makes the larger base of two parts that of these sums.
  template <int kSums>
  static SACCADE_DEVICE void raise(float (&sums)[kSums], States& state, const States& theirs) {
    float keep[kHalves];
    SACCADE_UNROLL
    for (int h = 0; h < kHalves; ++h) {
      keep[h] = state[h].raise(theirs[h].m);
      state[h].l *= keep[h];
    }
    SACCADE_UNROLL
    for (int n = 0; n < kSums; ++n) sums[n] *= keep[n / 2 % kHalves];
  }
  /// What sums relative to a row's base are worth relative to another.
  static SACCADE_DEVICE float share_of(const tile::RowState& state, float base) {
    return state.l == 0 ? 0.0F : ptx::fast_exp2(state.m - base);
  }
  /// Where a message has the states of this lane's rows, and its sums from number n on.
  static SACCADE_DEVICE ptx::Bytes16* states_in(std::byte* message) {
    return reinterpret_cast<ptx::Bytes16*>(message) + ptx::lane_index() / 4;
  }
  static SACCADE_DEVICE ptx::Bytes16* sums_in(std::byte* message, int n) {
    return reinterpret_cast<ptx::Bytes16*>(message) + 8 + n / 4 * ptx::kWarpThreads + ptx::lane_index();
  }
  /// Sends the warp that has the other part of this step its sums and the states of rows.
  template <int kStep, int kSums>
  static SACCADE_DEVICE void send(const float (&sums)[kSums], const States& state, int part) {
    const tile::RowState& last = state[kHalves - 1];
    constexpr bool kNear = kStep < kConfig.near_steps();
    constexpr int kStride = 4 * kConfig.row_groups;  // warps from one key group to the next
    const int other = part ^ 1 << kStep;
    const int warp = ptx::warp_index() + (other % kConfig.key_groups - part % kConfig.key_groups) * kStride;
    std::byte* inbox = Memory::template inbox<kStep>(warp);
    const auto put = [&](ptx::Bytes16* to, float a, float b, float c, float d) {
      const ptx::Bytes16 value = four(a, b, c, d);
      if constexpr (kNear) {
        ptx::store(to, value);
      } else {
        ptx::store_to_block(to, value, Memory::inbox_full(warp, kStep), other / Instance::kConfig.key_groups);
      }
    };
    const int lane = ptx::lane_index() % 4;  // of those that have the same states
    if constexpr (kNear) {
      const float low = lane % 2 == 0 ? state[0].m : state[0].l;
      const float high = lane % 2 == 0 ? last.m : last.l;
      ptx::store(&states_in(inbox)->words[lane], std::bit_cast<std::uint32_t>(lane < 2 ? low : high));
    } else {
      if (lane == 0) put(states_in(inbox), state[0].m, state[0].l, last.m, last.l);
    }
    SACCADE_UNROLL
    for (int n = 0; n < kSums; n += 4) put(sums_in(inbox, n), sums[n], sums[n + 1], sums[n + 2], sums[n + 3]);
  }

  /// Writes kCount columns of a row from `first` on; number(n, e) is this lane's in chunk n of eight columns.
  template <int kCount, class Number>
  SACCADE_DEVICE void write_columns(int h, int first, const Number& number) const {
    constexpr int kChunks = kCount / 8;
    constexpr int kLanes = kChunks % 4 == 0 ? 4 : kChunks % 2 == 0 ? 2 : 1;
    const int row = row_ + 8 * h;
    T* to = h == 0 ? to_ : to_ + eight_rows_;
    const int lane = ptx::lane_index() % 4;
    SACCADE_UNROLL
    for (int n = 0; n < kChunks; n += kLanes) {
      std::uint32_t words[kLanes];
      SACCADE_UNROLL
      for (int w = 0; w < kLanes; ++w) {
        words[w] = ptx::pack<T>(number(n + w, 0), number(n + w, 1));
      }
      turn_words(words);
      const int column = first + 8 * (n + lane % kLanes) + lane / kLanes * kLanes * 2;
      if (row >= len_q_ || column >= dim_v_) continue;
      if constexpr (kLanes == 4) {
        ptx::store(reinterpret_cast<ptx::Bytes16*>(to + column), {{words[0], words[1], words[2], words[3]}});
      } else if constexpr (kLanes == 2) {
        ptx::store(reinterpret_cast<ptx::Bytes8*>(to + column), {{words[0], words[1]}});
      } else {
        ptx::store(reinterpret_cast<std::uint32_t*>(to + column), words[0]);
      }
    }
  }
  SACCADE_DEVICE void write_lse(int h, const tile::RowState& state) const {
    const int row = row_ + 8 * h;
    if (a_.lse == nullptr || row >= len_q_ || ptx::lane_index() % 4 != 0) return;
    ptx::store(a_.lse + unit_.batch * a_.lse_batch + unit_.head * a_.lse_head +
                   (first_q_of(unit_) + row) * a_.lse_row,
               state.lse());
  }

  const Arguments<T, Instance>& a_;
  const Unit<Instance> unit_;
  const int row_;
  T* const to_;
  const std::int64_t eight_rows_;
  const int len_q_;
  const int dim_v_;
};

}  // namespace saccade::SACCADE_MACHINE::sm90
