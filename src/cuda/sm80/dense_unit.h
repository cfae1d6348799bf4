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

template <class T, class Instance>
class DenseUnit {
  static constexpr Config kConfig = Instance::kConfig;

  using Copies = tile::RowCopies<T, kConfig.tile_keys, kConfig.dim, kConfig.group_threads()>;

 public:
  /// What is needed first comes first: every 64 bytes of it are a wait of their own. The first copies need
  /// what is before the scale: two lines, of which the machine's own numbers take 16 bytes.
  struct Arguments {
    tile::GridQueue queue;
    tile::NearTensor4<const T> q;
    tile::Divisor group;  ///< query heads to a key head
    int blocks;           ///< that share a tile of queries
    tile::KeySpan span;
    tile::NearTensor4<const T> k, v;
    tile::ScoreScale scale;
    tile::NearTensor4<T> o;
    float* lse;  ///< [batch, head, row] by the strides below; null: not asked for
    std::int64_t lse_batch, lse_head, lse_row;
    tile::GridNumbers numbers;
    Split split;
  };

  static Result<Arguments> arguments(const Problem& p, const Tensors& t, const Split& split) {
    if (!has_aligned_pointers(t))
      return Status(Code::invalid_argument, "this plan of sm80 needs q, k, v and o aligned to 16 bytes");
    const std::int64_t diagonal = p.alignment == Alignment::bottom_right ? p.len_kv - p.len_q : 0;
    const tile::GridNumbers numbers = tile::GridQueue::numbers(p, kConfig.rows(), split.count);
    const auto queries = [&](auto* data, const Strides& strides) {
      return tile::NearTensor4<std::remove_pointer_t<decltype(data)>>::of(data, strides, p.batch, p.heads_q,
                                                                          p.len_q);
    };
    const auto keys = [&](const void* data, const Strides& strides) {
      return tile::NearTensor4<const T>::of(static_cast<const T*>(data), strides, p.batch, p.heads_kv,
                                            p.len_kv);
    };
    return Arguments{.queue = tile::GridQueue::of(p, numbers),
                     .q = queries(static_cast<const T*>(t.q), p.q),
                     .group = tile::Divisor::of(static_cast<int>(p.group())),
                     .blocks = split.blocks(),
                     .span = tile::span_of(p, p.len_kv, diagonal),
                     .k = keys(t.k, p.k),
                     .v = keys(t.v, p.v),
                     .scale = tile::ScoreScale::of(p.effective_scale()),
                     .o = queries(static_cast<T*>(t.o), p.o),
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
      o_ = ptx::worked_out(a_.o.at(a_.o.chunks_to(batch_, head_, row)));
    }
  }

  [[nodiscard]] SACCADE_DEVICE int len_q() const { return a_.q.length; }
  [[nodiscard]] SACCADE_DEVICE tile::PlainScores scores() const { return {a_.span, a_.scale}; }

  /// Starts the copies of the block's queries, which all threads share as far as there are enough of them.
  SACCADE_DEVICE void copy_queries(ptx::SharedPointer<T> to, int first, int thread) const {
    constexpr int kThreads = std::min(kConfig.threads(), kConfig.rows() * kConfig.dim / 8);
    if (thread >= kThreads) return;
    tile::copy_rows<T, kConfig.rows(), kConfig.dim, kThreads>(to, a_.q, batch_, head_, first, thread);
  }
  /// The tiles of a group, one after the other; `first` is the first key of the first one, `thread` the
  /// thread's number in the group.
  class Tiles {
   public:
    SACCADE_DEVICE Tiles(const DenseUnit& unit, int first, int thread)
        : a_(unit.a_),
          copies_(thread),
          keys_(Copies::source(a_.k, unit.batch_, unit.head_ / a_.group, first, thread)),
          values_(Copies::source(a_.v, unit.batch_, unit.head_ / a_.group, first, thread)) {}

    /// Works out where the next tile lies, which keeps nvcc from adding up a chain of addresses when its
    /// copies are started (docs/kernels/sm80.md).
    SACCADE_DEVICE void look_ahead() {
      if constexpr (kLooksAhead) {
        next_keys_ = ptx::worked_out(a_.k.at(keys_));
        next_values_ = ptx::worked_out(a_.v.at(values_));
        key_row_.count = ptx::worked_out(a_.k.row.count);
        value_row_.count = ptx::worked_out(a_.v.row.count);
      }
    }
    /// After look_ahead(): starts the copies of the next tile, whose first key is `first`: keys, then values,
    /// in a group each, which is empty when there is no such tile.
    SACCADE_DEVICE void copy(ptx::SharedPointer<T> keys, ptx::SharedPointer<T> values, int first,
                             bool exists) {
      const int rows = exists ? a_.k.length - first : 0;
      const T* const next_keys = kLooksAhead ? next_keys_ : a_.k.at(keys_);
      const T* const next_values = kLooksAhead ? next_values_ : a_.v.at(values_);
      if (rows >= kConfig.tile_keys) {  // nearly always: nothing to ask row by row
        copies_.start(keys, next_keys, key_row());
        ptx::commit_copies();
        copies_.start(values, next_values, value_row());
      } else {
        if (exists) copies_.start(keys, next_keys, key_row(), rows, a_.k.data);
        ptx::commit_copies();
        if (exists) copies_.start(values, next_values, value_row(), rows, a_.v.data);
      }
      ptx::commit_copies();
      keys_ += kStep * key_row().count;
      values_ += kStep * value_row().count;
    }

   private:
    static constexpr int kStep = kConfig.key_groups * kConfig.tile_keys;
    /// Not for one tile alone: the compiler would ask for its arguments sooner, and queries wait for them.
    static constexpr bool kLooksAhead = !kConfig.holds_all();

    [[nodiscard]] SACCADE_DEVICE tile::Chunks key_row() const { return kLooksAhead ? key_row_ : a_.k.row; }
    [[nodiscard]] SACCADE_DEVICE tile::Chunks value_row() const {
      return kLooksAhead ? value_row_ : a_.v.row;
    }

    const Arguments& a_;
    Copies copies_;
    int keys_, values_;             ///< chunks to what is copied next
    const T* next_keys_ = nullptr;  ///< look_ahead()'s, as the others
    const T* next_values_ = nullptr;
    tile::Chunks key_row_{}, value_row_{};
  };

  /// What joins the denominator besides keys, in base 2: nothing.
  [[nodiscard]] SACCADE_DEVICE float sink() const { return -tile::kInfinity; }
  /// Writes eight numbers of a row of the output.
  SACCADE_DEVICE void write(int row, int column, const ptx::Bytes16& x) const {
    T* const to = kLooksAhead ? o_ + (row - row_) * a_.o.row + column
                              : a_.o.at(a_.o.chunks_to(batch_, head_, row) + column / tile::Chunks::kNumbers);
    ptx::store(reinterpret_cast<ptx::Bytes16*>(to), x);
  }
  [[nodiscard]] SACCADE_DEVICE bool wants_lse() const { return a_.lse != nullptr; }
  SACCADE_DEVICE void write_lse(int row, const tile::RowState& state) const {
    ptx::store(a_.lse + batch_ * a_.lse_batch + head_ * a_.lse_head + row * a_.lse_row, state.lse());
  }

 private:
  static constexpr bool kLooksAhead = kConfig.key_groups > 1;

  const Arguments& a_;
  int batch_, head_;
  T* o_ = nullptr;  ///< row_ of the output
  int row_ = 0;
};

}  // namespace saccade::SACCADE_MACHINE::sm80
