// How a problem is cut into blocks of rows (and, when those are too few for the threads, into parts of the
// keys), and who runs which. The kernels that work so differ in how they attend to a block's keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <saccade/problem.h>
#include <saccade/run.h>

#include "cpu/blocked_simd.h"

namespace saccade {

inline constexpr std::int64_t kMaxKeyTile = 4096;
inline constexpr std::int64_t kMaxKeySplits = 1024;

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

struct RowBlockConfig {
  int threads;
  int rows;      ///< query rows in a block
  int key_tile;  ///< keys that one pass of the softmax covers
  int splits;    ///< parts the keys are cut into
};

/// "threads=... rows=... key_tile=... splits=..."
[[nodiscard]] std::string to_string(const RowBlockConfig& config);

/// Blocks of `rows` rows that a problem has.
[[nodiscard]] inline std::int64_t row_blocks(const Problem& p, std::int64_t rows) {
  return p.batch * p.heads_kv * divide_up(p.group() * p.len_q, rows);
}

/// Parts to cut the keys into so that every thread has something to do.
[[nodiscard]] int choose_splits(const Problem& p, int threads, int rows, int key_tile);

/// A problem cut into blocks: what a run needs besides the pointers.
class RowBlockRun {
 public:
  /// Attends to a block's keys and leaves the unfinished softmax in `state`.
  using Attend = void (*)(const blocked::RowBlock&, const blocked::Sizes&, float* scratch,
                          const blocked::State& state);

  /// `attend` needs `scratch` floats for each thread; blocked::finish needs sizes.scratch of them.
  RowBlockRun(const Problem& problem, const RowBlockConfig& config, const blocked::Sizes& sizes,
              std::int64_t scratch, Attend attend);

  [[nodiscard]] std::size_t workspace_bytes() const;
  void operator()(const Tensors& t, float* workspace) const;

 private:
  [[nodiscard]] blocked::RowBlock row_block(const Tensors& t, std::int64_t index) const;
  [[nodiscard]] KeyRange part_of_keys(const blocked::RowBlock& block, std::int64_t part) const;

  Problem p_;
  RowBlockConfig config_;
  blocked::Sizes sizes_;
  std::int64_t scratch_;
  Attend attend_;
  std::int64_t tiles_;
  std::int64_t blocks_;
};

}  // namespace saccade
