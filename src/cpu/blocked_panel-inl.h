// The register block of the blocked kernel: panels of query rows and the one product that both matrix
// products of attention are. Compiled once for each instruction set, like simd_math-inl.h.
#if defined(SACCADE_CPU_BLOCKED_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SACCADE_CPU_BLOCKED_PANEL_INL_H_
#undef SACCADE_CPU_BLOCKED_PANEL_INL_H_
#else
#define SACCADE_CPU_BLOCKED_PANEL_INL_H_
#endif

#include <algorithm>
#include <hwy/highway.h>
#include <type_traits>

#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace saccade::HWY_NAMESPACE {

// The register block: kGroup broadcast numbers against kVectors vectors. 8 x 3 takes 35 instructions for 24
// multiply-adds (8 x 2: 26 for 16), which matters where another hyper-thread takes half of the decoder; with
// 16 registers 4 x 3 is the largest block that leaves room for its operands. A panel's last rows may need
// fewer vectors, so the code for a panel is a template of their number.
constexpr int kVectors = 3;
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
constexpr int kGroup = 8;
#else
constexpr int kGroup = 4;
#endif

HWY_INLINE std::int64_t rows_per_panel() {
  return kVectors * lane_count();
}

/// The first kCount vectors of a panel in registers.
template <int kCount>
struct Panel {
  Vec v[kCount];

  static HWY_INLINE Panel splat(float x) {
    Panel p;
    for (Vec& part : p.v) part = hn::Set(Floats(), x);
    return p;
  }
  static HWY_INLINE Panel load(const float* from) {
    const Floats d;
    Panel p;
    for (int i = 0; i < kCount; ++i) p.v[i] = hn::LoadU(d, from + i * lane_count());
    return p;
  }
  HWY_INLINE void store(float* to) const {
    const Floats d;
    for (int i = 0; i < kCount; ++i) hn::StoreU(v[i], d, to + i * lane_count());
  }
};

/// a * b + acc that stays in acc's register. Left to itself GCC lets accumulators wander between registers,
/// and the moves cost a few percent where a neighbour takes half of the decoder. A masked operation has to
/// keep its target, so the mask (all lanes) must be one that the compiler cannot see through.
class InPlace {
 public:
  /// `steps` is any number above 0 that is only known at run time.
  HWY_INLINE explicit InPlace(std::int64_t steps)
      : every_lane_(hn::FirstN(Floats(), steps > 0 ? hn::Lanes(Floats()) : 0)) {}
  HWY_INLINE Vec multiply_add(Vec a, Vec b, Vec acc) const {
#if HWY_TARGET <= HWY_AVX3
    return Vec{_mm512_mask3_fmadd_ps(a.raw, b.raw, acc.raw, every_lane_.raw)};
#else
    return hn::MulAdd(a, b, acc);
#endif
  }

 private:
  hn::Mask<Floats> every_lane_;
};

/// The inner loops take this many steps at a time, so every depth is padded to a multiple of it: a loop of
/// few, long iterations is predicted to its end (3% faster than one step at a time).
constexpr std::int64_t kSteps = 4;
static_assert(kGroup % kSteps == 0);  // depths of whole key groups need no padding of their own

/// acc[r] += sum_n a[r * a_row + n * a_step] * b[n] for r in [0, kGroup), b[n] being the panel at b + n *
/// panel rows. Both products of attention are this: a is K with rows over keys, then V with rows over value
/// columns. Only the vectors from kFirst on take part.
template <int kFirst, int kCount>
HWY_INLINE void multiply_add(const float* HWY_RESTRICT a, std::int64_t a_row, std::int64_t a_step,
                             const float* HWY_RESTRICT b, std::int64_t depth, Panel<kCount> (&acc)[kGroup]) {
  const Floats d;
  const std::int64_t panel = rows_per_panel();
  const InPlace in_place(depth);
  const float* HWY_RESTRICT a_high = a + 4 * a_row;  // a second base keeps every address within base + index
  for (std::int64_t n = 0; n < depth; n += kSteps) {
    for (int step = 0; step < kSteps; ++step) {
      const auto x = Panel<kCount>::load(b + step * panel);
      for (int r = 0; r < kGroup; ++r) {
        const float* row = r < 4 ? a + r * a_row : a_high + (r - 4) * a_row;
        const Vec factor = hn::Set(d, row[step * a_step]);
        for (int i = kFirst; i < kCount; ++i)
          acc[r].v[i] = in_place.multiply_add(factor, x.v[i], acc[r].v[i]);
      }
    }
    a += kSteps * a_step;
    a_high += kSteps * a_step;
    b += kSteps * panel;
  }
}

/// Calls `visit(first, begin, end)` for stretches of [from, ends[kCount - 1]): only the vectors from `first`
/// on, which is known to the compiler, have a row that sees those keys. ends[i] is where vector i's last row
/// stops seeing; it never falls.
template <int kFirst = 0, int kCount, class Visit>
HWY_INLINE void for_each_stretch(std::int64_t from, const std::int64_t (&ends)[kCount], const Visit& visit) {
  if (from < ends[kFirst]) visit(std::integral_constant<int, kFirst>(), from, ends[kFirst]);
  if constexpr (kFirst + 1 < kCount) for_each_stretch<kFirst + 1>(std::max(from, ends[kFirst]), ends, visit);
}

}  // namespace saccade::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SACCADE_CPU_BLOCKED_PANEL_INL_H_
