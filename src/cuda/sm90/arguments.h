// What a launch is about: tensor maps of the inputs, where outputs go, and which tiles there are.
#pragma once

#include "cuda/launch/accept.h"
#include "cuda/launch/tensor_map.h"
#include "cuda/sm90/ragged.h"
#include "cuda/sm90/shared.h"
#include "cuda/tile/any_scores.h"
#include "cuda/tile/queue.h"
#include "cuda/tile/scores.h"
#include "cuda/tile/tensor.h"

namespace saccade::SACCADE_MACHINE::sm90 {

struct Nothing {};
/// General and ragged instances need it, others do not.
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
  /// [batch, head, row, column], in boxes of 64 columns, or as in ragged_map().
  ptx::TensorMap q{}, k{}, v{};
  std::conditional_t<kAnything<Instance>, Anything, Nothing> any{};
  std::conditional_t<Instance::kConfig.splits(), Workspace, Nothing> workspace{};
  std::conditional_t<Instance::kConfig.draws(), std::uint64_t*, Nothing> drawn{};
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
/// Of a block that draws.
template <class T, class Instance>
SACCADE_DEVICE Unit<Instance> unit_of(const Arguments<T, Instance>& a, const Draw::Tile& drawn) {
  Unit<Instance> unit{drawn.batch, drawn.head, drawn.head / a.group, drawn.number * Instance::kConfig.rows()};
  if (unit.batch >= 0) unit.own = own_sequence(a.any, unit.batch);
  return unit;
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
/// The unit when its scores are done with. Who computes those of a sequence of its own length has a number
/// for batch and head, and does not keep what only the end needs in registers.
template <class T, class Instance>
SACCADE_DEVICE Unit<Instance> read_again(const Arguments<T, Instance>& a, Unit<Instance> unit) {
  if constexpr (Instance::kConfig.ragged != 0) {
    unit.batch = unit.head / a.heads_q;
    unit.head = unit.head % a.heads_q;
    unit.own = own_sequence(a.any, unit.batch);
  }
  return unit;
}
/// Clusters that share the keys of a tile of queries, and the number of this block's among them.
template <class T, class Instance>
SACCADE_DEVICE int split_of(const Arguments<T, Instance>& a) {
  return Instance::kConfig.splits() ? ptx::grid_size().z / a.queue.tiles : 1;
}
template <class T, class Instance>
SACCADE_DEVICE int cluster_of(const Arguments<T, Instance>& a) {
  return Instance::kConfig.splits() ? ptx::block_index().z / a.queue.tiles : 0;
}
/// Of a block that has one: its place in the grid. Clusters come GPC by GPC, where the same keys had better
/// be read by few: neighbours have different heads, of all batches before the next tile. Other blocks are
/// spread over GPCs, and neighbours share keys.
template <class T, class Instance>
SACCADE_DEVICE Unit<Instance> unit_of_block(const Arguments<T, Instance>& a, int rows, int cluster) {
  const ptx::Index3 at = ptx::block_index();
  const int head = cluster > 1 ? at.x / cluster : at.y;
  const int place = cluster > 1 ? at.z : at.x;
  const int number = Instance::kConfig.splits() ? place % a.queue.tiles : place;
  const int tile = number < a.turn ? static_cast<int>(a.queue.tiles) - 1 - number : number - a.turn;
  Unit<Instance> unit{cluster > 1 ? at.y : at.z, head, head / a.group, tile * rows};
  if constexpr (Instance::kConfig.ragged != 0) unit.own = own_sequence(a.any, unit.batch);
  return unit;
}

/// What becomes of the unit's scores.
template <class T, class Instance>
SACCADE_DEVICE auto scores_of(const Arguments<T, Instance>& a, const Unit<Instance>& unit) {
  if constexpr (Instance::kConfig.general == 0) {
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

template <class T, class Instance>
Status map_queries(Arguments<T, Instance>& a, const Problem& p, const void* data) {
  constexpr Config kConfig = Instance::kConfig;
  if constexpr (kConfig.ragged != 0)
    return ragged_map(a.q, data, p.q, p.dim_qk, p.heads_q, p.ragged_q ? p.total_q : p.len_q,
                      kConfig.query_rows(), p.ragged_q ? 0 : p.batch);
  return make_map(a.q, data, p.q, p.dim_qk, p.len_q, p.heads_q, p.batch, kConfig.query_rows());
}
/// Of keys or values.
template <class T, class Instance>
Status map_keys(const Arguments<T, Instance>& a, const Problem& p, ptx::TensorMap& map, const void* data,
                const Strides& s, std::int64_t dim) {
  constexpr Config kConfig = Instance::kConfig;
  if constexpr (kConfig.ragged != 0) {
    const bool ragged = p.kv_layout == KvLayout::ragged;
    const std::int64_t rows = ragged ? p.total_kv : p.len_kv + (p.batch - 1) * a.any.batch_rows;
    return ragged_map(map, data, s, dim, p.heads_kv, rows, kConfig.tile_keys);
  }
  return make_map(map, data, s, dim, p.len_kv, p.heads_kv, p.batch, kConfig.tile_keys);
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
  if constexpr (kConfig.draws()) a.drawn = reinterpret_cast<std::uint64_t*>(how.workspace);
  if constexpr (kConfig.ragged != 0) {
    if (p.kv_layout == KvLayout::dense && p.batch > 1)
      a.any.batch_rows = static_cast<int>(p.k.batch / p.k.row);
  }
  for (const Status& status : {map_queries(a, p, t.q), map_keys(a, p, a.k, t.k, p.k, p.dim_qk),
                               map_keys(a, p, a.v, t.v, p.v, p.dim_v)}) {
    if (!status.ok()) return status;
  }
  return a;
}

}  // namespace saccade::SACCADE_MACHINE::sm90
