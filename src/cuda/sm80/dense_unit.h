// What a block works on when the problem is plain: dense tensors of the instance's head dim, addresses that
// are multiples of 16 bytes, scores that are products and nothing else.
#pragma once

#include "cuda/launch/accept.h"
#include "cuda/ptx/memory.h"
#include "cuda/sm80/split.h"
#include "cuda/tile/copy.h"
#include "cuda/tile/divisor.h"
#include "cuda/tile/scheduler.h"
#include "cuda/tile/scores.h"
#include "cuda/tile/tensor.h"

namespace saccade::SACCADE_MACHINE::sm80 {

/// The tiles of queries that a launch has.
struct Queue {
  tile::Divisor tiles;         ///< in a head
  tile::Divisor heads;         ///< of all batches
  bool longest_first = false;  ///< the tiles of a head differ in length

  static Queue of(const Problem& p, const Config& c) {
    return {.tiles = tile::Divisor::of(static_cast<int>((p.len_q + c.rows() - 1) / c.rows())),
            .heads = tile::Divisor::of(static_cast<int>(p.batch * p.heads_q)),
            .longest_first = p.causal || p.window_right < tile::KeySpan::kFar};
  }
  [[nodiscard]] int size() const { return static_cast<int>(tiles) * static_cast<int>(heads); }
  [[nodiscard]] SACCADE_DEVICE tile::Work take(int number) const {
    return longest_first ? tile::longest_first(number, tiles, heads) : tile::head_by_head(number, tiles);
  }
};

/// The keys that the problem's mask leaves to each row of a sequence.
SACCADE_BOTH tile::KeySpan span_of(const Problem& p, std::int64_t len_kv, std::int64_t diagonal) {
  constexpr std::int64_t kFar = tile::KeySpan::kFar;
  const std::int64_t right = p.causal ? 0 : p.window_right;
  return {.len_kv = static_cast<int>(len_kv),
          .diagonal = static_cast<int>(diagonal),
          .left = static_cast<int>(p.window_left < kFar ? p.window_left : kFar),
          .right = static_cast<int>(right < kFar ? right : kFar)};
}

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

 public:
  struct Arguments {
    Queue queue;
    Split split;
    tile::Tensor4<const T> q, k, v;
    tile::Tensor4<T> o;
    float* lse;  ///< [batch, head, row] by the strides below; null: not asked for
    std::int64_t lse_batch, lse_head, lse_row;
    tile::Divisor heads_q;
    tile::Divisor group;  ///< query heads to a key head
    int len_q;
    tile::PlainScores scores;
  };

  static Result<Arguments> arguments(const Problem& p, const Tensors& t, const Split& split) {
    if (!has_aligned_pointers(t))
      return Status(Code::invalid_argument, "this plan of sm80 needs q, k, v and o aligned to 16 bytes");
    const auto tensor = [](auto* data, const Strides& s) {
      return tile::Tensor4<std::remove_pointer_t<decltype(data)>>{data, s.batch, s.head, s.row};
    };
    const std::int64_t diagonal = p.alignment == Alignment::bottom_right ? p.len_kv - p.len_q : 0;
    return Arguments{.queue = Queue::of(p, kConfig),
                     .split = split,
                     .q = tensor(static_cast<const T*>(t.q), p.q),
                     .k = tensor(static_cast<const T*>(t.k), p.k),
                     .v = tensor(static_cast<const T*>(t.v), p.v),
                     .o = tensor(static_cast<T*>(t.o), p.o),
                     .lse = p.lse ? t.lse : nullptr,
                     .lse_batch = p.lse_strides.batch,
                     .lse_head = p.lse_strides.head,
                     .lse_row = p.lse_strides.row,
                     .heads_q = tile::Divisor::of(static_cast<int>(p.heads_q)),
                     .group = tile::Divisor::of(static_cast<int>(p.group())),
                     .len_q = static_cast<int>(p.len_q),
                     .scores = {span_of(p, p.len_kv, diagonal), tile::ScoreScale::of(p.effective_scale())}};
  }

  SACCADE_DEVICE DenseUnit(const Arguments& a, int batch_and_head)
      : a_(a), head_(batch_and_head % a.heads_q), batch_(batch_and_head / a.heads_q) {}

  [[nodiscard]] SACCADE_DEVICE int len_q() const { return a_.len_q; }
  [[nodiscard]] SACCADE_DEVICE tile::PlainScores scores() const { return a_.scores; }

  /// Starts the copies of the block's queries; kThreads threads share them.
  template <int kThreads>
  SACCADE_DEVICE void copy_queries(ptx::SharedPointer<T> to, int first, int thread) const {
    tile::copy_rows<T, kConfig.rows(), kConfig.dim, kThreads>(to, a_.q.rows(batch_, head_), a_.q.row, first,
                                                              a_.len_q, thread);
  }
  /// Starts the copies of a tile of keys.
  template <int kThreads>
  SACCADE_DEVICE void copy_keys(ptx::SharedPointer<T> to, int first, int thread) const {
    copy_tile<kThreads>(to, a_.k, first, thread);
  }
  template <int kThreads>
  SACCADE_DEVICE void copy_values(ptx::SharedPointer<T> to, int first, int thread) const {
    copy_tile<kThreads>(to, a_.v, first, thread);
  }

  /// What joins the denominator besides keys, in base 2: nothing.
  [[nodiscard]] SACCADE_DEVICE float sink() const { return -tile::kInfinity; }
  /// Writes eight numbers of a row of the output.
  SACCADE_DEVICE void write(int row, int column, const float (&x)[8]) const {
    ptx::store(reinterpret_cast<ptx::Bytes16*>(a_.o.rows(batch_, head_) + row * a_.o.row + column),
               pack_chunk<T>(x));
  }
  SACCADE_DEVICE void write_lse(int row, const tile::RowState& state) const {
    if (a_.lse == nullptr) return;
    ptx::store(a_.lse + batch_ * a_.lse_batch + head_ * a_.lse_head + row * a_.lse_row, state.lse());
  }

 private:
  template <int kThreads>
  SACCADE_DEVICE void copy_tile(ptx::SharedPointer<T> to, const tile::Tensor4<const T>& from, int first,
                                int thread) const {
    tile::copy_rows<T, kConfig.tile_keys, kConfig.dim, kThreads>(
        to, from.rows(batch_, head_ / a_.group), from.row, first, a_.scores.span.len_kv, thread);
  }

  const Arguments& a_;
  int head_, batch_;
};

}  // namespace saccade::SACCADE_MACHINE::sm80
