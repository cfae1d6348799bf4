// Who is the last of several that leave results in a workspace, and adds them all up.
#pragma once

#include "cuda/ptx/memory.h"

namespace saccade::SACCADE_MACHINE::tile {

/// Counts one more of `all` (255 at most) that arrive at a counter; true for the last one. By one thread,
/// between two fences.
///
/// Nobody clears the workspace beforehand: a counter is a tag and a number, and anything without the tag
/// counts as none. The last one leaves a tag and 0, so that from the second launch on an addition is all it
/// takes; many that replace a number in turns would wait for each other. The tag begins as a NaN that no
/// arithmetic makes.
SACCADE_DEVICE bool arrive_last(std::uint64_t* counter, int all) {
  constexpr std::uint64_t kTag = std::uint64_t{0x7fc5acade7fc5a} << 8;
  constexpr std::uint64_t kNumber = 0xff;
  const auto number = [](std::uint64_t seen) { return (seen & ~kNumber) == kTag ? seen & kNumber : 0; };
  std::uint64_t before = ptx::atomic_add(counter, 1);
  if ((before & ~kNumber) != kTag) {
    std::uint64_t found = before + 1;
    do {
      before = found;
      found = ptx::compare_and_swap(counter, before, kTag + number(before) + 1);
    } while (found != before);
  }
  const bool last = number(before) + 1 == static_cast<std::uint64_t>(all);
  if (last) ptx::store(counter, kTag);
  return last;
}

}  // namespace saccade::SACCADE_MACHINE::tile
