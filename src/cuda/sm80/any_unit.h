// What a block works on when the problem may be anything: head dims up to the instance's, odd addresses,
// sequences of their own lengths, pages, masks, sinks.
#pragma once

#include "cuda/sm80/dense_unit.h"
#include "cuda/tile/any_scores.h"

namespace saccade::SACCADE_MACHINE::sm80 {

template <class T, class Instance>
class AnyUnit {
  static constexpr Config kConfig = Instance::kConfig;

 public:
  struct Arguments {
    tile::GridQueue queue;
    int blocks;  ///< that share a tile of queries
    tile::GridNumbers numbers;
    Split split;
    Problem p;
    Tensors t;
    tile::Divisor group;  ///< query heads to a key head
    tile::Divisor page;   ///< keys of one
    tile::ScoreScale scale;
    bool aligned;  ///< every row begins at a multiple of 16 bytes
  };

  static Result<Arguments> arguments(const Problem& p, const Tensors& t, const Split& split) {
    const tile::GridNumbers numbers = tile::GridQueue::numbers(p, kConfig.rows(), split.count);
    return Arguments{
        .queue = tile::GridQueue::of(p, numbers),
        .blocks = split.blocks(),
        .numbers = numbers,
        .split = split,
        .p = p,
        .t = t,
        .group = tile::Divisor::of(static_cast<int>(p.group())),
        .page = tile::Divisor::of(static_cast<int>(std::min<std::int64_t>(p.page_size, tile::KeySpan::kFar))),
        .scale = tile::ScoreScale::of(p.effective_scale()),
        .aligned = has_aligned_pointers(t) && has_aligned_rows(p)};
  }

  SACCADE_DEVICE AnyUnit(const Arguments& a, int batch, int head) : a_(a), head_(head), batch_(batch) {
    const Sequence s = sequence(a.p, a.t, batch_);
    len_q_ = static_cast<int>(s.len_q);
    len_kv_ = static_cast<int>(s.len_kv);
    first_q_ = static_cast<int>(s.first_q);
    first_kv_ = static_cast<int>(s.first_kv);
  }

  SACCADE_DEVICE void look_ahead(int) {}
  [[nodiscard]] SACCADE_DEVICE int len_q() const { return len_q_; }
  [[nodiscard]] SACCADE_DEVICE tile::AnyScores<T> scores() const {
    const int diagonal = a_.p.alignment == Alignment::bottom_right ? len_kv_ - len_q_ : 0;
    return {a_.p, a_.t, batch_, head_, len_q_, tile::span_of(a_.p, len_kv_, diagonal), a_.scale};
  }

  SACCADE_DEVICE void copy_queries(ptx::SharedPointer<T> to, int first, int thread) const {
    const T* from = static_cast<const T*>(a_.t.q) + query_offset(a_.p, a_.p.q, where(), head_, 0);
    copy<kConfig.rows(), kConfig.threads()>(to, first, len_q_, a_.p.dim_qk, thread,
                                            [&](int i) { return from + i * a_.p.q.row; });
  }
  /// As DenseUnit's.
  class Tiles {
   public:
    SACCADE_DEVICE Tiles(const AnyUnit& unit, int, int thread) : unit_(unit), thread_(thread) {}

    SACCADE_DEVICE void look_ahead() {}
    SACCADE_DEVICE void copy(ptx::SharedPointer<T> keys, ptx::SharedPointer<T> values, int first,
                             bool exists) {
      const Arguments& a = unit_.a_;
      if (exists) unit_.copy_tile(keys, a.t.k, a.p.k, a.p.dim_qk, first, thread_);
      ptx::commit_copies();
      if (exists) unit_.copy_tile(values, a.t.v, a.p.v, a.p.dim_v, first, thread_);
      ptx::commit_copies();
    }

   private:
    const AnyUnit& unit_;
    int thread_;
  };

  [[nodiscard]] SACCADE_DEVICE float sink() const {
    return a_.p.sinks ? tile::kLog2e * ptx::load_constant(a_.t.sinks + head_) : -tile::kInfinity;
  }
  SACCADE_DEVICE void write(int row, int column, const ptx::Bytes16& x) const {
    T* to = static_cast<T*>(a_.t.o) + query_offset(a_.p, a_.p.o, where(), head_, row) + column;
    const int count = static_cast<int>(a_.p.dim_v) - column;
    if (a_.aligned && count >= 8) {
      ptx::store(reinterpret_cast<ptx::Bytes16*>(to), x);
      return;
    }
    SACCADE_UNROLL
    for (int e = 0; e < 8; ++e) {
      if (e < count) ptx::store(to + e, T{static_cast<std::uint16_t>(x.words[e / 2] >> e % 2 * 16)});
    }
  }
  [[nodiscard]] SACCADE_DEVICE bool wants_lse() const { return a_.p.lse; }
  SACCADE_DEVICE void write_lse(int row, const tile::RowState& state) const {
    ptx::store(a_.t.lse + lse_offset(a_.p, where(), head_, row), state.lse());
  }

