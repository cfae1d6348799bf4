// What a launch is about: tensor maps of the inputs, where outputs go, and which tiles there are.
#pragma once

#include "cuda/launch/accept.h"
#include "cuda/launch/tensor_map.h"
#include "cuda/sm90/shared.h"
#include "cuda/tile/any_scores.h"
#include "cuda/tile/queue.h"
#include "cuda/tile/scores.h"
#include "cuda/tile/tensor.h"

namespace saccade::SACCADE_MACHINE::sm90 {

/// What general and ragged instances need besides, and others do not.
struct Anything {
  Problem p;
  Tensors t;
};
struct Nothing {};
template <class Instance>
inline constexpr bool kAnything = Instance::kConfig.general != 0 || Instance::kConfig.ragged != 0;

/// Where warps leave results for those that have the same rows and columns in other clusters.
struct Workspace {
  std::byte* messages;      ///< [tile of queries][warp of a cluster][cluster]
  std::uint64_t* arrivals;  ///< [tile of queries][warp of a cluster]
};

/// What is needed first comes first: every 64 bytes of it are a wait of their own.
template <class T, class Instance>
struct Arguments {
  tile::Divisor group;  ///< query heads to a key head
  int len_q;
  int turn;  ///< of blocks with one tile: so many of a head's tiles come last first, then the others first
             ///< first
  tile::PlainScores scores;
  int dim_v;
  tile::BandedQueue queue;
  tile::Divisor heads_q;
  tile::Tensor4<T> o;
  float* lse;  ///< [batch, head, row] by the strides below; null: not asked for
  std::int64_t lse_batch, lse_head, lse_row;
  ptx::TensorMap q{}, k{},
      v{};  ///< [batch, head, row, column], in boxes of 64 columns, or as in ragged_map()
  std::conditional_t<kAnything<Instance>, Anything, Nothing> any{};
  std::conditional_t<Instance::kConfig.splits(), Workspace, Nothing> workspace{};
};

/// Where a sequence lies in a ragged_map(): row i is at (i + shift, end) of this batch.
struct Place {
  int shift, end, batch;
};
/// A sequence of its own length.
struct OwnSequence {
  int first_q, len_q;
  Place q, kv;
  tile::KeySpan span;
};

/// A tile of queries of one head.
template <class Instance>
struct Unit {
  int batch, head, key_head;
  int first_row;
  std::conditional_t<Instance::kConfig.ragged != 0, OwnSequence, Nothing> own{};
};

/// Of a block that stays: a number of the queue.
template <class T, class Instance>
SACCADE_DEVICE Unit<Instance> unit_of(const Arguments<T, Instance>& a, int number, int rows) {
  const tile::Work work = a.queue.take(number);
  const int head = work.head % a.heads_q;
  return {work.head / a.heads_q, head, head / a.group, work.tile * rows};
}
/// The rows of a batch: how many, where the first is in ragged tensors, and what they see.
template <class T, class Instance>
SACCADE_DEVICE int len_q_of(const Arguments<T, Instance>& a, const Unit<Instance>& unit) {
  if constexpr (Instance::kConfig.ragged != 0) return unit.own.len_q;
  return a.len_q;
}
template <class Instance>
SACCADE_DEVICE int first_q_of(const Unit<Instance>& unit) {
  if constexpr (Instance::kConfig.ragged != 0) return unit.own.first_q;
  return 0;
}
template <class T, class Instance>
SACCADE_DEVICE tile::KeySpan span_of(const Arguments<T, Instance>& a, const Unit<Instance>& unit) {
  if constexpr (Instance::kConfig.ragged != 0) return unit.own.span;
  return a.scores.span;
}
template <class T, class Instance>
SACCADE_DEVICE OwnSequence own_sequence(const Arguments<T, Instance>& a, int batch) {
  const Sequence s = sequence(a.any.p, a.any.t, batch);
  const auto place = [&](std::int64_t first, std::int64_t len, std::int64_t most, bool ragged) {
    return Place{static_cast<int>(most - len), static_cast<int>(first + len), ragged ? 0 : batch};
  };
  const Problem& p = a.any.p;
  return {static_cast<int>(s.first_q), static_cast<int>(s.len_q),
          place(s.first_q, s.len_q, p.len_q, p.ragged_q),
          place(s.first_kv, s.len_kv, p.len_kv, p.kv_layout == KvLayout::ragged),
          tile::span_of(p, s.len_kv, s.diagonal)};
}
/// The unit when its scores are done with: nobody has had to keep what only the end needs in registers.
template <class T, class Instance>
SACCADE_DEVICE Unit<Instance> read_again(const Arguments<T, Instance>& a, Unit<Instance> unit) {
  if constexpr (Instance::kConfig.ragged != 0) unit.own = own_sequence(a, unit.batch);
  return unit;
}
/// Clusters that share the keys of a tile of queries, and the number of this block's among them.
template <class T, class Instance>
SACCADE_DEVICE int split_of(const Arguments<T, Instance>& a) {
  return Instance::kConfig.splits() ? ptx::grid_size().y / a.queue.tiles : 1;
}
template <class T, class Instance>
SACCADE_DEVICE int cluster_of(const Arguments<T, Instance>& a) {
  return Instance::kConfig.splits() ? ptx::block_index().y / a.queue.tiles : 0;
}
/// Of a block that has one: its place in the grid. Clusters come GPC by GPC, where the same keys had better
/// be read by few: neighbours have different heads. Other blocks are spread over GPCs, and neighbours share
/// keys.
template <class T, class Instance>
SACCADE_DEVICE Unit<Instance> unit_of_block(const Arguments<T, Instance>& a, int rows, int cluster) {
  const ptx::Index3 at = ptx::block_index();
  const int head = cluster > 1 ? at.x / cluster : at.y;
  const int place = cluster > 1 ? at.y : at.x;
  const int number = Instance::kConfig.splits() ? place % a.queue.tiles : place;
  const int tile = number < a.turn ? static_cast<int>(a.queue.tiles) - 1 - number : number - a.turn;
  Unit<Instance> unit{at.z, head, head / a.group, tile * rows};
  if constexpr (Instance::kConfig.ragged != 0) unit.own = own_sequence(a, unit.batch);
  return unit;
}

/// Plain scores of a sequence of its own length. What its rows see is read again in the few tiles where that
/// matters: registers are short.
template <class T, class Instance>
struct OwnScores {
  const Arguments<T, Instance>& a;
  int batch;

