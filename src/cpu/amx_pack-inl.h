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

#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace saccade::HWY_NAMESPACE {

using Words = hn::RebindToUnsigned<Floats>;
using WordVec = hn::Vec<Words>;

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

}  // namespace saccade::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SACCADE_CPU_AMX_PACK_INL_H_