 private:
  SACCADE_DEVICE void copy_tile(ptx::SharedPointer<T> to, const void* tensor, const Strides& strides,
                                std::int64_t dim, int first, int thread) const {
    constexpr int kThreads = kConfig.group_threads();
    const T* from = static_cast<const T*>(tensor);
    const std::int64_t head = head_ / a_.group;
    if (a_.p.kv_layout == KvLayout::paged) {
      const std::int32_t* pages = a_.t.block_table + batch_ * a_.p.pages_per_sequence;
      from += head * strides.head;
      copy<kConfig.tile_keys, kThreads>(to, first, len_kv_, dim, thread, [&](int j) {
        const std::int64_t page = ptx::load_constant(pages + j / a_.page);
        return from + page * strides.batch + j % a_.page * strides.row;
      });
    } else {
      from += key_offset(a_.p, a_.t, strides, where(), head, 0);
      if constexpr (kThreads % (kConfig.dim / 8) == 0) {
        if (a_.aligned && dim == kConfig.dim) {  // nothing odd about it
          tile::copy_rows<T, kConfig.tile_keys, kConfig.dim, kThreads>(to, from, strides.row, first, len_kv_,
                                                                       thread);
          return;
        }
      }
      copy<kConfig.tile_keys, kThreads>(to, first, len_kv_, dim, thread,
                                        [&](int j) { return from + j * strides.row; });
    }
  }

  /// Copies rows [first, first + kRows) into a swizzled tile: `dim` numbers from row_at(row) on and zeros
  /// after them, zeros alone from row `len` on. Rows at odd addresses go through registers, number by number,
  /// and are there when this returns.
  template <int kRows, int kThreads, class RowAt>
  SACCADE_DEVICE void copy(ptx::SharedPointer<T> to, int first, int len, std::int64_t dim, int thread,
                           const RowAt& row_at) const {
    using Tile = tile::SwizzledTile<kConfig.dim>;
    static_assert(kRows * Tile::kChunks % kThreads == 0);
    constexpr int kSteps = kRows * Tile::kChunks / kThreads;
    // Calls act(place in the tile, where the chunk begins in global memory, how many of its numbers there
    // are).
    const auto chunk = [&](int step, const auto& act) {
      const int row = (thread + step * kThreads) / Tile::kChunks;
      const int column = (thread + step * kThreads) % Tile::kChunks * Tile::kChunk;
      const int left = first + row < len ? static_cast<int>(dim) - column : 0;
      const int count = left < 0 ? 0 : left < Tile::kChunk ? left : Tile::kChunk;
      const T* from = row_at(count > 0 ? first + row : first) + (count > 0 ? column : 0);
      act(to + Tile::offset(row, column), from, count);
    };
    if (a_.aligned) {
      SACCADE_UNROLL_BY_4
      for (int step = 0; step < kSteps; ++step) {
        chunk(step, [](ptx::SharedPointer<T> here, const T* from, int count) {
          ptx::copy_async_16(here, from, count * static_cast<int>(sizeof(T)));
        });
      }
      return;
    }
    SACCADE_NO_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      chunk(step, [](ptx::SharedPointer<T> here, const T* from, int count) {
        ptx::Bytes16 packed{};
        SACCADE_UNROLL
        for (int e = 0; e < Tile::kChunk; ++e) {
          const std::uint32_t bits = e < count ? ptx::load_constant(from + e).bits : 0U;
          packed.words[e / 2] |= bits << e % 2 * 16;
        }
        ptx::store(reinterpret_cast<ptx::Bytes16*>(here.generic()), packed);
      });
    }
  }

  /// The block's sequence, for the functions of core/sequence.h; kept in 32 bits, which are half the
  /// registers.
  [[nodiscard]] SACCADE_DEVICE Sequence where() const {
    return {.batch = batch_, .len_q = len_q_, .len_kv = len_kv_, .first_q = first_q_, .first_kv = first_kv_};
  }

  const Arguments& a_;
  int head_, batch_;
  int len_q_, len_kv_, first_q_, first_kv_;
};

}  // namespace saccade::SACCADE_MACHINE::sm80
