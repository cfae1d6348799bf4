// What the rungs share: their arguments, which problems they take, and how one becomes a row of the registry.
#pragma once

#include <limits>

#include "core/config.h"
#include "cuda/launch/accept.h"
#include "cuda/launch/bind.h"
#include "cuda/tile/keys.h"
#include "cuda/tile/scheduler.h"
#include "cuda/tile/softmax.h"
#include "cuda/tile/tensor.h"

namespace saccade::SACCADE_MACHINE::ladder {

struct Arguments {
  tile::Tensor4<const F16> q, k, v;
  tile::Tensor4<F16> o;
  int heads_q;
  int group;  ///< query heads to a key head
  int len_q;
  int dim;
  int tiles;  ///< of queries in a head
  int units;  ///< tiles of all heads of all batches
  tile::KeySpan span;
  float scale;                   ///< of scores in base 2
  tile::ScoreScale split_scale;  ///< the same, its sign apart
};

/// One head's tensors and the first row of one tile of its queries.
struct Unit {
  const F16 *q, *k, *v;
  F16* o;
  int first_row;
};

SACCADE_DEVICE Unit unit_of(const Arguments& a, const tile::Work& work, int rows_per_tile) {
  const int head = work.head % a.heads_q;
  const int batch = work.head / a.heads_q;
  return {a.q.rows(batch, head), a.k.rows(batch, head / a.group), a.v.rows(batch, head / a.group),
          a.o.rows(batch, head), work.tile * rows_per_tile};
}

/// Unit `number` of [0, a.units), for grids of a block per unit.
SACCADE_DEVICE Unit unit_of(const Arguments& a, int number, int rows_per_tile) {
  return unit_of(a, tile::head_by_head(number, a.tiles), rows_per_tile);
}

/// Why no rung takes the problem; the ladder is for the plain ones.
inline std::optional<std::string> reject(const Problem& p, const Machine& machine) {
  if (p.dtype != DType::f16) return "the ladder takes f16 only";
  if (p.dim_qk != p.dim_v || (p.dim_qk != 64 && p.dim_qk != 128))
    return "the ladder takes head dims 64 and 128";
  if (!has_plain_scores(p) || p.lse) return "the ladder computes plain scores and no log-sum-exp";
  if (p.window_left != kUnbounded || p.window_right != kUnbounded) return "the ladder has no sliding window";
  if (!has_dense_tensors(p)) return "the ladder takes dense tensors only";
  if (p.len_q >= tile::KeySpan::kFar || p.len_kv >= tile::KeySpan::kFar ||
      p.batch * p.heads_q * p.len_q > std::numeric_limits<int>::max()) {
    return "the ladder counts rows in 32 bits";
  }
  if (machine.pointer_alignment % 16 != 0 || !has_aligned_rows(p))
    return "the ladder moves 16 bytes at a time";
  return std::nullopt;
}

inline Arguments arguments(const Problem& p, const Tensors& t, int rows_per_tile) {
  const auto tensor = [](auto* data, const Strides& s) {
    return tile::Tensor4<std::remove_pointer_t<decltype(data)>>{data, s.batch, s.head, s.row};
  };
  const int tiles = static_cast<int>((p.len_q + rows_per_tile - 1) / rows_per_tile);
  const bool bottom_right = p.alignment == Alignment::bottom_right;
  return {.q = tensor(static_cast<const F16*>(t.q), p.q),
          .k = tensor(static_cast<const F16*>(t.k), p.k),
          .v = tensor(static_cast<const F16*>(t.v), p.v),
          .o = tensor(static_cast<F16*>(t.o), p.o),
          .heads_q = static_cast<int>(p.heads_q),
          .group = static_cast<int>(p.group()),
          .len_q = static_cast<int>(p.len_q),
          .dim = static_cast<int>(p.dim_qk),
          .tiles = tiles,
          .units = static_cast<int>(p.batch * p.heads_q) * tiles,
          .span = tile::KeySpan::of(static_cast<int>(p.len_kv),
                                    bottom_right ? static_cast<int>(p.len_kv - p.len_q) : 0,
                                    tile::KeySpan::kFar, p.causal ? 0 : tile::KeySpan::kFar),
          .scale = p.effective_scale() * tile::kLog2e,
          .split_scale = tile::ScoreScale::of(p.effective_scale())};
}

/// Pointers that kernels read 16 bytes at a time must be aligned to them.
inline Status check_alignment(const Tensors& t, std::string_view kernel) {
  if (has_aligned_pointers(t)) return {};
  return {Code::invalid_argument, std::string(kernel) + " needs q, k, v and o aligned to 16 bytes"};
}

/// The registry row of a rung, which is a struct of constants: kName, kSummary, kRows (of a block), kThreads,
/// shared_bytes(dim), kKernel<dim>, and blocks(units, dim, machine).
template <class Rung>
const Kernel& row() {
  static const Kernel kRow{
      .name = Rung::kName,
      .summary = Rung::kSummary,
      .device = DeviceKind::cuda,
      .reject = reject,
      .prepare = [](const Problem& p, const Machine& machine, std::string_view text) -> Result<Prepared> {
        const Config config(text);
        if (Status status = config.finish(Rung::kName); !status.ok()) return status;
        return bind("", 0, p, [p, machine](const Tensors& t, std::byte*, const Target& target) -> Status {
          const Arguments a = arguments(p, t, Rung::kRows);
          if (a.units == 0) return {};
          if (Status status = check_alignment(t, Rung::kName); !status.ok()) return status;
          const Grid grid{.blocks = {Rung::blocks(a.units, static_cast<int>(p.dim_qk), machine), 1, 1},
                          .threads = Rung::kThreads,
                          .cluster = 1,
                          .shared_bytes = Rung::shared_bytes(static_cast<int>(p.dim_qk))};
          return p.dim_qk == 64 ? launch(Rung::kName, Rung::template kKernel<64>, grid, target, a)
                                : launch(Rung::kName, Rung::template kKernel<128>, grid, target, a);
        });
      }};
  return kRow;
}

/// The usual grid: a block for every unit.
struct BlockPerUnit {
  static int blocks(int units, int, const Machine&) { return units; }
};

}  // namespace saccade::SACCADE_MACHINE::ladder
