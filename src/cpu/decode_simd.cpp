#include "cpu/decode_simd.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cpu/finish_row.h"
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

// Highway's order: the targets, then this file once for each of them.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/decode_simd.cpp"
#include "cpu/simd_targets.h"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
#include "cpu/decode_tiles-inl.h"
#include "cpu/decode_turns-inl.h"
#include "cpu/decode_vectors-inl.h"
#include "cpu/decode_work-inl.h"
#include "cpu/simd_math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace saccade::HWY_NAMESPACE {
namespace {

using decode::Reading;

/// All tiles for one row: groups of a tile's keys in turn with groups of the values of the tile before, so
/// that both are read all the time and a prefetcher never has to start again.
template <class T>
HWY_INLINE void attend_alternating(Work<T> w) {
  w.weights = w.spare;
  std::int64_t before = 0;  // keys of the tile whose values are still to be read
  float alpha = 1.0F;
  const auto read = [&](std::int64_t count) HWY_ATTR {
    constexpr std::int64_t kGroup = kValueGroup<1, Loads::halves>;
    for (std::int64_t j = 0; j < std::max(count, before); j += kGroup) {
      if (j < count) score<1, Loads::halves>(w, 0, j, std::min(j + kGroup, count));
      if (j < before) weigh_group<1, Loads::halves>(w, 0, j, before, &alpha);
    }
  };
  for (std::int64_t at = 0; at < w.streams.length; at += w.tile) {
    const std::int64_t count = std::min(w.tile, w.streams.length - at);
    if (w.p.mask != MaskKind::none && !load_bias(w, at, count)) continue;
    list_rows<1>(w, w.t.k, w.p.k, at, count, w.tile, w.keys);
    read(count);
    list_rows<1>(w, w.t.v, w.p.v, at, count, w.tile, w.values);
    alpha = softmax_row(w, 0, at, count);
    std::swap(w.scores, w.weights);
    before = count;
  }
  read(0);
}

// Not inlined: with all ways of loading in one function GCC made four rows of bf16 a fifth slower.
template <Loads kLoads, class T>
HWY_NOINLINE void attend_typed(const Unit& unit, const Sizes& sizes, float* scratch, const State& state) {
  const Work<T> w(unit, sizes, scratch, state, kStreams<kLoads>, kTileKeys<kLoads>);
  const float scale = w.scale();
  std::fill_n(w.q, w.sizes.rows * w.sizes.dim_qk, 0.0F);
  for (std::int64_t row = 0; row < w.unit.rows; ++row) {
    const T* from = w.query_row(row);
    float* q = w.q + row * w.sizes.dim_qk;
    convert_row(from, w.p.dim_qk, scale, q);
    for_each_split<T>(w.p.dim_qk, [&](std::int64_t natural, std::int64_t split) {
      q[split] = scale * to_float(from[natural]);
    });
  }
  start_rows(w);
  if constexpr (kLoads == Loads::halves) {
    attend_alternating(w);
  } else if constexpr (kLoads == Loads::turns) {
    attend_in_turns(w);
  } else {
    attend_tiles<kLoads>(w, [&]<int kRows>(std::int64_t row, std::int64_t at, std::int64_t count)
                                HWY_ATTR { attend_rows<kRows, kLoads>(w, row, at, count); });
  }
}

template <class T>
HWY_INLINE void finish_typed(const Unit& unit, const Sizes& sizes, const State& state) {
  const Problem& p = *unit.problem;
  const Tensors& t = *unit.tensors;
  for (std::int64_t row = 0; row < unit.rows; ++row) {
    const std::int64_t query = row / p.group();
    const std::int64_t head = unit.head_kv * p.group() + row % p.group();
    const float weight = finish_row(p, t, unit.sequence, head, query, state.m[row], state.l[row]);
    T* to = static_cast<T*>(t.o) + query_offset(p, p.o, unit.sequence, head, query);
    const float* o = state.o + row * sizes.dim_v;
    store_row(o, p.dim_v, weight, to);
    for_each_split<T>(p.dim_v, [&](std::int64_t natural, std::int64_t split) {
      to[natural] = from_float<T>(weight * o[split]);
    });
  }
}

void attend_unit(const Unit& unit, const Sizes& sizes, float* scratch, const State& state) {
  with_dtype(unit.problem->dtype, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    const auto attend_by = [&]<Loads kLoads>()
                               HWY_ATTR { attend_typed<kLoads, T>(unit, sizes, scratch, state); };
    const bool one = unit.rows == 1;
    const bool in_turns = one && can_take_turns(*unit.problem) &&
                          (unit.reading == Reading::turns || leaves_cache(*unit.problem));
    switch (unit.reading) {
      case Reading::streams:
        return attend_by.template operator()<Loads::plain>();
      case Reading::zen4:
        // One row of f32 is up to a tenth faster with lines asked for ahead.
        if constexpr (sizeof(T) == 2) {
          if (one) return attend_by.template operator()<Loads::halves>();
        }
        return attend_by.template operator()<Loads::ahead>();
      case Reading::zen5:
        return attend_by.template operator()<Loads::rows>();
      case Reading::intel:
      case Reading::turns:
        if (in_turns) return attend_by.template operator()<Loads::turns>();
        if (one) return attend_by.template operator()<Loads::plain>();
        return attend_by.template operator()<Loads::ahead>();
    }
  });
}

