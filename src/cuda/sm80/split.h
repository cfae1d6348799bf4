// Keys shared out over several blocks, in one launch: every block leaves its results in the workspace, and
// the last one to arrive adds them all up.
#pragma once

#include <cstddef>

#include "cuda/ptx/memory.h"
#include "cuda/sm80/config.h"
#include "cuda/tile/arrivals.h"
#include "cuda/tile/divisor.h"

namespace saccade::SACCADE_MACHINE::sm80 {

using saccade::sm80::Config;

struct Split {
  tile::Divisor count;                ///< blocks that share the keys of a tile of queries
  float* sums = nullptr;              ///< [tile of queries][block][row][column]: of weighted values
  ptx::Bytes8* states = nullptr;      ///< [tile of queries][block][row]: base and sum of weights
  std::uint64_t* arrivals = nullptr;  ///< [tile of queries]

  /// The most blocks that an arrival counts.
  static constexpr int kMost = 64;

  /// Bytes of workspace for so many tiles of queries.
  static constexpr std::size_t workspace_bytes(const Config& c, std::int64_t tiles, int count) {
    if (count == 1) return 0;
    const auto rows = static_cast<std::size_t>(tiles * count * c.rows());
    return rows * static_cast<std::size_t>(c.dim + 2) * sizeof(float) +
           static_cast<std::size_t>(tiles) * sizeof(std::uint64_t);
  }
  static Split at(std::byte* workspace, const Config& c, std::int64_t tiles, int count) {
    if (count == 1) return {};
    const std::int64_t rows = tiles * count * c.rows();
    auto* sums = reinterpret_cast<float*>(workspace);
    auto* states = reinterpret_cast<ptx::Bytes8*>(sums + rows * c.dim);
    return {tile::Divisor::of(count), sums, states, reinterpret_cast<std::uint64_t*>(states + rows)};
  }

  [[nodiscard]] SACCADE_BOTH int blocks() const { return static_cast<int>(count); }
};

/// What a block has of a tile of queries.
struct Part {
  int blocks;  ///< that share it
  int block;   ///< this one's number among them
  int tile;    ///< its number among all; if there is but one block, 0
};

}  // namespace saccade::SACCADE_MACHINE::sm80
