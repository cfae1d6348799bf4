// How a block's results leave it, 16 bytes at a time. Warps that have rows to themselves write them; else
// rows meet in shared memory, groups are added up there, and blocks that share a tile of queries in the
// workspace. Parts are always added in the same order, so the bits never depend on who was first.
#pragma once

#include <bit>

#include "cuda/ptx/barrier.h"
#include "cuda/ptx/mbarrier.h"
#include "cuda/ptx/memory.h"
#include "cuda/sm80/split.h"
#include "cuda/tile/softmax.h"
#include "cuda/tile/swizzle.h"

namespace saccade::SACCADE_MACHINE::sm80 {

/// Shared memory: the queries, then the rings of keys and values; when those are done, the groups' partial
/// results in their place. Then the states of rows, and a barrier where warps tell each other early.
template <class T, class Instance>
struct Shared {
  static constexpr Config kConfig = Instance::kConfig;
  static constexpr int kTile = kConfig.tile_keys * kConfig.dim;

  static SACCADE_DEVICE ptx::SharedPointer<T> queries() {
    return ptx::SharedPointer<T>(reinterpret_cast<T*>(ptx::shared_memory()));
  }
  /// A group's ring of stages, each of a tile of keys and one of values.
  static SACCADE_DEVICE ptx::SharedPointer<T> ring(int group) {
    return queries() + (kConfig.rows() * kConfig.dim + group * kConfig.stages * 2 * kTile);
  }
  static SACCADE_DEVICE float* partial(int group, int row) {
    return reinterpret_cast<float*>(ptx::shared_memory()) +
           (group * kConfig.rows() + row) * kConfig.partial_stride();
  }
  /// What a row's weights are relative to in a group, and their sum.
  static SACCADE_DEVICE ptx::Bytes8* state(int group, int row) {
    return reinterpret_cast<ptx::Bytes8*>(ptx::shared_memory() + kConfig.tile_bytes()) +
           group * kConfig.rows() + row;
  }
  /// Completes a phase when every warp has read a tile and the next one has arrived.
  static SACCADE_DEVICE ptx::Mbarrier* turn() {
    static_assert(kConfig.tells_early());
    return reinterpret_cast<ptx::Mbarrier*>(ptx::shared_memory() + kConfig.tile_bytes() +
                                            kConfig.state_bytes());
  }
};

SACCADE_DEVICE ptx::Bytes8 pair_of(float x, float y) {
  return {{std::bit_cast<std::uint32_t>(x), std::bit_cast<std::uint32_t>(y)}};
}
SACCADE_DEVICE tile::RowState state_of_pair(const ptx::Bytes8& bits) {
  return {std::bit_cast<float>(bits.words[0]), std::bit_cast<float>(bits.words[1])};
}

/// Eight numbers to their 16 bytes.
template <class T>
SACCADE_DEVICE ptx::Bytes16 pack_chunk(const float (&x)[8]) {
  ptx::Bytes16 packed;
  SACCADE_UNROLL
  for (int e = 0; e < 4; ++e) packed.words[e] = ptx::pack<T>(x[2 * e], x[2 * e + 1]);
  return packed;
}

/// Eight columns of a row: sums of weighted values, and what they are relative to.
struct Chunk {
  tile::RowState state;
  float sum[8] = {};
};

/// Adds up parts, and a sink (-inf: none) to the weights. state_of(part) is a RowState, values_of(part, half)
/// the first or second four sums; with `swapped` the second half is asked for first.
template <class StateOf, class ValuesOf>
SACCADE_DEVICE Chunk add_parts(int parts, float sink, bool swapped, const StateOf& state_of,
                               const ValuesOf& values_of) {
  Chunk all{.state = {.m = sink}};
  SACCADE_UNROLL
  for (int part = 0; part < parts; ++part) all.state.m = tile::larger(all.state.m, state_of(part).m);
  if (sink != -tile::kInfinity) all.state.l = ptx::fast_exp2(sink - all.state.m);
  SACCADE_UNROLL
  for (int part = 0; part < parts; ++part) {
    const tile::RowState state = state_of(part);
    const float share = state.l == 0 ? 0.0F : ptx::fast_exp2(state.m - all.state.m);
    all.state.l += share * state.l;
    const ptx::Bytes16 one = values_of(part, swapped ? 1 : 0);
    const ptx::Bytes16 other = values_of(part, swapped ? 0 : 1);
    // By value: of two array elements, ?: would choose the address, and both arrays would lie in memory.
    const auto chosen = [swapped](std::uint32_t yes, std::uint32_t no) {
      return std::bit_cast<float>(swapped ? yes : no);
    };
    SACCADE_UNROLL
    for (int e = 0; e < 4; ++e) {
      all.sum[e] = ptx::fma(share, chosen(other.words[e], one.words[e]), all.sum[e]);
      all.sum[4 + e] = ptx::fma(share, chosen(one.words[e], other.words[e]), all.sum[4 + e]);
    }
  }
  return all;
}

template <class T, class Instance, class Unit>
class Results {
  static constexpr Config kConfig = Instance::kConfig;
  using Memory = Shared<T, Instance>;

