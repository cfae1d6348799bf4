// How the decode kernel reads rows of keys and values as vectors, and adds up lanes. Compiled once for each
// instruction set, like simd_math-inl.h.
#if defined(SACCADE_CPU_DECODE_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SACCADE_CPU_DECODE_VECTORS_INL_H_
#undef SACCADE_CPU_DECODE_VECTORS_INL_H_
#else
#define SACCADE_CPU_DECODE_VECTORS_INL_H_
#endif

#include <cstdint>
#include <hwy/highway.h>
#include <type_traits>

#include "cpu/decode_simd.h"
#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace saccade::HWY_NAMESPACE {

/// Asks for the row that lies `bytes` behind this one, which may be outside the tensor.
template <class T>
HWY_INLINE void fetch_row(const T* row, std::int64_t length, std::int64_t bytes = 0) {
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(row) + static_cast<std::uintptr_t>(bytes);
  const std::uintptr_t end = begin + static_cast<std::uintptr_t>(length) * sizeof(T);
  for (std::uintptr_t line = begin; line < end; line += 64)
    __builtin_prefetch(reinterpret_cast<const void*>(line));
}

/// How a row is loaded.
enum class Loads {
  plain,
  ahead,   ///< and its lines kBytesAhead further on are asked for, evenly spread over the arithmetic
  halves,  ///< every line by two loads: a Zen 4 reads a stream of bf16 at 102 instead of 88% of the ceiling
  rows,    ///< and whole rows are asked for before their turn
  turns,   ///< the same, a few keys in turn with a few values
};

/// Stretches of the keys that are read side by side, and keys that are scored before their values are read. A
/// Zen 5 that has arithmetic to do reads two streams at 50 GB/s, and eight at 25.
template <Loads kLoads>
constexpr std::int64_t kStreams = kLoads == Loads::halves                           ? 1
                                  : kLoads == Loads::rows || kLoads == Loads::turns ? 2
                                                                                    : 8;
template <Loads kLoads>
constexpr std::int64_t kTileKeys = kLoads == Loads::rows    ? decode::kMostKeys
                                   : kLoads == Loads::turns ? 16
                                                            : 128;

/// In a stream: the best of 1, 2 and 4 KB for f32, and as good as any for the others.
constexpr std::uintptr_t kBytesAhead = 2048;

/// Asks for what lies kBytesAhead behind the `count` numbers at `from`. Only as far as the second-level
/// cache: for the first it costs more than it gains. The address may lie outside the tensor.
template <class T>
HWY_INLINE void ask_ahead(const T* from, std::int64_t count) {
  constexpr int kIntoSecondLevel = 2;
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(from) + kBytesAhead;
  const std::uintptr_t end = begin + static_cast<std::uintptr_t>(count) * sizeof(T);
  for (std::uintptr_t line = begin; line < end; line += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(line), 0, kIntoSecondLevel);
  }
}

/// Loads of what is used several times. Left to itself GCC reads memory again at every use, which made four
/// rows against 16-bit keys half as fast on a Zen 5; a masked load is none that it could repeat so, if the
/// mask (all lanes) is one that it cannot see through.
template <Loads kLoads>
class LoadsOnce {
 public:
  /// `steps` is any number above 0 that is only known at run time.
  HWY_INLINE explicit LoadsOnce(std::int64_t steps)
      : every_lane_(hn::FirstN(Floats(), steps > 0 ? hn::Lanes(Floats()) : 0)) {}
  HWY_INLINE Vec load(const float* from) const {
#if HWY_TARGET <= HWY_AVX3
    if constexpr (kLoads == Loads::rows || kLoads == Loads::turns)
      return hn::MaskedLoad(every_lane_, Floats(), from);
#endif
    return hn::LoadU(Floats(), from);
  }

 private:
  hn::Mask<Floats> every_lane_;
};

/// The `count` (less than a vector) numbers at `from`, with zeros behind them.
template <class T>
HWY_INLINE Vec load_tail(const T* from, std::int64_t count) {
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  for (std::int64_t n = 0; n < count; ++n) buffer[n] = to_float(from[n]);
  return hn::Load(Floats(), buffer);
}

