// The decode kernel's work on one unit: which keys are read in which order, and where everything lies.
// Compiled once for each instruction set, like simd_math-inl.h.
#if defined(SACCADE_CPU_DECODE_WORK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SACCADE_CPU_DECODE_WORK_INL_H_
#undef SACCADE_CPU_DECODE_WORK_INL_H_
#else
#define SACCADE_CPU_DECODE_WORK_INL_H_
#endif

#include <algorithm>
#include <hwy/highway.h>

#include "cpu/decode_simd.h"

HWY_BEFORE_NAMESPACE();
namespace saccade::HWY_NAMESPACE {

using decode::kKeyTile;
using decode::kStreams;
using decode::Sizes;
using decode::State;
using decode::Unit;

/// How far from the tile's first key in its stream the n-th key of a tile is.
template <std::int64_t kCount>
struct Places {
  HWY_ALIGN float in_stream[kKeyTile];
  constexpr Places() : in_stream() {
    for (std::int64_t n = 0; n < kKeyTile; ++n) {
      const std::int64_t place = n / kCount;
      in_stream[n] = static_cast<float>(place);
    }
  }
};
constexpr Places<kStreams> kPlaces;
constexpr Places<1> kPlacesOfOne;

/// The keys of a unit, read as stretches side by side: one stream of reads cannot fill the memory system of
/// many a core (`docs/kernels/cpu.md`). A tile takes the next keys of every stretch in turn, so its n-th key
/// belongs to stream n % count; the softmax does not mind the order.
struct Streams {
  KeyRange keys;
  std::int64_t count = kStreams;  ///< kStreams or 1
  std::int64_t length = 0;        ///< of a stretch; the last ones may be shorter or empty
  std::int64_t depth = 0;         ///< keys that a whole tile takes from each

  Streams() = default;
  Streams(KeyRange all, std::int64_t stretches)
      : keys(all),
        count(stretches),
        length((std::max<std::int64_t>(all.end - all.begin, 0) + stretches - 1) / stretches),
        depth(kKeyTile / stretches) {}
  [[nodiscard]] std::int64_t first(std::int64_t stream) const { return keys.begin + stream * length; }
  /// Where the stretch ends.
  [[nodiscard]] std::int64_t end(std::int64_t stream) const {
    return std::min(first(stream) + length, keys.end);
  }
  [[nodiscard]] const float* places() const {
    return count == 1 ? kPlacesOfOne.in_stream : kPlaces.in_stream;
  }
};

/// A unit with its pointers sorted out.
template <class T>
struct Work {
  const Unit& unit;
  const Sizes& sizes;
  const State& state;
  const Problem& p;
  const Tensors& t;
  float *q, *scores, *bias;
  float* weights;            // scores after the softmax, where the values' product finds them
  float* spare;              // of one row, for tiles that alternate
  const T **keys, **values;  // rows of the tile in the order they are read
  Streams streams;

  HWY_INLINE Work(const Unit& all, const Sizes& all_sizes, float* scratch, const State& soft,
                  std::int64_t stretches)
      : unit(all), sizes(all_sizes), state(soft), p(*all.problem), t(*all.tensors) {
    q = scratch;
    scores = q + sizes.rows * sizes.dim_qk;
    bias = scores + sizes.rows * kKeyTile;
    keys = reinterpret_cast<const T**>(bias + sizes.rows * kKeyTile);
    values = keys + kKeyTile;
    spare = reinterpret_cast<float*>(values + kKeyTile);
    weights = scores;
    // Limits only grow from row to row, so the outer rows bound them all.
    streams = Streams({visible(0).begin, visible(unit.rows - 1).end}, stretches);
  }
  [[nodiscard]] std::int64_t query(std::int64_t row) const { return row / p.group(); }
  [[nodiscard]] std::int64_t head(std::int64_t row) const {
    return unit.head_kv * p.group() + row % p.group();
  }
  [[nodiscard]] KeyRange visible(std::int64_t row) const {
    const KeyRange seen = visible_keys(p, unit.sequence, query(row));
    const std::int64_t first = std::max(seen.begin, unit.keys.begin);
    return {first, std::max(first, std::min(seen.end, unit.keys.end))};
  }
};

}  // namespace saccade::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SACCADE_CPU_DECODE_WORK_INL_H_
