// Which unit of work a block takes next.
#pragma once

#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE::tile {

/// A tile of queries of one head.
struct Work {
  int tile, head;  ///< the head counts over all batches
};

// Counts are int or Divisor.

/// Every block takes one unit; the tiles of a head are neighbours and find its keys in the cache. From the
/// last tile, because it is the longest under a causal mask and the short ones should come at the end.
template <class Count>
SACCADE_BOTH constexpr Work head_by_head(int number, const Count& tiles) {
  return {static_cast<int>(tiles) - 1 - number % tiles, number / tiles};
}

/// All heads' longest tiles first: for blocks that take one unit after the other, so that the last ones are
/// short.
template <class Count>
SACCADE_BOTH constexpr Work longest_first(int number, const Count& tiles, const Count& heads) {
  return {static_cast<int>(tiles) - 1 - number / heads, number % heads};
}

}  // namespace saccade::SACCADE_MACHINE::tile