 public:
  /// The rows of the unit from first_row on.
  SACCADE_DEVICE Results(const Unit& unit, const Split& split, const Part& part, int first_row)
      : unit_(unit), split_(split), part_(part), first_row_(first_row) {}

  /// Writes the rows of a warp, from warp_row of the block on, of which nobody else has a part: it waits for
  /// nobody, and puts them where its queries were.
  template <class Rows>
  SACCADE_DEVICE void write_alone(const Rows& rows, int warp_row) const {
    using Tile = tile::SwizzledTile<kConfig.dim>;
    const int first = first_row_ + warp_row;
    const ptx::SharedPointer<T> own = Memory::queries() + warp_row * kConfig.dim;
    const float sink = unit_.sink();
    ptx::sync_warp();  // no lane reads queries any more
    rows.put(own, [&](tile::RowState state) {
      const float keep = state.take_sink(sink);
      return keep * state.weight();
    });
    if (unit_.wants_lse()) {
      rows.for_each_row([&](int row, tile::RowState state) {
        state.take_sink(sink);
        if (ptx::lane_index() % 4 == 0 && first + row < unit_.len_q()) unit_.write_lse(first + row, state);
      });
    }
    ptx::sync_warp();
    const auto write_rows = [&](const auto& exists) {
      if constexpr (ptx::kWarpThreads % Tile::kChunks == 0) {  // a lane's chunks are all of one column
        constexpr int kStep = ptx::kWarpThreads / Tile::kChunks;
        const int row = ptx::lane_index() / Tile::kChunks;
        const int column = ptx::lane_index() % Tile::kChunks * Tile::kChunk;
        const ptx::SharedPointer<T> from = own + Tile::offset(row, column);
        SACCADE_UNROLL
        for (int n = 0; n < Rows::kRows; n += kStep) {
          const auto chunk = (from ^ (Tile::exchange(n) * Tile::kChunk)) + n * kConfig.dim;
          if (exists(first + row + n)) write_chunk(first + row + n, column, chunk);
        }
      } else {
        SACCADE_UNROLL
        for (int n = ptx::lane_index(); n < Rows::kRows * Tile::kChunks; n += ptx::kWarpThreads) {
          const int row = n / Tile::kChunks;
          const int column = n % Tile::kChunks * Tile::kChunk;
          if (exists(first + row)) write_chunk(first + row, column, own + Tile::offset(row, column));
        }
      }
    };
    if (first + Rows::kRows <= unit_.len_q()) {
      write_rows([](int) { return true; });
    } else {
      write_rows([&](int row) { return row < unit_.len_q(); });
    }
  }
  /// Brings a warp's rows, from warp_row of the block on, together with all others; by the whole block.
  template <class Rows>
  SACCADE_DEVICE void write(const Rows& rows, int group, int warp_row) const {
    ptx::sync_block();  // nobody reads keys, values or queries any more
    rows.for_each_row([&](int i, const tile::RowState& state) {
      if (ptx::lane_index() % 4 == 0)
        ptx::store(Memory::state(group, warp_row + i), pair_of(state.m, state.l));
    });
    rows.for_each_pair([&](int i, int column, float x, float y) {
      ptx::store(reinterpret_cast<ptx::Bytes8*>(Memory::partial(group, warp_row + i) + column),
                 pair_of(x, y));
    });
    ptx::sync_block();
    if (part_.blocks == 1) {
      const float sink = unit_.sink();
      for_each_chunk(
          [&](int row, int column, int n) { finish(row, column, of_groups(row, column, n, sink)); });
      return;
    }
    for_each_chunk([&](int row, int column, int n) {
      const Chunk chunk = of_groups(row, column, n, -tile::kInfinity);
      const std::int64_t at = place(part_.block, row);
      SACCADE_UNROLL
      for (int e = 0; e < 8; e += 4) {
        ptx::store(
            reinterpret_cast<ptx::Bytes16*>(split_.sums + at * kConfig.dim + column + e),
            {{std::bit_cast<std::uint32_t>(chunk.sum[e]), std::bit_cast<std::uint32_t>(chunk.sum[e + 1]),
              std::bit_cast<std::uint32_t>(chunk.sum[e + 2]),
              std::bit_cast<std::uint32_t>(chunk.sum[e + 3])}});
      }
      if (column == 0) ptx::store(split_.states + at, pair_of(chunk.state.m, chunk.state.l));
    });
    if (!is_last()) return;
    const float sink = unit_.sink();
    for_each_chunk([&](int row, int column, int) { finish(row, column, of_blocks(row, column, sink)); });
  }

