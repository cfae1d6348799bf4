#include "cpu/amx_tiles.h"

#include <algorithm>
#include <limits>

// Highway's order: the targets, then this file once for each of them. Only AVX-512 has a body here.
// clang-format off
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX2 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/amx_tiles.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#if HWY_ARCH_X86_64 && (HWY_COMPILER_GCC_ACTUAL >= 1100 || HWY_COMPILER_CLANG >= 1200)
#define SACCADE_HAS_AMX 1
#else
#define SACCADE_HAS_AMX 0
#endif

#if SACCADE_HAS_AMX && HWY_TARGET == HWY_AVX3
// Highway's attributes for AVX-512 and, for everything from here on, the tiles.
#undef HWY_TARGET_STR
#define HWY_TARGET_STR HWY_TARGET_STR_AVX3 ",avx512bf16,amx-tile,amx-bf16"
#include "cpu/amx_pack-inl.h"
#include "cpu/amx_registers-inl.h"
#include "cpu/blocked_walk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace saccade::HWY_NAMESPACE {
namespace {

/// Products of parts that are worth their time. Neighbours share a factor, which then stays in its registers,
/// and the largest product comes last.
struct PartPair {
  int a, b;
};
template <class T>
struct Products;
template <>
struct Products<BF16> {
  static constexpr PartPair kScores[] = {{0, 0}};
  static constexpr PartPair kValues[] = {{0, 0}};
};
template <>
struct Products<F16> {  // all of them for the scores, which are exact then; the weights have 16 bits
  static constexpr PartPair kScores[] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
  static constexpr PartPair kValues[] = {{1, 0}, {0, 0}, {0, 1}};
};
template <>
struct Products<float> {  // what is left out is 2^-24 of the whole
  static constexpr PartPair kScores[] = {{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}};
  static constexpr PartPair kValues[] = {{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}};
};

/// Calls f(tile, vector) for the accumulators of set kSet and the vectors [first, end).
template <int kSet, class F>
HWY_INLINE void for_each_accumulator(int first, int end, const F& f) {
  if (first == 0) f(std::integral_constant<int, 2 * kSet>(), 0);
  if (end == 2) f(std::integral_constant<int, 2 * kSet + 1>(), 1);
}

/// A panel and the keys of the tile that it sees.
struct Seat {
  std::int64_t panel = 0;
  int vectors = 0;  ///< of the panel that have rows
  Reach<kPanelVectors> reach;
};

/// Factors of a product, as multiply() reads them; tiles of a are contiguous.
struct Factors {
  std::int64_t a_part;
  const std::uint32_t* b;  ///< [part][step][vector]
  std::int64_t b_part, b_step, b_vector, b_stride_bytes;
};

/// Adds to the accumulators of a set the products of all pairs of parts, over `depth` steps of 32. a is
/// [part][step].
template <const auto& kProducts, int kSet>
HWY_INLINE void multiply(const Factors& f, const std::uint32_t* a, std::int64_t depth, int first,
                         int vectors) {
  const std::uint32_t* b = f.b;
  for (std::int64_t step = 0; step < depth; ++step, a += kTilePairs, b += f.b_step) {
    PartPair loaded{-1, -1};
    for (const PartPair pair : kProducts) {
      if (pair.a != loaded.a) tile_load<kFactorA + kSet>(a + pair.a * f.a_part, kTileRowBytes);
      if (pair.b != loaded.b) {
        const std::uint32_t* part = b + pair.b * f.b_part;
        if (first == 0) tile_load<kFactorB>(part, f.b_stride_bytes);
        if (vectors == 2) tile_load<kFactorB + 1>(part + f.b_vector, f.b_stride_bytes);
      }
      for_each_accumulator<kSet>(first, vectors,
                                 [](auto tile, int) HWY_ATTR { tile_multiply_add<decltype(tile)::value>(); });
      loaded = pair;
    }
  }
}

/// A result of 2 * `pairs` times sixteen rows. The two sets of accumulators take turns, and a set
/// is stored after the other has been given work: a store waits for its last product (10.5 and 8.2 ns a
/// product).
template <class Compute, class Store>
HWY_INLINE void take_turns(std::int64_t pairs, const Compute& compute, const Store& store) {
  using First = std::integral_constant<int, 0>;
  using Second = std::integral_constant<int, 1>;
  for (std::int64_t n = 0; n < pairs; ++n) {
    compute(First(), 2 * n);
    if (n > 0) store(Second(), 2 * n - 1);
    compute(Second(), 2 * n + 1);
    store(First(), 2 * n);
  }
  if (pairs > 0) store(Second(), 2 * pairs - 1);
}

/// scores = K q^T for the keys that the panel sees.
template <class T>
HWY_INLINE void score_keys(const Walk& w, const Packed& packed, const Seat& seat) {
  const std::int64_t depth = w.sizes.dim_qk / kUnit;
  const Factors f{.a_part = packed.k_part,
                  .b = packed.q + seat.panel * kPanelRows * w.sizes.dim_qk / 2,
                  .b_part = packed.q_part,
                  .b_step = kPanelVectors * kTilePairs,
                  .b_vector = kTilePairs,
                  .b_stride_bytes = kTileRowBytes};
  const std::int64_t from = seat.reach.from / 16;
  // Not the first vector once its rows all end before the keys.
  const auto first = [&](std::int64_t n) {
    return seat.vectors == 2 && seat.reach.ends[0] <= (from + n) * 16 ? 1 : 0;
  };
  take_turns((seat.reach.to - seat.reach.from) / kUnit,
             [&](auto set, std::int64_t n) HWY_ATTR {
               constexpr int kSet = decltype(set)::value;
               for_each_accumulator<kSet>(first(n), seat.vectors, [](auto tile, int) HWY_ATTR {
                 tile_zero<decltype(tile)::value>();
               });
               multiply<Products<T>::kScores, kSet>(f, packed.k + (from + n) * depth * kTilePairs, depth,
                                                    first(n), seat.vectors);
             },
             [&](auto set, std::int64_t n) HWY_ATTR {
               float* to = packed.scores + (from + n) * 16 * kPanelRows;
               for_each_accumulator<decltype(set)::value>(
                   first(n), seat.vectors, [&](auto tile, int vector) HWY_ATTR {
                     tile_store<decltype(tile)::value>(to + vector * 16, kPanelBytes);
                   });
             });
}

/// o^T += V^T p^T for the keys that the panel sees.
template <class T>
HWY_INLINE void add_values(const Walk& w, const Packed& packed, const Seat& seat) {
  const std::int64_t from = seat.reach.from / kUnit;
  const std::int64_t depth = seat.reach.to / kUnit - from;
  const std::int64_t row_tiles = w.sizes.key_tile / kUnit * kTilePairs;
  const Factors f{.a_part = packed.v_part,
                  .b = packed.p + from * 16 * kPanelRows,
                  .b_part = packed.p_part,
                  .b_step = 16 * kPanelRows,
                  .b_vector = 16,
                  .b_stride_bytes = kPanelBytes};
  float* o = w.state.o + seat.panel * w.sizes.dim_v * kPanelRows;
  take_turns(
      w.sizes.dim_v / kUnit,
      [&](auto set, std::int64_t n) HWY_ATTR {
        constexpr int kSet = decltype(set)::value;
        for_each_accumulator<kSet>(0, seat.vectors, [&](auto tile, int vector) HWY_ATTR {
          tile_load<decltype(tile)::value>(o + n * 16 * kPanelRows + vector * 16, kPanelBytes);
        });
        multiply<Products<T>::kValues, kSet>(f, packed.v + n * row_tiles + from * kTilePairs, depth, 0,
                                             seat.vectors);
      },
      [&](auto set, std::int64_t n) HWY_ATTR {
        for_each_accumulator<decltype(set)::value>(0, seat.vectors, [&](auto tile, int vector) HWY_ATTR {
          tile_store<decltype(tile)::value>(o + n * 16 * kPanelRows + vector * 16, kPanelBytes);
        });
      });
}

/// What turns a plain score into base 2; 0 when scores are changed before the softmax and scaled then.
HWY_INLINE float plain_factor(const Problem& p) {
  const float factor = p.effective_scale() * kLog2e;
  const bool modified = p.mask != MaskKind::none || p.softcap > 0 || p.alibi;
  return !modified && factor > 0 ? factor : 0.0F;
}

/// Scales (unless the scores are plain), changes and hides the scores of a panel.
HWY_INLINE void prepare_scores(const Walk& w, const Packed& packed, const Seat& seat, std::int64_t tile_first,
                               bool plain) {
  const Floats d;
  const Reach<kPanelVectors>& reach = seat.reach;
  if (!plain) {
    const Vec factor = hn::Set(d, w.p.effective_scale() * (w.p.softcap > 0 ? 1 / w.p.softcap : kLog2e));
    for (std::int64_t n = reach.from * kPanelRows; n < reach.to * kPanelRows; n += 16) {
      hn::StoreU(hn::Mul(factor, hn::LoadU(d, packed.scores + n)), d, packed.scores + n);
    }
  }
  const std::int64_t edges[] = {reach.from, reach.whole_from, reach.whole_to, reach.to};
  for (int part = 0; part < 3; ++part) {
    const bool cut = part != 1;
    if (edges[part] == edges[part + 1] || (plain && !cut)) continue;
    modify_scores<0>(w, seat.panel, packed.scores, tile_first, edges[part], edges[part + 1], cut,
                     Panel<kPanelVectors>::splat(-kInfinity));
  }
}

/// Weights of 16 rows: two keys make a pair of each part.
template <class T>
HWY_INLINE void store_weights(Vec a, Vec b, std::uint32_t* to, std::int64_t part_stride) {
  const Words dw;
  if constexpr (kParts<T> == 1) {
    // To nearest, a tie up. A NaN may lose itself, but the row's sum has it too. The conversion instruction
    // and the shuffle that it needs took a third of the time of the weights.
    const WordVec half = hn::Set(dw, 0x8000U);
    const WordVec low = hn::ShiftRight<16>(hn::Add(hn::BitCast(dw, a), half));
    const WordVec high = hn::Add(hn::BitCast(dw, b), half);
    hn::StoreU(hn::OrAnd(low, high, hn::Set(dw, 0xffff0000U)), dw, to);
  } else {
    WordVec low[kParts<T>];
    WordVec high[kParts<T>];
    split_parts(a, low);
    split_parts(b, high);
    for (int i = 0; i < kParts<T>; ++i) hn::StoreU(pair_up(low[i], high[i]), dw, to + i * part_stride);
  }
}

/// A maximum this much (in base 2) above the one that weights refer to changes nothing: they may be as large
/// as 2^8. So the output is hardly ever rescaled after the first tile.
constexpr float kHeadroom = 8;

/// The largest score of 16 rows.
HWY_INLINE Vec highest_score(const float* column, std::int64_t keys) {
  const Floats d;
  Vec high[4];
  for (int n = 0; n < 4; ++n) high[n] = hn::LoadU(d, column + n * kPanelRows);
  for (std::int64_t j = 4; j < keys; j += 4) {
    for (int n = 0; n < 4; ++n) high[n] = hn::Max(high[n], hn::LoadU(d, column + (j + n) * kPanelRows));
  }
  return hn::Max(hn::Max(high[0], high[1]), hn::Max(high[2], high[3]));
}

/// Online softmax of one panel: scores to weights, their sums, and the output made ready for them.
template <class T>
HWY_INLINE void weigh_keys(const Walk& w, const Packed& packed, const Seat& seat, float plain) {
  const Floats d;
  const Reach<kPanelVectors>& reach = seat.reach;
  const Vec factor = hn::Set(d, plain > 0 ? plain : 1.0F);
  const Vec nothing = hn::Set(d, -kInfinity);
  for (int v = 0; v < seat.vectors; ++v) {
    const std::int64_t end = reach.ends[v];
    const std::int64_t row = seat.panel * kPanelRows + v * 16;
    const float* column = packed.scores + v * 16;
    std::uint32_t* to = packed.p + v * 16;
    for (int part = 0; part < kParts<T>; ++part) {
      for (std::int64_t j = end; j < reach.to; j += 2) {
        hn::StoreU(hn::Zero(Words()), Words(), to + part * packed.p_part + j / 2 * kPanelRows);
      }
    }
    if (end == reach.from) continue;
    const Vec highest = hn::Mul(factor, highest_score(column + reach.from * kPanelRows, end - reach.from));
    Vec m = hn::LoadU(d, w.state.m + row);
    Vec l = hn::LoadU(d, w.state.l + row);
    if (!hn::AllFalse(d, hn::Gt(highest, hn::Add(m, hn::Set(d, kHeadroom))))) {
      const Vec old_m = m;
      m = hn::Max(m, highest);
      hn::StoreU(m, d, w.state.m + row);
      // A row that has seen nothing yet: any finite reference will do.
      const Vec reference = hn::IfThenElse(hn::Eq(m, nothing), hn::Zero(d), m);
      const Vec alpha = vector_exp2(d, hn::Sub(old_m, reference));
      l = hn::Mul(l, alpha);
      float* o = w.state.o + seat.panel * kPanelRows * w.sizes.dim_v + v * 16;
      for (std::int64_t c = 0; c < w.sizes.dim_v; ++c) {
        hn::StoreU(hn::Mul(alpha, hn::LoadU(d, o + c * kPanelRows)), d, o + c * kPanelRows);
      }
    }
    m = hn::IfThenElse(hn::Eq(m, nothing), hn::Zero(d), m);
    Vec even = l;
    Vec odd = hn::Zero(d);
    for (std::int64_t j = reach.from; j < end; j += 4) {
      // A product nobody wants: tiles that rest for some 250 ns take as long to wake (4 to 6% of the whole).
      if (j % 64 == 0) tile_multiply_add<0>();
      for (std::int64_t pair = j; pair < j + 4; pair += 2) {
        const Vec a = vector_exp2(d, hn::MulSub(factor, hn::LoadU(d, column + pair * kPanelRows), m));
        const Vec b = vector_exp2(d, hn::MulSub(factor, hn::LoadU(d, column + (pair + 1) * kPanelRows), m));
        even = hn::Add(even, a);
        odd = hn::Add(odd, b);
        store_weights<T>(a, b, to + pair / 2 * kPanelRows, packed.p_part);
      }
    }
    hn::StoreU(hn::Add(even, odd), d, w.state.l + row);
  }
}

/// One panel against one tile of keys. Products and weights take turns on purpose: mixed finely, the vector
/// units run at half their rate for as long as tiles are being multiplied (docs/kernels/cpu.md).
template <class T>
HWY_NOINLINE void attend_panel(const Walk& w, const Packed& packed, std::int64_t panel,
                               std::int64_t tile_first, std::int64_t tile_keys, float plain) {
  const std::int64_t rows = std::min(w.block.rows - panel * kPanelRows, kPanelRows);
  const Seat seat{panel, rows > 16 ? 2 : 1, Reach<kPanelVectors>(w, panel, tile_first, tile_keys, kUnit)};
  const Reach<kPanelVectors>& reach = seat.reach;
  if (reach.empty()) return;
  if (w.p.mask != MaskKind::none && !load_bias(w, panel, tile_first, reach.from, reach.to, tile_keys)) return;
  score_keys<T>(w, packed, seat);
  prepare_scores(w, packed, seat, tile_first, plain > 0);
  weigh_keys<T>(w, packed, seat, plain);
  tile_fence();
  add_values<T>(w, packed, seat);
}

/// Whether all numbers were finite (or need not be); if not, the state is of no use.
template <class T>
HWY_NOINLINE bool attend_typed(const Walk& w, const Packed& packed) {
  const TileScope tiles;
  const std::int64_t panels = (w.block.rows + kPanelRows - 1) / kPanelRows;
  const float plain = plain_factor(w.p);
  FiniteCheck finite;
  pack_queries<T>(w, packed, panels, finite);
  start_rows(w, panels);
  const std::int64_t begin = w.visible(0).begin;
  const std::int64_t end = w.visible(w.block.rows - 1).end;
  for (std::int64_t first = begin; first < end; first += w.sizes.key_tile) {
    const std::int64_t count = std::min(w.sizes.key_tile, end - first);
    pack_keys<T>(w, packed, first, count, finite);
    pack_values<T>(w, packed, first, count, finite);
    tile_fence();
    if (!finite.passed()) return false;
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      attend_panel<T>(w, packed, panel, first, count, plain);
    }
  }
  return true;
}

