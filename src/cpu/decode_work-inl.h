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
#include <limits>

#include "cpu/decode_simd.h"
#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace saccade::HWY_NAMESPACE {

using decode::kMostKeys;
using decode::Sizes;
using decode::State;
using decode::Unit;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// How far from the tile's first key in its stream the n-th key of a tile is.
template <std::int64_t kCount>
struct Places {
  HWY_ALIGN float in_stream[kMostKeys];
  constexpr Places() : in_stream() {
    for (std::int64_t n = 0; n < kMostKeys; ++n) {
      const std::int64_t place = n / kCount;
      in_stream[n] = static_cast<float>(place);
    }
  }
};
constexpr Places<8> kPlacesOfEight;
constexpr Places<2> kPlacesOfTwo;
constexpr Places<1> kPlacesOfOne;

/// The keys of a unit, read as stretches side by side: one stream of reads cannot fill the memory system of
/// many a core (`docs/kernels/cpu.md`). A tile takes the next keys of every stretch in turn, so its n-th key
/// belongs to stream n % count; the softmax does not mind the order.
struct Streams {
  KeyRange keys;
  std::int64_t count = 1;   ///< 1, 2 or 8
  std::int64_t length = 0;  ///< of a stretch; the last ones may be shorter or empty
  std::int64_t depth = 0;   ///< keys that a whole tile takes from each

  Streams() = default;
  Streams(KeyRange all, std::int64_t stretches, std::int64_t tile)
      : keys(all),
        count(stretches),
        length((std::max<std::int64_t>(all.end - all.begin, 0) + stretches - 1) / stretches),
        depth(tile / stretches) {}
  [[nodiscard]] std::int64_t first(std::int64_t stream) const { return keys.begin + stream * length; }
  /// Where the stretch ends.
  [[nodiscard]] std::int64_t end(std::int64_t stream) const {
    return std::min(first(stream) + length, keys.end);
  }
  [[nodiscard]] const float* places() const {
    return count == 1   ? kPlacesOfOne.in_stream
           : count == 2 ? kPlacesOfTwo.in_stream
                        : kPlacesOfEight.in_stream;
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
  std::int64_t tile;         // keys of a whole one
  const T **keys, **values;  // rows of the tile in the order they are read; then the next tile's first keys
  Streams streams;

  HWY_INLINE Work(const Unit& all, const Sizes& all_sizes, float* scratch, const State& soft,
                  std::int64_t stretches, std::int64_t tile_keys)
      : unit(all), sizes(all_sizes), state(soft), p(*all.problem), t(*all.tensors), tile(tile_keys) {
    q = scratch;
    scores = q + sizes.rows * sizes.dim_qk;
    bias = scores + sizes.rows * kMostKeys;
    keys = reinterpret_cast<const T**>(bias + sizes.rows * kMostKeys);
    values = keys + kMostKeys;
    spare = reinterpret_cast<float*>(values + kMostKeys + decode::kMostAhead);
    weights = scores;
    // Limits only grow from row to row, so the outer rows bound them all.
    streams = Streams({visible(0).begin, visible(unit.rows - 1).end}, stretches, tile);
  }
  [[nodiscard]] std::int64_t query(std::int64_t row) const { return row / p.group(); }
  [[nodiscard]] std::int64_t head(std::int64_t row) const {
    return unit.head_kv * p.group() + row % p.group();
  }
  [[nodiscard]] const T* query_row(std::int64_t row) const {
    return static_cast<const T*>(t.q) + query_offset(p, p.q, unit.sequence, head(row), query(row));
  }
  /// What a product of a query and a key is multiplied by: scores are in base 2, or in units of the softcap.
  [[nodiscard]] float scale() const { return p.effective_scale() * (p.softcap > 0 ? 1 / p.softcap : kLog2e); }
  [[nodiscard]] KeyRange visible(std::int64_t row) const {
    const KeyRange seen = visible_keys(p, unit.sequence, query(row));
    const std::int64_t first = std::max(seen.begin, unit.keys.begin);
    return {first, std::max(first, std::min(seen.end, unit.keys.end))};
  }
};

/// Lists `count` rows of K or V from `at` on in every stream. Where a stream has ended, its last row (or the
/// unit's first) stands in, and the last one of all for what is missing to `wanted`.
template <std::int64_t kCount, class T>
HWY_INLINE void list_rows(const Work<T>& w, const void* tensor, const Strides& strides, std::int64_t at,
                          std::int64_t count, std::int64_t wanted, const T** rows) {
  const auto row_of = [&](std::int64_t key) {
    return static_cast<const T*>(tensor) +
           key_offset(w.p, w.t, strides, w.unit.sequence, w.unit.head_kv, key);
  };
  for (std::int64_t stream = 0; stream < kCount; ++stream) {
    const std::int64_t last = std::max(w.streams.end(stream) - 1, w.streams.keys.begin);
    const std::int64_t first = w.streams.first(stream) + at;
    if (w.p.kv_layout != KvLayout::paged && first + count / kCount - 1 <= last) {
      const T* row = row_of(first);
      for (std::int64_t n = stream; n < count; n += kCount, row += strides.row) rows[n] = row;
    } else {
      for (std::int64_t n = 0; n * kCount < count; ++n) {
        rows[n * kCount + stream] = row_of(std::min(first + n, last));
      }
    }
  }
  std::fill(rows + count, rows + wanted, rows[count - 1]);
}

/// The mask of every row over the tile as a bias in base 2; returns whether any pair is visible.
template <class T>
HWY_INLINE bool load_bias(const Work<T>& w, std::int64_t at, std::int64_t count) {
  bool visible = false;
  for (std::int64_t row = 0; row < w.unit.rows; ++row) {
    const std::int64_t offset = mask_offset(w.p, w.unit.sequence, w.head(row), w.query(row), 0);
    float* bias = w.bias + row * w.tile;
    std::int64_t stream = 0;
    for (std::int64_t j = 0, n = at; j < count; ++j) {
      const std::int64_t key = w.streams.first(stream) + n;
      const std::int64_t place = offset + key * w.p.mask_strides.key;
      if (key >= w.streams.end(stream)) {
        bias[j] = -kInfinity;
      } else if (w.p.mask == MaskKind::boolean) {
        bias[j] = static_cast<const std::uint8_t*>(w.t.mask)[place] != 0 ? 0.0F : -kInfinity;
      } else {
        bias[j] = bias_in_base_2(load(w.p.mask_dtype, w.t.mask, place));
      }
      visible |= bias[j] != -kInfinity;
      if (++stream == w.streams.count) {
        stream = 0;
        ++n;
      }
    }
  }
  return visible;
}

}  // namespace saccade::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SACCADE_CPU_DECODE_WORK_INL_H_
