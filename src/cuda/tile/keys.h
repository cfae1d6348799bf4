// Which key tiles a block of queries needs, and which of those a mask cuts.
#pragma once

#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE::tile {

/// What a mask leaves of a tile.
enum class Coverage : std::uint8_t { empty, partial, full };

/// The keys that the rows of one head see: row i sees keys [begin(i), end(i)), both growing with i.
struct KeySpan {
  int len_kv = 0;
  int diagonal = 0;    ///< query i sits on key i + diagonal
  int before = -kFar;  ///< query i sees keys from i + before on,
  int after = kFar;    ///< up to but not including i + after

  /// Farther than any two tokens are apart, with room to add a row's number and a little more.
  static constexpr int kFar = (1 << 30) - 1024;

  /// Of rows that see `left` keys before the diagonal and `right` after it; kFar or more: all there are.
  [[nodiscard]] static SACCADE_BOTH constexpr KeySpan of(int len_kv, int diagonal, std::int64_t left,
                                                         std::int64_t right) {
    const auto near = [](std::int64_t distance) {
      return static_cast<int>(distance < -kFar ? -kFar : distance > kFar ? kFar : distance);
    };
    return {len_kv, diagonal, left >= kFar ? -kFar : near(diagonal - left),
            right >= kFar ? kFar : near(diagonal + right + 1)};
  }
  /// Whether a row may see none of the first keys.
  [[nodiscard]] SACCADE_BOTH constexpr bool hides_first() const { return before > -kFar; }
  [[nodiscard]] SACCADE_BOTH constexpr int begin(int row) const { return clamped(row + before); }
  [[nodiscard]] SACCADE_BOTH constexpr int end(int row) const { return clamped(row + after); }

 private:
  [[nodiscard]] SACCADE_BOTH constexpr int clamped(int key) const {
    const int from = key < 0 ? 0 : key;
    return from < len_kv ? from : len_kv;
  }
};

/// The tiles of kKeys keys that rows [first_row, last_row] need: [first, last), of which those of
/// [whole_first, whole_last) are seen in full by every row and need no mask. Rows that see no key at all may
/// have one of which they see nothing.
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
  const auto number = [](int keys) { return static_cast<unsigned>(keys); };  // what divides in one shift
  const auto larger = [](int a, int b) { return a > b ? a : b; };
  const auto smaller = [](int a, int b) { return a < b ? a : b; };
  TileRange range;
  range.first = static_cast<int>(number(span.begin(first_row)) / kKeys);
  range.last = larger(range.first, static_cast<int>((number(span.end(last_row)) + kKeys - 1) / kKeys));
  range.whole_first =
      larger(range.first, static_cast<int>((number(span.begin(last_row)) + kKeys - 1) / kKeys));
  range.whole_last =
      larger(range.whole_first, smaller(range.last, static_cast<int>(number(span.end(first_row)) / kKeys)));
  return range;
}

}  // namespace saccade::SACCADE_MACHINE::tile
