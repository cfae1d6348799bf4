// What the blocked kernel's host side (blocked.cpp) asks of its SIMD side (blocked_simd.cpp).
//
// The SIMD lanes run over query rows: scores and output of a block are kept transposed, so that the softmax
// needs no reduction across lanes and K and V are read in their natural order, one broadcast number at a
// time. A panel is as many rows as the accumulators of one register block hold.
#pragma once

#include <cstddef>
#include <cstdint>

#include <saccade/problem.h>
#include <saccade/run.h>

#include "core/sequence.h"

namespace saccade::blocked {

/// What the chosen instruction set makes of a block.
struct Geometry {
  int panel_rows;  ///< rows in a panel
  int group;       ///< keys (and value columns) in a register block
};

/// Of the best instruction set of this machine.
[[nodiscard]] Geometry geometry();

/// Rows of one key head and the keys they are to attend to. Rows run over the queries and, inside, over the
/// query heads that share the key head: row r is query r / group of head head_kv * group + r % group.
struct RowBlock {
  const Problem* problem;
  const Tensors* tensors;
  Sequence sequence;
  std::int64_t head_kv = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  KeyRange keys{};
};

/// The unfinished softmax of a block: everything relative to the row maximum m, base 2.
struct State {
  float* m;  ///< [panels][panel_rows]
  float* l;  ///< [panels][panel_rows]
  float* o;  ///< [panels][padded dim_v][panel_rows]
};

/// Sizes of the arrays that a block of at most `rows` rows needs, in floats.
struct Sizes {
  std::int64_t panel_rows;
  std::int64_t rows, key_tile;  // both padded
  std::int64_t dim_qk, dim_v;   // both padded
  std::int64_t state, state_o;  // of State: all of it; of o alone
  std::int64_t q, rows_f32, scores, keys, values, bias, limits, scratch;

  /// Of attend().
  Sizes(const Problem& problem, std::int64_t rows, std::int64_t key_tile);
  /// Of another kernel that ends in merge() and finish(): its own panels, which are whole vectors, and keys
  /// and dimensions in multiples of `unit`.
  Sizes(const Problem& problem, std::int64_t rows, std::int64_t key_tile, std::int64_t panel_rows,
        std::int64_t unit);
};

/// Splits a stretch of `sizes.state` floats.
[[nodiscard]] State state_at(const Sizes& sizes, float* memory);

/// Attends to the block's keys and leaves the unfinished softmax in `state`. `scratch` has sizes.scratch
/// floats.
void attend(const RowBlock& block, const Sizes& sizes, float* scratch, const State& state);

/// Folds another part of the keys into `state`.
void merge(const RowBlock& block, const Sizes& sizes, const State& part, const State& state);

/// Adds the sinks, normalises, and writes o and lse. `scratch` as for attend().
void finish(const RowBlock& block, const Sizes& sizes, float* scratch, const State& state);

}  // namespace saccade::blocked
