// Counters in a workspace that nobody clears: who is the last of several that leave results there, and adds
// them all up; who gets which piece of work.
#pragma once

#include "cuda/ptx/memory.h"

namespace saccade::SACCADE_MACHINE::tile {

/// A number of kBits bits behind a tag; anything without the tag counts as 0. The tag begins as a NaN that no
/// arithmetic makes, and counters of other sizes have others.
template <int kBits>
struct TaggedCounter {
  static constexpr std::uint64_t kNumber = (std::uint64_t{1} << kBits) - 1;
  static constexpr std::uint64_t kTag =
      ((std::uint64_t{0x7fc5ac} << 40) + (std::uint64_t{kBits} << 32) + 0xade7fc5a) & ~kNumber;

  std::uint64_t* word;

  /// Adds one; what there was before. Many that replace a number in turns would wait for each other, so
  /// replacing is left to those that find no tag: none from the second launch on, if the last one clears it.
  SACCADE_DEVICE int add_one() const {
    std::uint64_t before = ptx::atomic_add(word, 1);
    if ((before & ~kNumber) != kTag) {
      std::uint64_t found = before + 1;
      do {
        before = found;
        found = ptx::compare_and_swap(word, before, kTag + number(before) + 1);
      } while (found != before);
    }
    return static_cast<int>(number(before));
  }
  /// When nobody will add any more in this launch.
  SACCADE_DEVICE void clear() const { ptx::store(word, kTag); }

 private:
  static SACCADE_DEVICE std::uint64_t number(std::uint64_t seen) {
    return (seen & ~kNumber) == kTag ? seen & kNumber : 0;
  }
};

/// Counts one more of `all` (255 at most) that arrive at a counter; true for the last one. By one thread,
/// between two fences.
SACCADE_DEVICE bool arrive_last(std::uint64_t* counter, int all) {
  const TaggedCounter<8> arrivals{counter};
  const bool last = arrivals.add_one() + 1 == all;
  if (last) arrivals.clear();
  return last;
}

}  // namespace saccade::SACCADE_MACHINE::tile
