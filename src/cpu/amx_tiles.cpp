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

constexpr std::int64_t kUnit = amx::kUnit;
constexpr int kPanelVectors = 2;
constexpr std::int64_t kPanelRows = kPanelVectors * 16;
static_assert(kPanelRows == amx::kPanelRows);
constexpr std::int64_t kPanelBytes = kPanelRows * 4;
constexpr std::int64_t kTileRowBytes = 64;

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

/// Packed operands and where they lie, in pairs of bf16 numbers. Tiles are contiguous.
struct Packed {
  std::int64_t q_part, k_part, v_part, p_part;  // distance between parts
  std::uint32_t *q;                             // [part][panel][dim / 32][vector] tiles
  std::uint32_t *k;                             // [part][key / 16][dim / 32] tiles
  std::uint32_t *v;                             // [part][dim / 16][key / 32] tiles
  std::uint32_t *p[2];                          // [part][key / 2][panel rows]; two panels take turns
  std::uint32_t *rows;                          // [part][16][largest dim]: on their way to a transposition
  float* scores[2];                             // [32 keys][panel rows]; they take turns
  std::int64_t words;                           // all of it

  HWY_INLINE Packed(const Sizes& s, int parts, std::uint32_t* memory) {
    q_part = s.rows * s.dim_qk / 2;
    k_part = s.key_tile * s.dim_qk / 2;
    v_part = s.key_tile * s.dim_v / 2;
    p_part = s.key_tile * kPanelRows / 2;
    std::uint32_t* at = memory;
    const auto take = [&at](std::int64_t count) {
      std::uint32_t* here = at;
      at += (count + 15) / 16 * 16;
      return here;
    };
    q = take(parts * q_part);
    k = take(parts * k_part);
    v = take(parts * v_part);
    for (auto& buffer : p) buffer = take(parts * p_part);
    rows = take(parts * 16 * std::max(s.dim_qk, s.dim_v));
    for (auto& buffer : scores) buffer = reinterpret_cast<float*>(take(kUnit * kPanelRows));
    words = at - memory;
  }
};

/// Accumulators: tile 2 * row + vector. Calls f(tile, row, vector) for those of the vectors [first, end).
template <class F>
HWY_INLINE void for_each_accumulator(int first, int end, const F& f) {
  if (first == 0) {
    f(std::integral_constant<int, 0>(), 0, 0);
    f(std::integral_constant<int, 2>(), 1, 0);
  }
  if (end == 2) {
    f(std::integral_constant<int, 1>(), 0, 1);
    f(std::integral_constant<int, 3>(), 1, 1);
  }
}

/// A panel and the keys of the tile that it sees.
struct Seat {
  std::int64_t panel = 0;
  int vectors = 0;  ///< of the panel that have rows
  Reach<kPanelVectors> reach;
};

/// A product that can be done in steps, between the vector work of a neighbour. Scores are K q^T, one output of
/// 32 keys; values are o^T += V^T p^T, outputs of 32 columns.
template <class T, bool kValues>
class TileWork {
 public:
  TileWork() = default;
  /// The scores of 32 keys from `key` on.
  static HWY_INLINE TileWork scores(const Walk& w, const Packed& packed, const Seat& seat, std::int64_t key,
                                    float* to) {
    static_assert(!kValues);
    TileWork work;
    work.vectors_ = seat.vectors;
    // Vectors whose rows all end before these keys are left out.
    while (work.first_ + 1 < seat.vectors && seat.reach.ends[work.first_] <= key) ++work.first_;
    work.outputs_ = 1;
    work.depth_ = w.sizes.dim_qk / kUnit;
    work.a_part_ = packed.k_part;
    work.a_row_ = work.depth_ * kTilePairs;
    work.a_ = packed.k + key / 16 * work.a_row_;
    work.b_part_ = packed.q_part;
    work.b_ = packed.q + seat.panel * kPanelRows * w.sizes.dim_qk / 2;
    work.out_ = to;
    return work;
  }
  /// The values of keys [from, to), of all columns.
  static HWY_INLINE TileWork values(const Walk& w, const Packed& packed, const Seat& seat, std::int64_t from,
                                    std::int64_t to, const std::uint32_t* weights) {
    static_assert(kValues);
    TileWork work;
    work.vectors_ = seat.vectors;
    work.outputs_ = from < to ? w.sizes.dim_v / kUnit : 0;
    work.depth_ = (to - from) / kUnit;
    work.a_part_ = packed.v_part;
    work.a_row_ = w.sizes.key_tile / kUnit * kTilePairs;
    work.a_ = packed.v + from / kUnit * kTilePairs;
    work.b_part_ = packed.p_part;
    work.b_ = weights + from / 2 * kPanelRows;
    work.out_ = w.state.o + seat.panel * w.sizes.dim_v * kPanelRows;
    return work;
  }