void finish_unit(const Unit& unit, const Sizes& sizes, const State& state) {
  with_dtype(unit.problem->dtype,
             [&](auto zero) HWY_ATTR { finish_typed<decltype(zero)>(unit, sizes, state); });
}

std::int64_t vector_lanes() {
  return lane_count();
}

}  // namespace
}  // namespace saccade::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace saccade {
namespace {
HWY_EXPORT(attend_unit);
HWY_EXPORT(finish_unit);
HWY_EXPORT(vector_lanes);
}  // namespace

namespace decode {

Reading reading_of_this_machine() {
#if HWY_ARCH_X86
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__builtin_cpu_is("intel")) return Reading::intel;
  if (!__builtin_cpu_is("amd") || __get_cpuid(1, &a, &b, &c, &d) == 0) return Reading::streams;
  constexpr unsigned kZen5 = 0x1a;
  const unsigned family = (a >> 8 & 0xf) + (a >> 20 & 0xff);  // the first is 15 on all that have vectors
  return family < kZen5 ? Reading::zen4 : Reading::zen5;
#else
  return Reading::streams;
#endif
}

Sizes::Sizes(const Problem& p) {
  const std::int64_t lanes = HWY_DYNAMIC_DISPATCH(vector_lanes)();
  const auto pad = [](std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; };
  constexpr std::int64_t kCacheLine = 16;  // floats; keeps what follows each array aligned
  rows = pad(p.group() * p.len_q, 4);
  dim_qk = pad(p.dim_qk, lanes);
  dim_v = pad(p.dim_v, lanes);
  state = pad(rows * (dim_v + 2), kCacheLine);
  constexpr std::int64_t kPointerFloats = sizeof(void*) / sizeof(float);
  constexpr std::int64_t kLists = (2 * kMostKeys + kMostAhead) * kPointerFloats;
  scratch = pad(rows * dim_qk + 2 * rows * kMostKeys + kLists + kMostKeys, kCacheLine);
}

State state_at(const Sizes& sizes, float* memory) {
  return {memory, memory + sizes.rows, memory + 2 * sizes.rows};
}

void attend(const Unit& unit, const Sizes& sizes, float* scratch, const State& state) {
  HWY_DYNAMIC_DISPATCH(attend_unit)(unit, sizes, scratch, state);
}

void finish(const Unit& unit, const Sizes& sizes, const State& state) {
  HWY_DYNAMIC_DISPATCH(finish_unit)(unit, sizes, state);
}

void merge(const Unit& unit, const Sizes& sizes, const State& part, const State& state) {
  for (std::int64_t row = 0; row < unit.rows; ++row) {
    const float m = std::max(state.m[row], part.m[row]);
    const float reference = m == -std::numeric_limits<float>::infinity() ? 0 : m;
    const float keep = std::exp2(state.m[row] - reference);
    const float take = std::exp2(part.m[row] - reference);
    state.m[row] = m;
    state.l[row] = state.l[row] * keep + part.l[row] * take;
    float* o = state.o + row * sizes.dim_v;
    const float* add = part.o + row * sizes.dim_v;
    for (std::int64_t c = 0; c < sizes.dim_v; ++c) o[c] = o[c] * keep + add[c] * take;
  }
}

}  // namespace decode
}  // namespace saccade
#endif  // HWY_ONCE
