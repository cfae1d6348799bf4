// Numbers on their way into matrix tiles: cut into bf16 parts, two to a 32-bit pair, and transposed where the
// tile wants it. Compiled like simd_math-inl.h, for AVX-512 only.
#if defined(SACCADE_CPU_AMX_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SACCADE_CPU_AMX_PACK_INL_H_
#undef SACCADE_CPU_AMX_PACK_INL_H_
#else
#define SACCADE_CPU_AMX_PACK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <hwy/highway.h>
#include <type_traits>

#include "cpu/amx_tiles.h"
#include "cpu/blocked_walk-inl.h"
#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace saccade::HWY_NAMESPACE {

using Words = hn::RebindToUnsigned<Floats>;
using WordVec = hn::Vec<Words>;

constexpr std::int64_t kUnit = amx::kUnit;
constexpr int kPanelVectors = 2;
constexpr std::int64_t kPanelRows = kPanelVectors * 16;
static_assert(kPanelRows == amx::kPanelRows);
constexpr std::int64_t kPanelBytes = kPanelRows * 4;
constexpr std::int64_t kTileRowBytes = 64;

/// 16 rows of 16 pairs of bf16 numbers: what a tile register holds.
constexpr std::int64_t kTilePairs = 256;

/// bf16 numbers that hold a number of the storage type exactly.
template <class T>
constexpr int kParts = std::is_same_v<T, BF16>  ? 1
                       : std::is_same_v<T, F16> ? 2
                                                : 3;

/// Cuts by truncation, largest part first: the remainders are exact, all parts have x's sign, and nothing
/// overflows that did not before. Each part lies in the upper half of its word.
template <int kCount>
HWY_INLINE void split_parts(Vec x, WordVec (&part)[kCount]) {
  const Floats d;
  const Words dw;
  for (int i = 0; i < kCount; ++i) {
    part[i] = hn::And(hn::BitCast(dw, x), hn::Set(dw, 0xffff0000U));
    if (i + 1 < kCount) x = hn::Sub(x, hn::BitCast(d, part[i]));
  }
}

/// Pairs of bf16 numbers, `low` in the lower halves; both lie in the upper halves of their words.
HWY_INLINE WordVec pair_up(WordVec low, WordVec high) {
  return hn::Or(high, hn::ShiftRight<16>(low));
}

/// Remembers whether a number that was not finite came by.
class FiniteCheck {
 public:
  HWY_INLINE FiniteCheck() : largest_(hn::Zero(Words())) {}
  HWY_INLINE void see(Vec x) {
    const Words dw;
    largest_ = hn::Max(largest_, hn::And(hn::BitCast(dw, x), hn::Set(dw, 0x7fffffffU)));
  }
  [[nodiscard]] HWY_INLINE bool passed() const {
    return hn::AllTrue(Words(), hn::Lt(largest_, hn::Set(Words(), 0x7f800000U)));
  }

 private:
  WordVec largest_;
};

/// The 16 numbers at `from`, of which `count` exist; the others are 0.
template <class T>
HWY_INLINE Vec load_some(const T* from, std::int64_t count) {
  const Floats d;
  if (count >= 16) return load_as_float(d, from);
  alignas(64) float some[16] = {};
  for (std::int64_t n = 0; n < count; ++n) some[n] = to_float(from[n]);
  return hn::Load(d, some);
}

/// Cuts the pairs (a, b) of 16 numbers each into parts; part i goes to to + i * part_stride.
template <class T>
HWY_INLINE void store_pairs(Vec a, Vec b, std::uint32_t* to, std::int64_t part_stride, FiniteCheck& finite) {
  const Words dw;
  if constexpr (kParts<T> == 1) {
    hn::StoreU(pair_up(hn::BitCast(dw, a), hn::BitCast(dw, b)), dw, to);
  } else {
    finite.see(a);
    finite.see(b);
    WordVec low[kParts<T>];
    WordVec high[kParts<T>];
    split_parts(a, low);
    split_parts(b, high);
    for (int i = 0; i < kParts<T>; ++i) hn::StoreU(pair_up(low[i], high[i]), dw, to + i * part_stride);
  }
}

/// A row of `dim` numbers (nullptr: zeros) as pairs (n, n + 16) of each 32 numbers. Which numbers make a pair
/// does not matter as long as both factors agree; these need no shuffles. Pairs of 32-block c go to
/// to + c * block_stride.
template <class T>
HWY_INLINE void pack_row(const T* from, std::int64_t dim, std::int64_t padded_dim, std::uint32_t* to,
                         std::int64_t block_stride, std::int64_t part_stride, FiniteCheck& finite) {
  const Floats d;
  for (std::int64_t c = 0; c < padded_dim; c += 32, to += block_stride) {
    const Vec a = from == nullptr ? hn::Zero(d) : load_some(from + c, dim - c);
    const Vec b = from == nullptr ? hn::Zero(d) : load_some(from + c + 16, dim - c - 16);
    store_pairs<T>(a, b, to, part_stride, finite);
  }
}

/// to[c][r] = from[r][c], 16 x 16 pairs, into a tile.
HWY_INLINE void transpose_tile(const std::uint32_t* from, std::int64_t stride, std::uint32_t* to) {
  transpose_16(from, stride, to, 16);
}

/// Packed operands and where they lie, in pairs of bf16 numbers. Tiles are contiguous.
struct Packed {
  std::int64_t q_part, k_part, v_part, p_part;  // distance between parts
  std::uint32_t* q;                             // [part][panel][dim / 32][vector] tiles
  std::uint32_t* k;                             // [part][key / 16][dim / 32] tiles
  std::uint32_t* v;                             // [part][dim / 16][key / 32] tiles
  std::uint32_t* p;                             // [part][key / 2][panel rows]
  std::uint32_t* rows;                          // [part][16][largest dim]: on their way to a transposition
  float* scores;                                // [key][panel rows]
  std::int64_t words;                           // all of it