  [[nodiscard]] HWY_INLINE std::int64_t outputs() const { return outputs_; }
  [[nodiscard]] HWY_INLINE std::int64_t steps() const { return outputs_ * depth_ * kPairs; }
  [[nodiscard]] HWY_INLINE bool done() const { return outputs_ == 0; }

  /// Leaves all but the first `count` outputs to the result.
  HWY_INLINE TileWork split_off(std::int64_t count) {
    TileWork rest = *this;
    outputs_ = std::min(count, outputs_);
    rest.outputs_ -= outputs_;
    rest.a_ += outputs_ * 2 * a_row_;
    rest.out_ += outputs_ * kUnit * kPanelRows;
    return rest;
  }

  HWY_INLINE void step() {
    if (pair_ == 0 && step_ == 0) start_output();
    constexpr auto& kProducts = Table::kProducts;
    const int at = kPairs == 1 ? 0 : pair_;
    const PartPair pair = kProducts[at];
    const PartPair before = kProducts[std::max(at - 1, 0)];
    if (at == 0 || before.a != pair.a) {
      const std::uint32_t* a = a_ + pair.a * a_part_ + step_ * kTilePairs;
      tile_load<kFactorA>(a, kTileRowBytes);
      tile_load<kFactorA + 1>(a + a_row_, kTileRowBytes);
    }
    if (at == 0 || before.b != pair.b) {
      constexpr std::int64_t kStep = kValues ? 16 * kPanelRows : kPanelVectors * kTilePairs;
      constexpr std::int64_t kStride = kValues ? kPanelBytes : kTileRowBytes;
      const std::uint32_t* b = b_ + pair.b * b_part_ + step_ * kStep;
      if (first_ == 0) tile_load<kFactorB>(b, kStride);
      if (vectors_ == 2) tile_load<kFactorB + 1>(b + (kValues ? 16 : kTilePairs), kStride);
    }
    for_each_accumulator(first_, vectors_, [](auto tile, int, int) HWY_ATTR {
      tile_multiply_add<decltype(tile)::value>();
    });
    if (++pair_ < kPairs) return;
    pair_ = 0;
    if (++step_ < depth_) return;
    step_ = 0;
    end_output();
  }
  HWY_INLINE void finish() {
    while (!done()) step();
  }

 private:
  struct ScoreTable {
    static constexpr auto& kProducts = Products<T>::kScores;
  };
  struct ValueTable {
    static constexpr auto& kProducts = Products<T>::kValues;
  };
  using Table = std::conditional_t<kValues, ValueTable, ScoreTable>;
  static constexpr int kPairs = std::size(Table::kProducts);

  HWY_INLINE void start_output() {
    for_each_accumulator(first_, vectors_, [&](auto tile, int row, int vector) HWY_ATTR {
      if constexpr (kValues) {
        tile_load<decltype(tile)::value>(out_ + row * 16 * kPanelRows + vector * 16, kPanelBytes);
      } else {
        tile_zero<decltype(tile)::value>();
      }
    });
  }
  HWY_INLINE void end_output() {
    for_each_accumulator(first_, vectors_, [&](auto tile, int row, int vector) HWY_ATTR {
      tile_store<decltype(tile)::value>(out_ + row * 16 * kPanelRows + vector * 16, kPanelBytes);
    });
    out_ += kUnit * kPanelRows;
    a_ += 2 * a_row_;
    --outputs_;
  }