  static constexpr bool kPlain = true;
  /// As PlainScores::change.
  template <int kRowTiles, int kParts>
  SACCADE_DEVICE float change(float (&s)[kRowTiles][kParts][4], int row, int first_key, bool masked) const {
    const tile::ScoreScale scale = a.scores.scale;
    if (!masked) return scale.size;
    return tile::PlainScores{own_sequence(a, batch).span, scale}.change(s, row, first_key, masked);
  }
};

/// What becomes of the unit's scores.
template <class T, class Instance>
SACCADE_DEVICE auto scores_of(const Arguments<T, Instance>& a, const Unit<Instance>& unit) {
  if constexpr (Instance::kConfig.ragged != 0) {
    return OwnScores<T, Instance>{a, unit.batch};
  } else if constexpr (Instance::kConfig.general == 0) {
    return a.scores;
  } else {
    return tile::AnyScores<T>{a.any.p, a.any.t,       unit.batch,    unit.head,
                              a.len_q, a.scores.span, a.scores.scale};
  }
}
/// In base 2, of the unit's head; -inf: none.
template <class T, class Instance>
SACCADE_DEVICE float sink_of(const Arguments<T, Instance>& a, const Unit<Instance>& unit) {
  if constexpr (Instance::kConfig.general != 0) {
    if (a.any.p.sinks) return tile::kLog2e * ptx::load_constant(a.any.t.sinks + unit.head);
  }
  return -tile::kInfinity;
}

/// The tiles of keys that the rows need. Of these every part of every cluster has every parts_of()th,
/// beginning with first_part() and its number.
template <class T, class Instance>
SACCADE_DEVICE tile::TileRange tiles_of(const Arguments<T, Instance>& a, const Unit<Instance>& unit) {
  constexpr Config kConfig = Instance::kConfig;
  const int first_row = unit.first_row;
  const int len_q = len_q_of(a, unit);
  const int end_row = first_row + kConfig.rows() < len_q ? first_row + kConfig.rows() : len_q;
  return tile::tiles_of<kConfig.tile_keys>(span_of(a, unit), first_row, end_row - 1);
}

template <class T, class Instance>
SACCADE_DEVICE int parts_of(const Arguments<T, Instance>& a) {
  return Instance::kConfig.parts() * split_of(a);
}
template <class T, class Instance>
SACCADE_DEVICE int first_part(const Arguments<T, Instance>& a) {
  return Instance::kConfig.parts() * cluster_of(a);
}

/// Where the tiles end that the rows of a warpgroup need; the others of their block may need more.
template <class T, class Instance>
SACCADE_DEVICE int end_of(const Arguments<T, Instance>& a, const Unit<Instance>& unit,
                          const tile::TileRange& tiles, int first_row) {
  constexpr Config kConfig = Instance::kConfig;
  if constexpr (!kConfig.skips()) return tiles.last;
  constexpr int kRows = kConfig.group_rows();
  const int len_q = len_q_of(a, unit);
  const int end_row = first_row + kRows < len_q ? first_row + kRows : len_q;
  const int keys = first_row < len_q ? span_of(a, unit).end(end_row - 1) : 0;
  const int end = (keys + kConfig.tile_keys - 1) / kConfig.tile_keys;
  return end < tiles.first ? tiles.first : end < tiles.last ? end : tiles.last;
}

/// One tensor's map, in boxes of 64 columns and `rows` rows.
inline Status make_map(ptx::TensorMap& map, const void* data, const Strides& s, std::int64_t dim,
                       std::int64_t len, std::int64_t heads, std::int64_t batch, int rows) {
  const auto number = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  const auto bytes = [&](std::int64_t stride, std::int64_t size) {
    return size == 1 ? 16 : number(2 * stride);
  };
  return make_tensor_map(map, {.base = data,
                               .rank = 4,
                               .element_bytes = 2,
                               .sizes = {number(dim), number(len), number(heads), number(batch)},
                               .strides = {2, bytes(s.row, len), bytes(s.head, heads), bytes(s.batch, batch)},
                               .box = {64, static_cast<std::uint32_t>(rows), 1, 1},
                               .swizzle = 128});
}

/// The same for sequences of their own lengths, up to `most` rows each, where `rows` lie one after the other
/// (in each batch). Of a sequence that begins at row `first` and has `len`, row i is at
/// (i + most - len, first + len) of [batch, head, row, row, column]: both count rows, and the base lies
/// `most` of them before the tensor, so that is row first + i; but the first coordinate has `most` values, so
/// from row `len` on zeros are filled in, whoever's rows lie there.
inline Status ragged_map(ptx::TensorMap& map, const void* data, const Strides& s, std::int64_t dim,
                         std::int64_t most, std::int64_t rows, std::int64_t heads, std::int64_t batch,
                         int box_rows) {
  const auto number = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  const auto bytes = [&](std::int64_t stride, std::int64_t size) {
    return size <= 1 ? 16 : number(2 * stride);
  };
  const std::uint64_t row = bytes(s.row, rows);
  const auto base = reinterpret_cast<std::uintptr_t>(data) - number(most) * row;
  return make_tensor_map(
      map, {.base = reinterpret_cast<const void*>(base),
            .rank = 5,
            .element_bytes = 2,
            .sizes = {number(dim), number(most), number(rows + 1), number(heads), number(batch)},
            .strides = {2, row, row, bytes(s.head, heads), bytes(s.batch, batch)},
            .box = {64, static_cast<std::uint32_t>(box_rows), 1, 1, 1},
            .swizzle = 128});
}

template <class T, class Instance>
Result<Arguments<T, Instance>> make_arguments(const Problem& p, const Tensors& t, const Launch& how) {
  constexpr Config kConfig = Instance::kConfig;
  if (!has_aligned_pointers(t))
    return Status(Code::invalid_argument, "this plan of sm90 needs q, k, v and o aligned to 16 bytes");
  const std::int64_t diagonal = p.alignment == Alignment::bottom_right ? p.len_kv - p.len_q : 0;
  Arguments<T, Instance> a{
      .group = tile::Divisor::of(static_cast<int>(p.group())),
      .len_q = static_cast<int>(p.len_q),
      .turn = 0,
      .scores = {tile::span_of(p, p.len_kv, diagonal), tile::ScoreScale::of(p.effective_scale())},
      .dim_v = static_cast<int>(p.dim_v),
      .queue = tile::BandedQueue::of(p, kConfig.rows()),
      .heads_q = tile::Divisor::of(static_cast<int>(p.heads_q)),
      .o = {static_cast<T*>(t.o), p.ragged_q ? 0 : p.o.batch, p.o.head, p.o.row},
      .lse = p.lse ? t.lse : nullptr,
      .lse_batch = p.ragged_q ? 0 : p.lse_strides.batch,
      .lse_head = p.lse_strides.head,
      .lse_row = p.lse_strides.row};
  if constexpr (kAnything<Instance>) a.any = {p, t};
  if constexpr (kConfig.splits()) {
    const std::int64_t warps = a.queue.size() * std::int64_t{kConfig.cluster_warps()};
    const std::int64_t bytes = warps * how.split * kConfig.message_bytes(kConfig.steps() - 1);
    if (how.split > 1) a.workspace = {how.workspace, reinterpret_cast<std::uint64_t*>(how.workspace + bytes)};
  }
  const auto map = [&](ptx::TensorMap& to, const void* data, const Strides& s, std::int64_t dim,
                       std::int64_t len, std::int64_t heads, bool ragged, std::int64_t total, int rows) {
    if constexpr (Instance::kConfig.ragged == 0) return make_map(to, data, s, dim, len, heads, p.batch, rows);
    return ragged_map(to, data, s, dim, len, ragged ? total : len, heads, ragged ? 1 : p.batch, rows);
  };
  const bool ragged_kv = p.kv_layout == KvLayout::ragged;
  for (const Status& status :
       {map(a.q, t.q, p.q, p.dim_qk, p.len_q, p.heads_q, p.ragged_q, p.total_q, kConfig.query_rows()),
        map(a.k, t.k, p.k, p.dim_qk, p.len_kv, p.heads_kv, ragged_kv, p.total_kv, kConfig.tile_keys),
        map(a.v, t.v, p.v, p.dim_v, p.len_kv, p.heads_kv, ragged_kv, p.total_kv, kConfig.tile_keys)}) {
    if (!status.ok()) return status;
  }
  return a;
}

}  // namespace saccade::SACCADE_MACHINE::sm90