bool attend_block(const RowBlock& block, const Sizes& sizes, float* scratch, const State& state) {
  const Walk walk(block, sizes, scratch, state);
  return with_dtype(block.problem->dtype, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    const Packed packed(sizes, kParts<T>, reinterpret_cast<std::uint32_t*>(scratch + sizes.scratch));
    return attend_typed<T>(walk, packed);
  });
}

std::int64_t packed_words(const Problem& p, const Sizes& sizes) {
  return with_dtype(p.dtype,
                    [&](auto zero) HWY_ATTR { return Packed(sizes, kParts<decltype(zero)>, nullptr).words; });
}

void split_numbers(const float* from, int parts, float* to) {
  const Words dw;
  const Vec x = hn::LoadU(Floats(), from);
  const auto store = [&](auto& part) HWY_ATTR {
    split_parts(x, part);
    for (const WordVec& words : part) {
      hn::StoreU(words, dw, reinterpret_cast<std::uint32_t*>(to));
      to += 16;
    }
  };
  if (parts == 1) {
    WordVec part[1];
    store(part);
  } else if (parts == 2) {
    WordVec part[2];
    store(part);
  } else {
    WordVec part[3];
    store(part);
  }
}

}  // namespace
}  // namespace saccade::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // SACCADE_HAS_AMX && HWY_TARGET == HWY_AVX3

