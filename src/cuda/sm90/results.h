// How rows leave a warp: from registers to global memory, 16 bytes at a time where columns suffice. Warps
// that have the same rows, and other keys, first send each other columns: each gets those of its number from
// all the others, and adds them up in the order of parts, so the bits never depend on who was first.
#pragma once

#include <bit>

#include "cuda/ptx/cluster.h"
#include "cuda/ptx/memory.h"
#include "cuda/ptx/warp.h"
#include "cuda/sm90/arguments.h"
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
  using Memory = Shared<Instance>;

 public:
  /// `first_row`: of this warp.
  SACCADE_DEVICE Results(const Arguments<T>& a, const Unit& unit, int first_row)
      : a_(a), unit_(unit), row_(first_row + ptx::lane_index() / 4) {}

  template <class Rows>
  SACCADE_DEVICE void write(const Rows& rows) const {
    SACCADE_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float weight = weight_of(rows.state(h));
      write_columns<kConfig.dim>(h, 0, [&](int n) { return rows.sums()[n] * weight; });
      write_lse(h, rows.state(h));
    }
  }

  /// The same for a warp that has one part of the keys; all warps of its rows do it.
  template <class Rows>
  SACCADE_DEVICE void exchange_and_write(const Rows& rows, int part) const {
    const int warp = ptx::warp_index();
    SACCADE_UNROLL
    for (int to = 0; to < kParts; ++to) send(rows, to, warp, part);
    ptx::wait_mbarrier(Memory::inbox_full(warp), 0);
    std::byte* inbox = Memory::inbox(warp);
    tile::RowState states[kParts][2];
    tile::RowState whole[2];
    SACCADE_UNROLL
    for (int p = 0; p < kParts; ++p) {
      const ptx::Bytes16 bits = ptx::load(place(inbox, p, 0));
      SACCADE_UNROLL
      for (int h = 0; h < 2; ++h) {
        states[p][h] = {std::bit_cast<float>(bits.words[2 * h]), std::bit_cast<float>(bits.words[2 * h + 1])};
        whole[h].m = tile::larger(whole[h].m, states[p][h].m);
      }
    }
    float sum[kSums] = {};
    SACCADE_UNROLL
    for (int p = 0; p < kParts; ++p) {
      float share[2];
      SACCADE_UNROLL
      for (int h = 0; h < 2; ++h) {
        share[h] = states[p][h].l == 0 ? 0.0F : ptx::fast_exp2(states[p][h].m - whole[h].m);
        whole[h].l += share[h] * states[p][h].l;
      }
      SACCADE_UNROLL
      for (int n = 0; n < kSums; n += 4) {
        const ptx::Bytes16 sums = ptx::load(place(inbox, p, 1 + n / 4));
        SACCADE_UNROLL
        for (int e = 0; e < 4; ++e)
          sum[n + e] = ptx::fma(share[e / 2], std::bit_cast<float>(sums.words[e]), sum[n + e]);
      }
    }
    SACCADE_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float weight = weight_of(whole[h]);
      write_columns<kColumns>(h, part * kColumns, [&](int n) { return sum[n] * weight; });
      if (part == 0) write_lse(h, whole[h]);
    }
  }

 private:
  /// As RowState::weight, by a reciprocal that has no slow path.
  static SACCADE_DEVICE float weight_of(const tile::RowState& state) {
    return state.l == 0 ? 0.0F : ptx::fast_reciprocal(state.l);
  }
  static constexpr int kColumns = kConfig.dim / kParts;  ///< that a warp writes
  static constexpr int kSums = kColumns / 2;             ///< of them, a lane has of two rows
  static_assert(kColumns % 8 == 0);

  /// Where this lane's 16 bytes of a message lie: number 0 are the states of its rows, then come sums.
  static SACCADE_DEVICE ptx::Bytes16* place(std::byte* inbox, int from, int number) {
    auto* message = reinterpret_cast<ptx::Bytes16*>(inbox + from * kConfig.message_bytes());
    return message + ptx::kWarpThreads * number + ptx::lane_index();
  }
  /// Sends part `to` its columns and the states of rows; it is warp `warp`'s counterpart in its own warpgroup
  /// and block.
  template <class Rows>
  static SACCADE_DEVICE void send(const Rows& rows, int to, int warp, int part) {
    constexpr int kStep = 4 * kConfig.row_groups;  // warps from one key group to the next
    const int block = to / kConfig.key_groups;
    const bool near = kConfig.cluster == 1 || block == part / kConfig.key_groups;
    const int there = warp + (to % kConfig.key_groups - part % kConfig.key_groups) * kStep;
    std::byte* inbox = Memory::inbox(there);
    const auto put = [&](int number, float a, float b, float c, float d) {
      const ptx::Bytes16 value{{std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b),
                                std::bit_cast<std::uint32_t>(c), std::bit_cast<std::uint32_t>(d)}};
      if (near) {
        ptx::store(place(inbox, part, number), value);
      } else {
        ptx::store_to_block(place(inbox, part, number), value, Memory::inbox_full(there), block);
      }
    };
    put(0, rows.state(0).m, rows.state(0).l, rows.state(1).m, rows.state(1).l);
    SACCADE_UNROLL
    for (int n = 0; n < kSums; n += 4) {
      const auto& sums = rows.sums();
      const int first = to * kSums + n;
      put(1 + n / 4, sums[first], sums[first + 1], sums[first + 2], sums[first + 3]);
    }
    if (near) ptx::arrive_mbarrier(Memory::inbox_full(there));  // by every lane, for what it stored
  }

  /// Writes kCount columns of a row from `first` on; number(4 n + 2 h + e) as Rows has them.
  template <int kCount, class Number>
  SACCADE_DEVICE void write_columns(int h, int first, const Number& number) const {
    constexpr int kChunks = kCount / 8;
    constexpr int kLanes = kChunks % 4 == 0 ? 4 : kChunks % 2 == 0 ? 2 : 1;
    const int row = row_ + 8 * h;
    T* to = a_.o.rows(unit_.batch, unit_.head) + row * a_.o.row;
    const int lane = ptx::lane_index() % 4;
    SACCADE_UNROLL
    for (int n = 0; n < kChunks; n += kLanes) {
      std::uint32_t words[kLanes];
      SACCADE_UNROLL
      for (int w = 0; w < kLanes; ++w) {
        const int at = 4 * (n + w) + 2 * h;
        words[w] = ptx::pack<T>(number(at), number(at + 1));
      }
      turn_words(words);
      const int column = first + 8 * (n + lane % kLanes) + lane / kLanes * kLanes * 2;
      if (row >= a_.len_q || column >= a_.dim_v) continue;
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
    if (a_.lse == nullptr || row >= a_.len_q || ptx::lane_index() % 4 != 0) return;
    ptx::store(a_.lse + unit_.batch * a_.lse_batch + unit_.head * a_.lse_head + row * a_.lse_row,
               state.lse());
  }

  const Arguments<T>& a_;
  const Unit& unit_;
  int row_;
};

}  // namespace saccade::SACCADE_MACHINE::sm90
