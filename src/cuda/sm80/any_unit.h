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
    Queue queue;
    Problem p;
    Tensors t;
    tile::ScoreScale scale;
    bool aligned;  ///< every row begins at a multiple of 16 bytes
  };

  static Result<Arguments> arguments(const Problem& p, const Tensors& t) {
    const auto aligned = [](const void* data, const Strides& s) {
      return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && s.batch % 8 == 0 && s.head % 8 == 0 &&
             s.row % 8 == 0;
    };
    return Arguments{
        .queue = Queue::of(p, kConfig),
        .p = p,
        .t = t,
        .scale = tile::ScoreScale::of(p.effective_scale()),
        .aligned = aligned(t.q, p.q) && aligned(t.k, p.k) && aligned(t.v, p.v) && aligned(t.o, p.o)};
  }

  SACCADE_DEVICE AnyUnit(const Arguments& a, int batch_and_head)
      : a_(a),
        head_(batch_and_head % static_cast<int>(a.p.heads_q)),
        sequence_(sequence(a.p, a.t, batch_and_head / static_cast<int>(a.p.heads_q))) {}

  [[nodiscard]] SACCADE_DEVICE int len_q() const { return static_cast<int>(sequence_.len_q); }
  [[nodiscard]] SACCADE_DEVICE tile::AnyScores<T> scores() const {
    return {a_.p, a_.t, sequence_, head_, span_of(a_.p, sequence_.len_kv, sequence_.diagonal), a_.scale};
  }

  template <int kThreads>
  SACCADE_DEVICE void copy_queries(ptx::SharedPointer<T> to, int first, int thread) const {
    const T* from = static_cast<const T*>(a_.t.q) + query_offset(a_.p, a_.p.q, sequence_, head_, 0);
    copy<kConfig.rows(), kThreads>(to, first, sequence_.len_q, a_.p.dim_qk, thread,
                                   [&](int i) { return from + i * a_.p.q.row; });
  }
  template <int kThreads>
  SACCADE_DEVICE void copy_keys(ptx::SharedPointer<T> to, int first, int thread) const {
    copy_tile<kThreads>(to, a_.t.k, a_.p.k, a_.p.dim_qk, first, thread);
  }
  template <int kThreads>
  SACCADE_DEVICE void copy_values(ptx::SharedPointer<T> to, int first, int thread) const {
    copy_tile<kThreads>(to, a_.t.v, a_.p.v, a_.p.dim_v, first, thread);
  }

  [[nodiscard]] SACCADE_DEVICE float sink() const {
    return a_.p.sinks ? tile::kLog2e * ptx::load_constant(a_.t.sinks + head_) : -tile::kInfinity;
  }
  SACCADE_DEVICE void write(int row, int column, const float (&x)[8]) const {
    T* to = static_cast<T*>(a_.t.o) + query_offset(a_.p, a_.p.o, sequence_, head_, row) + column;
    const int count = static_cast<int>(a_.p.dim_v) - column;
    if (a_.aligned && count >= 8) {
      ptx::store(reinterpret_cast<ptx::Bytes16*>(to), pack_chunk<T>(x));
      return;
    }
    SACCADE_UNROLL
    for (int e = 0; e < 8; ++e) {
      if (e < count) ptx::store(to + e, ptx::from_float<T>(x[e]));
    }
  }
  SACCADE_DEVICE void write_lse(int row, const tile::RowState& state) const {
    if (a_.p.lse) ptx::store(a_.t.lse + lse_offset(a_.p, sequence_, head_, row), state.lse());
  }

 private:
  template <int kThreads>
  SACCADE_DEVICE void copy_tile(ptx::SharedPointer<T> to, const void* tensor, const Strides& strides,
                                std::int64_t dim, int first, int thread) const {
    const T* from = static_cast<const T*>(tensor);
    const std::int64_t head = head_ / a_.p.group();
    if (a_.p.kv_layout == KvLayout::paged) {
      copy<kConfig.tile_keys, kThreads>(to, first, sequence_.len_kv, dim, thread, [&](int j) {
        return from + key_offset(a_.p, a_.t, strides, sequence_, head, j);
      });
    } else {
      from += key_offset(a_.p, a_.t, strides, sequence_, head, 0);
      copy<kConfig.tile_keys, kThreads>(to, first, sequence_.len_kv, dim, thread,
                                        [&](int j) { return from + j * strides.row; });
    }
  }

  /// Copies rows [first, first + kRows) into a swizzled tile: `dim` numbers from row_at(row) on and zeros
  /// after them, zeros alone from row `len` on. Rows at odd addresses go through registers, number by number,
  /// and are there when this returns.
  template <int kRows, int kThreads, class RowAt>
  SACCADE_DEVICE void copy(ptx::SharedPointer<T> to, int first, std::int64_t len, std::int64_t dim,
                           int thread, const RowAt& row_at) const {
    using Tile = tile::SwizzledTile<kConfig.dim>;
    static_assert(kRows * Tile::kChunks % kThreads == 0);
    SACCADE_UNROLL_BY_4
    for (int step = 0; step < kRows * Tile::kChunks / kThreads; ++step) {
      const int row = (thread + step * kThreads) / Tile::kChunks;
      const int column = (thread + step * kThreads) % Tile::kChunks * Tile::kChunk;
      const int left = static_cast<int>(dim) - column;
      const int count = first + row >= len || left < 0 ? 0 : left < Tile::kChunk ? left : Tile::kChunk;
      const T* from = row_at(count > 0 ? first + row : first) + (count > 0 ? column : 0);
      const ptx::SharedPointer<T> here = to + Tile::offset(row, column);
      if (a_.aligned) {
        ptx::copy_async_16(here, from, count * static_cast<int>(sizeof(T)));
      } else {
        ptx::Bytes16 chunk{};
        SACCADE_UNROLL
        for (int e = 0; e < Tile::kChunk; ++e) {
          const std::uint32_t bits = e < count ? ptx::load_constant(from + e).bits : 0U;
          chunk.words[e / 2] |= bits << e % 2 * 16;
        }
        ptx::store(reinterpret_cast<ptx::Bytes16*>(here.generic()), chunk);
      }
    }
  }

  const Arguments& a_;
  int head_;
  Sequence sequence_;
};

}  // namespace saccade::SACCADE_MACHINE::sm80