 private:
  /// Calls act(row, column, number) for the chunks that are this thread's.
  template <class Act>
  SACCADE_DEVICE void for_each_chunk(const Act& act) const {
    constexpr int kChunks = kConfig.dim / 8;
    for (int n = ptx::thread_index(); n < kConfig.rows() * kChunks; n += kConfig.threads()) {
      if (first_row_ + n / kChunks < unit_.len_q()) act(n / kChunks, n % kChunks * 8, n);
    }
  }
  /// Where a row of a block lies among all that blocks have left.
  [[nodiscard]] SACCADE_DEVICE std::int64_t place(int block, int row) const {
    return (std::int64_t{part_.tile} * part_.blocks + block) * kConfig.rows() + row;
  }
  /// Every other four threads read their second half first: else two of eight would want the same banks.
  SACCADE_DEVICE Chunk of_groups(int row, int column, int n, float sink) const {
    return add_parts(
        kConfig.key_groups, sink, n / 4 % 2 == 1,
        [&](int group) { return state_of_pair(ptx::load(Memory::state(group, row))); },
        [&](int group, int half) {
          return ptx::load(reinterpret_cast<const ptx::Bytes16*>(Memory::partial(group, row) + column) +
                           half);
        });
  }
  /// Several at a time: all of them are asked for before the first is waited for.
  SACCADE_DEVICE Chunk of_blocks(int row, int column, float sink) const {
    constexpr int kTogether = 8;
    const int blocks = part_.blocks;
    Chunk all{.state = {sink, sink == -tile::kInfinity ? 0.0F : 1.0F}};
    SACCADE_NO_UNROLL
    for (int first = 0; first < blocks; first += kTogether) {
      tile::RowState states[kTogether];
      ptx::Bytes16 sums[kTogether][2] = {};
      SACCADE_UNROLL
      for (int n = 0; n < kTogether; ++n) {
        if (first + n >= blocks) continue;
        const std::int64_t at = place(first + n, row);
        const auto* from = reinterpret_cast<const ptx::Bytes16*>(split_.sums + at * kConfig.dim + column);
        states[n] = state_of_pair(ptx::load(split_.states + at));
        sums[n][0] = ptx::load(from);
        sums[n][1] = ptx::load(from + 1);
      }
      float m = all.state.m;
      SACCADE_UNROLL
      for (const tile::RowState& state : states) m = tile::larger(m, state.m);
      const float keep = all.state.raise(m);
      all.state.l *= keep;
      SACCADE_UNROLL
      for (float& sum : all.sum) sum *= keep;
      SACCADE_UNROLL
      for (int n = 0; n < kTogether; ++n) {
        const float share = states[n].l == 0 ? 0.0F : ptx::fast_exp2(states[n].m - all.state.m);
        all.state.l = ptx::fma(share, states[n].l, all.state.l);
        SACCADE_UNROLL
        for (int e = 0; e < 8; ++e)
          all.sum[e] = ptx::fma(share, std::bit_cast<float>(sums[n][e / 4].words[e % 4]), all.sum[e]);
      }
    }
    return all;
  }
  SACCADE_DEVICE void write_chunk(int row, int column, ptx::SharedPointer<T> from) const {
    unit_.write(row, column, ptx::load(reinterpret_cast<const ptx::Bytes16*>(from.generic())));
  }
  SACCADE_DEVICE void finish(int row, int column, const Chunk& chunk) const {
    const float weight = chunk.state.weight();
    float o[8];
    SACCADE_UNROLL
    for (int e = 0; e < 8; ++e) o[e] = chunk.sum[e] * weight;
    unit_.write(first_row_ + row, column, pack_chunk<T>(o));
    if (column == 0 && unit_.wants_lse()) unit_.write_lse(first_row_ + row, chunk.state);
  }
  /// Whether all other blocks of the tile of queries have left their results; the same for all threads.
  SACCADE_DEVICE bool is_last() const {
    ptx::Bytes8* verdict = Memory::state(0, 0);  // whose readers are done after the barrier
    ptx::sync_block();
    if (ptx::thread_index() == 0) {  // its fences stand for all: the barriers are between them and the others
      ptx::fence_device();
      const bool last = tile::arrive_last(split_.arrivals + part_.tile, part_.blocks);
      ptx::fence_device();
      ptx::store(verdict, {{last ? 1U : 0U, 0U}});
    }
    ptx::sync_block();
    return ptx::load(verdict).words[0] != 0;
  }

  const Unit& unit_;
  const Split& split_;
  const Part part_;
  const int first_row_;
};

}  // namespace saccade::SACCADE_MACHINE::sm80