// Two bf16 numbers in 32 bits are two floats after a shift and a mask, half the work of widening each: the
// even and the odd numbers of a block of two vectors. So rows of q and o that meet bf16 keys and values keep
// the even columns of every whole block before its odd ones.
template <class T>
constexpr bool kSplitPairs = std::is_same_v<T, BF16>&& HWY_TARGET != HWY_SCALAR;

/// Pairs of bf16 numbers as they lie.
template <Loads kLoads, class D>
HWY_INLINE hn::Vec<D> load_pairs(D d, const std::uint32_t* from) {
#if HWY_TARGET <= HWY_AVX3  // others' vectors are shorter than a line
  if constexpr (kLoads == Loads::halves) {
    const hn::Half<D> half;
    return hn::Combine(d, hn::LoadU(half, from + hn::MaxLanes(half)), hn::LoadU(half, from));
  }
#endif
  return hn::LoadU(d, from);
}

/// Two vectors of a row in the order in which q and o have them.
template <Loads kLoads, class T>
HWY_INLINE void load_pair(const T* from, Vec& first, Vec& second) {
  const Floats d;
  if constexpr (kLoads == Loads::ahead) ask_ahead(from, 2 * lane_count());
  if constexpr (kSplitPairs<T>) {
    const hn::RebindToUnsigned<Floats> du;
    const auto both = load_pairs<kLoads>(du, reinterpret_cast<const std::uint32_t*>(from));
    first = hn::BitCast(d, hn::ShiftLeft<16>(both));
    second = hn::BitCast(d, hn::And(both, hn::Set(du, 0xffff0000U)));
  } else {
    first = load_as_float(d, from);
    second = load_as_float(d, from + lane_count());
  }
}

/// Calls `move(natural, split)` for every column of the whole blocks of a row that is kept split.
template <class T, class Move>
HWY_INLINE void for_each_split(std::int64_t columns, const Move& move) {
  if constexpr (kSplitPairs<T>) {
    const std::int64_t lanes = lane_count();
    for (std::int64_t block = 0; block + 2 * lanes <= columns; block += 2 * lanes) {
      for (std::int64_t n = 0; n < 2 * lanes; ++n) move(block + n, block + n / 2 + n % 2 * lanes);
    }
  }
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void store_sums(const Vec (&x)[4], float* to) {
  for (int k = 0; k < 4; ++k) to[k] = hn::GetLane(x[k]);
}
#else
/// Adds the 128-bit blocks of a vector.
template <class D>
HWY_INLINE hn::Vec<hn::FixedTag<float, 4> > sum_of_blocks(D, hn::Vec<D> x) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return x;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)));
  }
}

/// to[k] = the sum over all lanes of x[k]: 13 shuffles and adds instead of four times nine.
HWY_INLINE void store_sums(const Vec (&x)[4], float* to) {
  const Floats d;
  const hn::RepartitionToWide<Floats> pairs;
  // Each step adds neighbours and interleaves, until every 128-bit block holds a part of the four sums in
  // order.
  const Vec x01 = hn::Add(hn::InterleaveLower(d, x[0], x[1]), hn::InterleaveUpper(d, x[0], x[1]));
  const Vec x23 = hn::Add(hn::InterleaveLower(d, x[2], x[3]), hn::InterleaveUpper(d, x[2], x[3]));
  const auto low = hn::InterleaveLower(pairs, hn::BitCast(pairs, x01), hn::BitCast(pairs, x23));
  const auto high = hn::InterleaveUpper(pairs, hn::BitCast(pairs, x01), hn::BitCast(pairs, x23));
  const Vec parts = hn::Add(hn::BitCast(d, low), hn::BitCast(d, high));
  hn::StoreU(sum_of_blocks(d, parts), hn::FixedTag<float, 4>(), to);
}
#endif

}  // namespace saccade::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SACCADE_CPU_DECODE_VECTORS_INL_H_