  int first_ = 0, vectors_ = 0, pair_ = 0;
  std::int64_t step_ = 0, depth_ = 0, outputs_ = 0;
  const std::uint32_t* a_ = nullptr;
  const std::uint32_t* b_ = nullptr;
  std::int64_t a_part_ = 0, b_part_ = 0, a_row_ = 0;
  float* out_ = nullptr;
};

/// Tile work to be spread over a stretch of vector work.
template <class T>
class Companion {
 public:
  HWY_INLINE Companion(TileWork<T, true> values, TileWork<T, false> scores, std::int64_t calls)
      : values_(values), scores_(scores), rate_(values.steps() + scores.steps()), calls_(calls) {}
  /// To be called `calls` times.
  HWY_INLINE void advance() {
    for (credit_ += rate_; credit_ >= calls_; credit_ -= calls_) {
      if (!values_.done()) {
        values_.step();
      } else if (!scores_.done()) {
        scores_.step();
      }
    }
  }
  HWY_INLINE void finish() {
    values_.finish();
    scores_.finish();
  }

 private:
  TileWork<T, true> values_;
  TileWork<T, false> scores_;
  std::int64_t rate_, calls_;
  std::int64_t credit_ = 0;
};

template <class T>
HWY_INLINE void pack_queries(const Walk& w, const Packed& packed, std::int64_t panels, FiniteCheck& finite) {
  const std::int64_t dim = w.sizes.dim_qk;
  const std::int64_t pairs = dim / 2;
  for (std::int64_t first = 0; first < panels * kPanelRows; first += 16) {
    for (std::int64_t r = 0; r < 16; ++r) {
      const std::int64_t row = first + r;
      const T* from = row < w.block.rows
                          ? static_cast<const T*>(w.t.q) + query_offset(w.p, w.p.q, w.block.sequence,
                                                                        w.head(row), w.query(row))
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

/// What turns a plain score into base 2; 0 when scores are changed before the softmax and scaled then.
HWY_INLINE float plain_factor(const Problem& p) {
  const float factor = p.effective_scale() * kLog2e;
  const bool modified = p.mask != MaskKind::none || p.softcap > 0 || p.alibi;
  return !modified && factor > 0 ? factor : 0.0F;
}

/// Scales (unless the scores are plain), changes and hides the scores of a panel's 32 keys from `key` on.
HWY_INLINE void prepare_scores(const Walk& w, const Seat& seat, std::int64_t tile_first, std::int64_t key,
                               float* scores) {
  const Floats d;
  const Reach<kPanelVectors>& reach = seat.reach;
  const bool plain = plain_factor(w.p) > 0;
  const bool cut = key < reach.whole_from || key >= reach.whole_to;
  if (plain && !cut) return;
  if (!plain) {
    const Vec factor = hn::Set(d, w.p.effective_scale() * (w.p.softcap > 0 ? 1 / w.p.softcap : kLog2e));
    for (std::int64_t n = 0; n < kUnit * kPanelRows; n += 16) {
      hn::StoreU(hn::Mul(factor, hn::LoadU(d, scores + n)), d, scores + n);
    }
  }
  modify_scores<0>(w, seat.panel, scores - key * kPanelRows, tile_first, key, key + kUnit, cut,
                   Panel<kPanelVectors>::splat(-kInfinity));
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

/// A maximum this much (in base 2) above the one that weights refer to changes nothing: they may be as large as
/// 2^8. So the output is hardly ever rescaled after the first tile.
constexpr float kHeadroom = 8;
constexpr std::int64_t kKeysPerCall = 4;  ///< between two looks at the tiles

/// The largest score of 16 rows among 32 keys.
HWY_INLINE Vec highest_score(const float* column) {
  const Floats d;
  Vec high[4];
  for (int n = 0; n < 4; ++n) high[n] = hn::LoadU(d, column + n * kPanelRows);
  for (std::int64_t j = 4; j < kUnit; j += 4) {
    for (int n = 0; n < 4; ++n) high[n] = hn::Max(high[n], hn::LoadU(d, column + (j + n) * kPanelRows));
  }
  return hn::Max(hn::Max(high[0], high[1]), hn::Max(high[2], high[3]));
}

/// Moves the reference of the panel's weights up to its largest score.
HWY_NOINLINE void raise_reference(const Walk& w, const Seat& seat, const Vec (&highest)[kPanelVectors]) {
  const Floats d;
  const std::int64_t first_row = seat.panel * kPanelRows;
  for (int v = 0; v < seat.vectors; ++v) {
    const Vec old_m = hn::LoadU(d, w.state.m + first_row + v * 16);
    const Vec m = hn::Max(old_m, highest[v]);
    hn::StoreU(m, d, w.state.m + first_row + v * 16);
    // A row that has seen nothing yet: any finite reference will do.
    const Vec reference = hn::IfThenElse(hn::Eq(m, hn::Set(d, -kInfinity)), hn::Zero(d), m);
    const Vec alpha = vector_exp2(d, hn::Sub(old_m, reference));
    float* l = w.state.l + first_row + v * 16;
    hn::StoreU(hn::Mul(alpha, hn::LoadU(d, l)), d, l);
    float* o = w.state.o + first_row * w.sizes.dim_v + v * 16;
    for (std::int64_t c = 0; c < w.sizes.dim_v; ++c) {
      hn::StoreU(hn::Mul(alpha, hn::LoadU(d, o + c * kPanelRows)), d, o + c * kPanelRows);
    }
  }
}

/// Online softmax over a panel's 32 keys from `key` on: scores to weights, and their sums. Weights from
/// `weighed` on have not met the values yet; that many must before the reference can move.
template <class T>
HWY_NOINLINE void weigh_keys(const Walk& w, const Packed& packed, const Seat& seat, std::int64_t key,
                             const float* scores, std::uint32_t* weights, std::int64_t& weighed,
                             Companion<T>& companion) {
  const Floats d;
  const std::int64_t first_row = seat.panel * kPanelRows;
  const float plain = plain_factor(w.p);
  const Vec factor = hn::Set(d, plain > 0 ? plain : 1.0F);
  Vec highest[kPanelVectors];
  bool rises = false;
  int first = 0;
  for (int v = 0; v < seat.vectors; ++v) {
    highest[v] = hn::Set(d, -kInfinity);
    if (seat.reach.ends[v] <= key) {
      first = v + 1;
      continue;
    }
    highest[v] = hn::Mul(factor, highest_score(scores + v * 16));
    const Vec m = hn::LoadU(d, w.state.m + first_row + v * 16);
    rises |= !hn::AllFalse(d, hn::Gt(highest[v], hn::Add(m, hn::Set(d, kHeadroom))));
  }
  if (rises) {
    TileWork<T, true>::values(w, packed, seat, weighed, key, weights).finish();
    weighed = key;
    raise_reference(w, seat, highest);
    tile_fence();
  }
  std::uint32_t* to = weights + key / 2 * kPanelRows;
  for (int v = 0; v < first; ++v) {
    for (int part = 0; part < kParts<T>; ++part) {
      for (std::int64_t j = 0; j < kUnit / 2; ++j) {
        hn::StoreU(hn::Zero(Words()), Words(), to + part * packed.p_part + j * kPanelRows + v * 16);
      }
    }
  }
  for (int v = first; v < seat.vectors; ++v) {
    Vec m = hn::LoadU(d, w.state.m + first_row + v * 16);
    m = hn::IfThenElse(hn::Eq(m, hn::Set(d, -kInfinity)), hn::Zero(d), m);
    const float* column = scores + v * 16;
    Vec even = hn::LoadU(d, w.state.l + first_row + v * 16);
    Vec odd = hn::Zero(d);
    for (std::int64_t j = 0; j < kUnit; j += kKeysPerCall) {
      for (std::int64_t pair = j; pair < j + kKeysPerCall; pair += 2) {
        const Vec a = vector_exp2(d, hn::MulSub(factor, hn::LoadU(d, column + pair * kPanelRows), m));
        const Vec b = vector_exp2(d, hn::MulSub(factor, hn::LoadU(d, column + (pair + 1) * kPanelRows), m));
        even = hn::Add(even, a);
        odd = hn::Add(odd, b);
        store_weights<T>(a, b, to + pair / 2 * kPanelRows + v * 16, packed.p_part);
      }
      companion.advance();
    }
    hn::StoreU(hn::Add(even, odd), d, w.state.l + first_row + v * 16);
  }
  companion.finish();
  tile_fence();
}

/// One tile of keys against all panels, 32 keys of a panel at a time: while the vectors weigh these, the tiles
/// score the next and add the values of the panel before.
template <class T>
HWY_INLINE void attend_tile(const Walk& w, const Packed& packed, std::int64_t panels, std::int64_t tile_first,
                            std::int64_t tile_keys) {
  using Scores = TileWork<T, false>;
  using Values = TileWork<T, true>;
  const auto take_seat = [&](std::int64_t panel, Seat& seat) HWY_ATTR {
    for (; panel < panels; ++panel) {
      const std::int64_t rows = std::min(w.block.rows - panel * kPanelRows, kPanelRows);
      seat = {panel, static_cast<int>((rows + 15) / 16),
              Reach<kPanelVectors>(w, panel, tile_first, tile_keys, kUnit)};
      if (!seat.reach.empty()) return true;
    }
    return false;
  };
  Seat seats[2];
  bool present = take_seat(0, seats[0]);
  int turn = 0;  // of the buffers for scores
  if (present) Scores::scores(w, packed, seats[0], seats[0].reach.from, packed.scores[0]).finish();
  Values values;
  for (int n = 0; present; n = 1 - n) {
    const Seat& seat = seats[n];
    Seat& next = seats[1 - n];
    const Reach<kPanelVectors>& reach = seat.reach;
    present = take_seat(seat.panel + 1, next);
    if (w.p.mask != MaskKind::none &&
        !load_bias(w, seat.panel, tile_first, reach.from, reach.to, tile_keys)) {
      values.finish();
      values = Values();
      if (present) Scores::scores(w, packed, next, next.reach.from, packed.scores[turn]).finish();
      continue;
    }
    std::int64_t weighed = reach.from;
    for (std::int64_t key = reach.from; key < reach.to; key += kUnit) {
      float* scores = packed.scores[turn];
      turn = 1 - turn;
      const bool last = key + kUnit == reach.to;
      const std::int64_t rounds = (reach.to - key) / kUnit;
      Values some = values;
      values = some.split_off((values.outputs() + rounds - 1) / rounds);
      Scores following;
      if (!last) following = Scores::scores(w, packed, seat, key + kUnit, packed.scores[turn]);
      if (last && present) following = Scores::scores(w, packed, next, next.reach.from, packed.scores[turn]);
      prepare_scores(w, seat, tile_first, key, scores);
      int vectors = 0;
      for (int v = 0; v < seat.vectors; ++v) vectors += reach.ends[v] > key ? 1 : 0;
      Companion<T> companion(some, following, vectors * kUnit / kKeysPerCall);
      weigh_keys<T>(w, packed, seat, key, scores, packed.p[n], weighed, companion);
    }
    values = Values::values(w, packed, seat, weighed, reach.to, packed.p[n]);
  }
  values.finish();
}

/// Whether all numbers were finite (or need not be); if not, the state is of no use.
template <class T>
HWY_NOINLINE bool attend_typed(const Walk& w, const Packed& packed) {
  const TileScope tiles;
  const std::int64_t panels = (w.block.rows + kPanelRows - 1) / kPanelRows;
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
    attend_tile<T>(w, packed, panels, first, count);
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
  return with_dtype(p.dtype, [&](auto zero) HWY_ATTR {
    return Packed(sizes, kParts<decltype(zero)>, nullptr).words;
  });
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