#if HWY_ONCE
namespace saccade::amx {
#if SACCADE_HAS_AMX

bool compiled() {
  return true;
}
std::int64_t scratch_floats(const Problem& p, const blocked::Sizes& sizes) {
  const blocked::Sizes plain(p, sizes.rows, sizes.key_tile);
  return std::max(sizes.scratch + N_AVX3::packed_words(p, sizes), plain.scratch + plain.state);
}
void attend(const blocked::RowBlock& block, const blocked::Sizes& sizes, float* scratch,
            const blocked::State& state) {
  if (N_AVX3::attend_block(block, sizes, scratch, state)) return;
  const blocked::Sizes plain(*block.problem, sizes.rows, sizes.key_tile);
  const blocked::State other = blocked::state_at(plain, scratch + plain.scratch);
  blocked::attend(block, plain, scratch, other);
  // The same rows in other panels.
  std::copy_n(other.m, block.rows, state.m);
  std::copy_n(other.l, block.rows, state.l);
  for (std::int64_t row = 0; row < block.rows; ++row) {
    const auto at = [row](const blocked::Sizes& s) {
      const std::int64_t in_panel = row % s.panel_rows;
      return (row - in_panel) * s.dim_v + in_panel;
    };
    for (std::int64_t c = 0; c < block.problem->dim_v; ++c) {
      state.o[at(sizes) + c * sizes.panel_rows] = other.o[at(plain) + c * plain.panel_rows];
    }
  }
}
void split(const float* from, int parts, float* to) {
  N_AVX3::split_numbers(from, parts, to);
}

#else

bool compiled() {
  return false;
}
std::int64_t scratch_floats(const Problem&, const blocked::Sizes& sizes) {
  return sizes.scratch;
}
void attend(const blocked::RowBlock& block, const blocked::Sizes& sizes, float* scratch,
            const blocked::State& state) {
  blocked::attend(block, sizes, scratch, state);
}
void split(const float*, int, float*) {}

#endif
}  // namespace saccade::amx
#endif  // HWY_ONCE