  /// Without memory: only to know its size.
  HWY_INLINE Packed(const Sizes& s, int parts, std::uint32_t* memory) {
    q_part = s.rows * s.dim_qk / 2;
    k_part = s.key_tile * s.dim_qk / 2;
    v_part = s.key_tile * s.dim_v / 2;
    p_part = s.key_tile * kPanelRows / 2;
    words = 0;
    const auto take = [&](std::int64_t count) {
      std::uint32_t* here = memory == nullptr ? nullptr : memory + words;
      words += (count + 15) / 16 * 16;
      return here;
    };
    q = take(parts * q_part);
    k = take(parts * k_part);
    v = take(parts * v_part);
    p = take(parts * p_part);
    rows = take(parts * 16 * std::max(s.dim_qk, s.dim_v));
    scores = reinterpret_cast<float*>(take(s.key_tile * kPanelRows));
  }
};

/// Queries are factor b: [16 pairs of dims][16 rows] tiles.
template <class T>
HWY_INLINE void pack_queries(const Walk& w, const Packed& packed, std::int64_t panels, FiniteCheck& finite) {
  const std::int64_t dim = w.sizes.dim_qk;
  const std::int64_t pairs = dim / 2;
  for (std::int64_t first = 0; first < panels * kPanelRows; first += 16) {
    for (std::int64_t r = 0; r < 16; ++r) {
      const std::int64_t row = first + r;
      const T* from = row < w.block.rows
                          ? static_cast<const T*>(w.t.q) +
                                query_offset(w.p, w.p.q, w.block.sequence, w.head(row), w.query(row))
                          : nullptr;
      pack_row(from, w.p.dim_qk, dim, packed.rows + r * pairs, 16, 16 * pairs, finite);
    }
    const std::int64_t panel = first / kPanelRows;
    const std::int64_t vector = first % kPanelRows / 16;
    for (int part = 0; part < kParts<T>; ++part) {
      for (std::int64_t c = 0; c < dim / 32; ++c) {
        transpose_tile(packed.rows + part * 16 * pairs + c * 16, pairs,
                       packed.q + part * packed.q_part + panel * kPanelRows * pairs +
                           (c * kPanelVectors + vector) * kTilePairs);
      }
    }
  }
}

/// Rows of k or v, one after the other.
template <class T>
struct KeyRows {
  const Walk& w;
  const Strides& strides;
  const T* base;

  HWY_INLINE KeyRows(const Walk& walk, const void* tensor, const Strides& tensor_strides)
      : w(walk), strides(tensor_strides), base(static_cast<const T*>(tensor)) {
    if (w.p.kv_layout != KvLayout::paged) {
      base += key_offset(w.p, w.t, strides, w.block.sequence, w.block.head_kv, 0);
    }
  }
  [[nodiscard]] HWY_INLINE const T* operator[](std::int64_t key) const {
    if (w.p.kv_layout != KvLayout::paged) return base + key * strides.row;
    return base + key_offset(w.p, w.t, strides, w.block.sequence, w.block.head_kv, key);
  }
};

/// Keys are factor a as they lie: [16 keys][32 dims] tiles.
template <class T>
HWY_INLINE void pack_keys(const Walk& w, const Packed& packed, std::int64_t first, std::int64_t count,
                          FiniteCheck& finite) {
  const KeyRows<T> rows(w, w.t.k, w.p.k);
  const std::int64_t blocks = w.sizes.dim_qk / 32;
  const std::int64_t padded = (count + kUnit - 1) / kUnit * kUnit;
  for (std::int64_t j = 0; j < padded; ++j) {
    pack_row(j < count ? rows[first + j] : nullptr, w.p.dim_qk, w.sizes.dim_qk,
             packed.k + j / 16 * blocks * kTilePairs + j % 16 * 16, kTilePairs, packed.k_part, finite);
  }
}

/// Values are factor a transposed: [16 columns][32 keys] tiles.
template <class T>
HWY_INLINE void pack_values(const Walk& w, const Packed& packed, std::int64_t first, std::int64_t count,
                            FiniteCheck& finite) {
  const Floats d;
  const KeyRows<T> rows(w, w.t.v, w.p.v);
  const std::int64_t dim = w.sizes.dim_v;
  const std::int64_t v_row = w.sizes.key_tile / kUnit * kTilePairs;
  for (std::int64_t j = 0; j < count; j += kUnit) {
    for (std::int64_t r = 0; r < 16; ++r) {
      const std::int64_t key = j + 2 * r;
      const T* even = key < count ? rows[first + key] : nullptr;
      const T* odd = key + 1 < count ? rows[first + key + 1] : nullptr;
      for (std::int64_t c = 0; c < dim; c += 16) {
        const Vec a = even == nullptr ? hn::Zero(d) : load_some(even + c, w.p.dim_v - c);
        const Vec b = odd == nullptr ? hn::Zero(d) : load_some(odd + c, w.p.dim_v - c);
        store_pairs<T>(a, b, packed.rows + r * dim + c, 16 * dim, finite);
      }
    }
    for (int part = 0; part < kParts<T>; ++part) {
      for (std::int64_t c = 0; c < dim; c += 16) {
        transpose_tile(packed.rows + part * 16 * dim + c, dim,
                       packed.v + part * packed.v_part + c / 16 * v_row + j / kUnit * kTilePairs);
      }
    }
  }
}

}  // namespace saccade::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SACCADE_CPU_AMX_PACK_INL_H_
