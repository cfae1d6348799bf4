// Which key tiles a block of queries needs, and which of those a mask cuts.
#pragma once

#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE::tile {

/// What a mask leaves of a tile.
enum class Coverage : std::uint8_t { empty, partial, full };

/// The keys that rows [first_row, last_row] of one head see: row i sees keys [begin(i), end(i)), both growing
/// with i. Distances are from the diagonal, query i sitting on key i + diagonal.
struct KeySpan {
  int len_kv = 0;
  int diagonal = 0;
  int left = kFar;   ///< keys visible before the diagonal
  int right = kFar;  ///< and after it

  /// Farther than any two tokens are apart, with room to add.
  static constexpr int kFar = 1 << 30;

  [[nodiscard]] SACCADE_BOTH constexpr int begin(int row) const {
    if (left >= kFar) return 0;
    const int first = row + diagonal - left;
    return first < 0 ? 0 : first > len_kv ? len_kv : first;
  }
  [[nodiscard]] SACCADE_BOTH constexpr int end(int row) const {
    if (right >= kFar) return len_kv;
    const int last = row + diagonal + right + 1;
    return last < 0 ? 0 : last > len_kv ? len_kv : last;
  }
};

/// The tiles of kKeys keys that rows [first_row, last_row] need: [first, last), of which those of
/// [whole_first, whole_last) are seen in full by every row and need no mask.
struct TileRange {
  int first = 0, last = 0;
  int whole_first = 0, whole_last = 0;

  [[nodiscard]] SACCADE_BOTH constexpr Coverage coverage(int tile) const {
    if (tile < first || tile >= last) return Coverage::empty;
    return tile >= whole_first && tile < whole_last ? Coverage::full : Coverage::partial;
  }
  /// One of `parts` parts that differ by one tile at most. Parts: int or Divisor.
  template <class Parts>
  [[nodiscard]] SACCADE_BOTH constexpr TileRange part(int number, const Parts& parts) const {
    const int least = (last - first) / parts;
    const int longer = (last - first) % parts;  // so many have one tile more
    const auto edge = [&](int n) { return first + least * n + (n < longer ? n : longer); };
    return {edge(number), edge(number + 1), whole_first, whole_last};
  }
};

template <int kKeys>
[[nodiscard]] SACCADE_BOTH constexpr TileRange tiles_of(const KeySpan& span, int first_row, int last_row) {
  const int begin = span.begin(first_row);
  const int end = span.end(last_row);
  TileRange range;
  if (begin >= end) return range;
  SACCADE_ASSUME(begin >= 0 && span.begin(last_row) >= 0 && span.end(first_row) >= 0);
  range.first = begin / kKeys;
  range.last = (end + kKeys - 1) / kKeys;
  range.whole_first = (span.begin(last_row) + kKeys - 1) / kKeys;
  range.whole_last = span.end(first_row) / kKeys;
  if (range.whole_first < range.first) range.whole_first = range.first;
  if (range.whole_last > range.last) range.whole_last = range.last;
  if (range.whole_last < range.whole_first) range.whole_last = range.whole_first;
  return range;
}

}  // namespace saccade::SACCADE_MACHINE::tile
