// What a block works on when the problem is plain: dense tensors of the instance's head dim, addresses that
// are multiples of 16 bytes, scores that are products and nothing else.
#pragma once

#include <algorithm>

#include "cuda/launch/accept.h"
#include "cuda/ptx/memory.h"
#include "cuda/ptx/registers.h"
#include "cuda/sm80/split.h"
#include "cuda/tile/copy.h"
#include "cuda/tile/divisor.h"
#include "cuda/tile/queue.h"
#include "cuda/tile/scores.h"
#include "cuda/tile/tensor.h"

namespace saccade::SACCADE_MACHINE::sm80 {

/// Eight numbers to their 16 bytes.
template <class T>
SACCADE_DEVICE ptx::Bytes16 pack_chunk(const float (&x)[8]) {
  ptx::Bytes16 packed;
  SACCADE_UNROLL
  for (int e = 0; e < 4; ++e) packed.words[e] = ptx::pack<T>(x[2 * e], x[2 * e + 1]);
  return packed;
}

template <class T, class Instance>
class DenseUnit {
  static constexpr Config kConfig = Instance::kConfig;

  using Copies = tile::RowCopies<T, kConfig.tile_keys, kConfig.dim, kConfig.group_threads()>;

 public:
  /// What is needed first comes first: every 64 bytes of it are a wait of their own.
  struct Arguments {
    tile::GridQueue queue;
    int len_q;
    int blocks;           ///< that share a tile of queries
    tile::Divisor group;  ///< query heads to a key head
    tile::PlainScores scores;
    tile::Tensor4<const T> q, k, v;
    tile::Tensor4<T> o;
    float* lse;  ///< [batch, head, row] by the strides below; null: not asked for
    std::int64_t lse_batch, lse_head, lse_row;
    tile::GridNumbers numbers;
    Split split;
  };

  static Result<Arguments> arguments(const Problem& p, const Tensors& t, const Split& split) {
    if (!has_aligned_pointers(t))
      return Status(Code::invalid_argument, "this plan of sm80 needs q, k, v and o aligned to 16 bytes");
    const auto tensor = [](auto* data, const Strides& s) {
      return tile::Tensor4<std::remove_pointer_t<decltype(data)>>{data, s.batch, s.head, s.row};
    };
    const std::int64_t diagonal = p.alignment == Alignment::bottom_right ? p.len_kv - p.len_q : 0;
    const tile::GridNumbers numbers = tile::GridQueue::numbers(p, kConfig.rows(), split.count);
    return Arguments{
        .queue = tile::GridQueue::of(p, numbers),
        .len_q = static_cast<int>(p.len_q),
        .blocks = split.blocks(),
        .group = tile::Divisor::of(static_cast<int>(p.group())),
        .scores = {tile::span_of(p, p.len_kv, diagonal), tile::ScoreScale::of(p.effective_scale())},
        .q = tensor(static_cast<const T*>(t.q), p.q),
        .k = tensor(static_cast<const T*>(t.k), p.k),
        .v = tensor(static_cast<const T*>(t.v), p.v),
        .o = tensor(static_cast<T*>(t.o), p.o),
        .lse = p.lse ? t.lse : nullptr,
        .lse_batch = p.lse_strides.batch,
        .lse_head = p.lse_strides.head,
        .lse_row = p.lse_strides.row,
        .numbers = numbers,
        .split = split};
  }

  SACCADE_DEVICE DenseUnit(const Arguments& a, int batch, int head) : a_(a), batch_(batch), head_(head) {}
  /// Works out where the first row goes that this thread writes, while there is nothing else to do: in the
  /// end everybody would wait for it. Blocks with many tiles of keys, which others take turns with, have no
  /// registers to spare.
  SACCADE_DEVICE void look_ahead(int row) {
    if constexpr (kLooksAhead) {
      row_ = row;
      o_ = ptx::worked_out(a_.o.rows(batch_, head_) + row * a_.o.row);
    }
  }

  [[nodiscard]] SACCADE_DEVICE int len_q() const { return a_.len_q; }
  [[nodiscard]] SACCADE_DEVICE tile::PlainScores scores() const { return a_.scores; }

  /// Starts the copies of the block's queries, which all threads share as far as there are enough of them.
  SACCADE_DEVICE void copy_queries(ptx::SharedPointer<T> to, int first, int thread) const {
    constexpr int kThreads = std::min(kConfig.threads(), kConfig.rows() * kConfig.dim / 8);
    if (thread >= kThreads) return;
    tile::copy_rows<T, kConfig.rows(), kConfig.dim, kThreads>(to, a_.q.rows(batch_, head_), a_.q.row, first,
                                                              a_.len_q, thread);
  }
  /// The tiles of a group, one after the other; `first` is the first key of the first one, `thread` the
  /// thread's number in the group.
  class Tiles {
   public:
    SACCADE_DEVICE Tiles(const DenseUnit& unit, int first, int thread)
        : a_(unit.a_),
          copies_(thread),
          keys_(Copies::source(unit.keys() + first * a_.k.row, a_.k.row, thread)),
          values_(Copies::source(unit.values() + first * a_.v.row, a_.v.row, thread)) {}

    /// Starts the copies of the next tile, whose first key is `first`: keys, then values, in a group each,
    /// which is empty when there is no such tile.
    SACCADE_DEVICE void copy(ptx::SharedPointer<T> keys, ptx::SharedPointer<T> values, int first,
                             bool exists) {
      const int rows = exists ? a_.scores.span.len_kv - first : 0;
      if (rows >= kConfig.tile_keys) {  // nearly always: nothing to ask row by row
        copies_.start(keys, keys_, a_.k.row);
        ptx::commit_copies();
        copies_.start(values, values_, a_.v.row);
      } else {
        if (exists) copies_.start(keys, keys_, a_.k.row, rows, a_.k.data);
        ptx::commit_copies();
        if (exists) copies_.start(values, values_, a_.v.row, rows, a_.v.data);
      }
      ptx::commit_copies();
      keys_ += kStep * a_.k.row;
      values_ += kStep * a_.v.row;
    }

   private:
    static constexpr std::int64_t kStep = kConfig.key_groups * kConfig.tile_keys;

    const Arguments& a_;
    Copies copies_;
    const T* keys_;
    const T* values_;
  };

  /// What joins the denominator besides keys, in base 2: nothing.
  [[nodiscard]] SACCADE_DEVICE float sink() const { return -tile::kInfinity; }
  /// Writes eight numbers of a row of the output.
  SACCADE_DEVICE void write(int row, int column, const float (&x)[8]) const {
    T* const o = kLooksAhead ? o_ + (row - row_) * a_.o.row : a_.o.rows(batch_, head_) + row * a_.o.row;
    ptx::store(reinterpret_cast<ptx::Bytes16*>(o + column), pack_chunk<T>(x));
  }
  SACCADE_DEVICE void write_lse(int row, const tile::RowState& state) const {
    if (a_.lse == nullptr) return;
    ptx::store(a_.lse + batch_ * a_.lse_batch + head_ * a_.lse_head + row * a_.lse_row, state.lse());
  }

 private:
  [[nodiscard]] SACCADE_DEVICE const T* keys() const { return a_.k.rows(batch_, head_ / a_.group); }
  [[nodiscard]] SACCADE_DEVICE const T* values() const { return a_.v.rows(batch_, head_ / a_.group); }

  static constexpr bool kLooksAhead = kConfig.key_groups > 1;

  const Arguments& a_;
  int batch_, head_;
  T* o_ = nullptr;  ///< row_ of the output
  int row_ = 0;
};

}  // namespace saccade::SACCADE_MACHINE::sm80
