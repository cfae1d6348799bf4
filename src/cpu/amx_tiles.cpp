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
constexpr std::int64_t kPanelRows = kVectors * 16;
constexpr std::int64_t kPanelBytes = kPanelRows * 4;
constexpr std::int64_t kTileRowBytes = 64;

/// Products of parts that are worth their time, the smallest first, so that small sums meet large ones late.
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
struct Products<F16> {  // all of them for the scores, which are then exact products; weights have 16 bits
  static constexpr PartPair kScores[] = {{1, 1}, {0, 1}, {1, 0}, {0, 0}};
  static constexpr PartPair kValues[] = {{0, 1}, {1, 0}, {0, 0}};
};
template <>
struct Products<float> {  // what is left out is 2^-24 of the whole
  static constexpr PartPair kScores[] = {{0, 2}, {1, 1}, {2, 0}, {0, 1}, {1, 0}, {0, 0}};
  static constexpr PartPair kValues[] = {{0, 2}, {1, 1}, {2, 0}, {0, 1}, {1, 0}, {0, 0}};
};

/// Packed operands and where they lie, in pairs of bf16 numbers. Tiles are contiguous.
struct Packed {
  std::int64_t q_part, k_part, v_part, p_part;  // distance between parts
  std::uint32_t *q;                             // [part][panel][dim / 32][vector] tiles
  std::uint32_t *k;                             // [part][key / 16][dim / 32] tiles
  std::uint32_t *v;                             // [part][dim / 16][key / 32] tiles
  std::uint32_t *p[2];                          // [part][key / 2][panel rows]; two panels take turns
  std::uint32_t *rows;                          // [part][16][largest dim]: on their way to a transposition
  float* scores[2];                             // [key][panel rows]
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
    for (auto& buffer : scores) buffer = reinterpret_cast<float*>(take(s.key_tile * kPanelRows));
    words = at - memory;
  }
};

/// One step of a product: two tiles of factor a against the vectors [first, end) of factor b.
HWY_INLINE void multiply_step(const std::uint32_t* a, std::int64_t a_tile, const std::uint32_t* b,
                              std::int64_t b_vector, std::int64_t b_stride, int first, int end) {
  const auto against = [&](auto row) HWY_ATTR {
    constexpr int kRow = decltype(row)::value;
    tile_load<kFactorA>(a + kRow * a_tile, kTileRowBytes);
    if (first <= 0) {
      tile_load<kFactorB>(b, b_stride);
      tile_multiply_add<3 * kRow>();
    }
    if (first <= 1 && end > 1) {
      tile_load<kFactorB>(b + b_vector, b_stride);
      tile_multiply_add<3 * kRow + 1>();
    }
    if (end > 2) {
      tile_load<kFactorB>(b + 2 * b_vector, b_stride);
      tile_multiply_add<3 * kRow + 2>();
    }
  };
  against(std::integral_constant<int, 0>());
  against(std::integral_constant<int, 1>());
}

/// Calls f<accumulator>(row tile, vector) for the accumulators that multiply_step used.
template <class F>
HWY_INLINE void for_each_accumulator(int first, int end, const F& f) {
  if (first <= 0) {
    f(std::integral_constant<int, 0>(), 0, 0);
    f(std::integral_constant<int, 3>(), 1, 0);
  }
  if (first <= 1 && end > 1) {
    f(std::integral_constant<int, 1>(), 0, 1);
    f(std::integral_constant<int, 4>(), 1, 1);
  }
  if (end > 2) {
    f(std::integral_constant<int, 2>(), 0, 2);
    f(std::integral_constant<int, 5>(), 1, 2);
  }
}

/// A panel and the keys of the tile that it sees.
struct Seat {
  std::int64_t panel = 0;
  int vectors = 0;  ///< of the panel that have rows
  Reach<kVectors> reach;
};

/// The tile work of a panel that can be done in steps, between the vector work of its neighbour: scores
/// (K q^T, 32 keys at a time), or values (o^T += V^T p^T, 32 columns at a time).
template <class T>
class TileWork {
 public:
  static HWY_INLINE TileWork scores(const Walk& w, const Packed& packed, const Seat& seat, int buffer) {
    TileWork work(seat, packed);
    work.depth_ = w.sizes.dim_qk / kUnit;
    work.a_ = packed.k;
    work.a_row_ = work.depth_ * kTilePairs;
    work.a_step_ = kTilePairs;
    work.b_ = packed.q + seat.panel * kPanelRows * w.sizes.dim_qk / 2;
    work.b_step_ = kVectors * kTilePairs;
    work.unit_ = seat.reach.from / kUnit;
    work.last_unit_ = seat.reach.to / kUnit;
    work.out_ = packed.scores[buffer];
    return work;
  }
  static HWY_INLINE TileWork values(const Walk& w, const Packed& packed, const Seat& seat, int buffer) {
    TileWork work(seat, packed);
    work.is_values_ = true;
    const std::int64_t from = seat.reach.from / kUnit;
    work.depth_ = seat.reach.to / kUnit - from;
    work.a_ = packed.v + from * kTilePairs;
    work.a_row_ = w.sizes.key_tile / kUnit * kTilePairs;
    work.a_step_ = kTilePairs;
    work.b_ = packed.p[buffer] + from * 16 * kPanelRows;
    work.b_step_ = 16 * kPanelRows;
    work.unit_ = 0;
    work.last_unit_ = w.sizes.dim_v / kUnit;
    work.out_ = w.state.o + seat.panel * w.sizes.dim_v * kPanelRows;
    return work;
  }

  TileWork() = default;
  [[nodiscard]] HWY_INLINE std::int64_t steps() const {
    return (last_unit_ - unit_) * depth_ * (is_values_ ? kValuePairs : kScorePairs);
  }
  [[nodiscard]] HWY_INLINE bool done() const { return unit_ >= last_unit_; }

  HWY_INLINE void step() {
    if (pair_ == 0 && step_ == 0) start_unit();
    const PartPair pair = is_values_ ? Products<T>::kValues[pair_] : Products<T>::kScores[pair_];
    const std::uint32_t* a =
        a_ + pair.a * (is_values_ ? packed_->v_part : packed_->k_part) + 2 * unit_ * a_row_ + step_ * a_step_;
    const std::uint32_t* b = b_ + pair.b * (is_values_ ? packed_->p_part : packed_->q_part) + step_ * b_step_;
    if (is_values_) {
      multiply_step(a, a_row_, b, 16, kPanelBytes, 0, seat_->vectors);
    } else {
      multiply_step(a, a_row_, b, kTilePairs, kTileRowBytes, first_, seat_->vectors);
    }
    if (++step_ < depth_) return;
    step_ = 0;
    if (++pair_ < (is_values_ ? kValuePairs : kScorePairs)) return;
    pair_ = 0;
    end_unit();
    ++unit_;
  }

 private:
  static constexpr int kScorePairs = std::size(Products<T>::kScores);
  static constexpr int kValuePairs = std::size(Products<T>::kValues);

  HWY_INLINE TileWork(const Seat& seat, const Packed& packed) : seat_(&seat), packed_(&packed) {}

  [[nodiscard]] HWY_INLINE float* output(int row, int vector) const {
    return out_ + (unit_ * kUnit + row * 16) * kPanelRows + vector * 16;
  }
  HWY_INLINE void start_unit() {
    if (is_values_) {
      for_each_accumulator(0, seat_->vectors, [&](auto tile, int row, int vector) HWY_ATTR {
        tile_load<decltype(tile)::value>(output(row, vector), kPanelBytes);
      });
      return;
    }
    // Vectors whose rows all end before these keys are left out.
    first_ = 0;
    while (first_ + 1 < seat_->vectors && seat_->reach.ends[first_] <= unit_ * kUnit) ++first_;
    for_each_accumulator(first_, seat_->vectors,
                         [](auto tile, int, int) HWY_ATTR { tile_zero<decltype(tile)::value>(); });
  }
  HWY_INLINE void end_unit() {
    for_each_accumulator(is_values_ ? 0 : first_, seat_->vectors, [&](auto tile, int row, int vector) HWY_ATTR {
      tile_store<decltype(tile)::value>(output(row, vector), kPanelBytes);
    });
  }

  const Seat* seat_ = nullptr;
  const Packed* packed_ = nullptr;
  bool is_values_ = false;
  int first_ = 0, pair_ = 0;
  std::int64_t step_ = 0, depth_ = 0, unit_ = 0, last_unit_ = 0;
  const std::uint32_t* a_ = nullptr;
  const std::uint32_t* b_ = nullptr;
  std::int64_t a_row_ = 0, a_step_ = 0, b_step_ = 0;
  float* out_ = nullptr;
};

/// Tile work to be spread over a stretch of vector work.
template <class T>
class Companion {
 public:
  HWY_INLINE Companion(TileWork<T> first, TileWork<T> second, std::int64_t calls)
      : work_{first, second}, rate_(first.steps() + second.steps()), calls_(calls) {}
  /// To be called `calls` times.
  HWY_INLINE void advance() {
    for (credit_ += rate_; credit_ >= calls_; credit_ -= calls_) step();
  }
  HWY_INLINE void finish() {
    while (at_ < 2) step();
  }

 private:
  HWY_INLINE void step() {
    while (at_ < 2 && work_[at_].done()) ++at_;
    if (at_ < 2) work_[at_].step();
  }
  TileWork<T> work_[2];
  std::int64_t rate_, calls_;
  std::int64_t credit_ = 0;
  int at_ = 0;
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
                           (c * kVectors + vector) * kTilePairs);
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

/// Scales (unless the scores are plain), changes and hides the scores of a panel.
HWY_INLINE void prepare_scores(const Walk& w, const Seat& seat, std::int64_t tile_first, float* scores) {
  const Floats d;
  const Reach<kVectors>& reach = seat.reach;
  const bool plain = plain_factor(w.p) > 0;
  if (!plain) {
    const Vec factor =
        hn::Set(d, w.p.effective_scale() * (w.p.softcap > 0 ? 1 / w.p.softcap : kLog2e));
    for (std::int64_t n = reach.from * kPanelRows; n < reach.to * kPanelRows; n += 16) {
      hn::StoreU(hn::Mul(factor, hn::LoadU(d, scores + n)), d, scores + n);
    }
  }
  for_each_stretch(reach.from, reach.ends, [&](auto first, std::int64_t begin, std::int64_t end) HWY_ATTR {
    const std::int64_t edges[] = {begin, std::clamp(reach.whole_from, begin, end),
                                  std::clamp(reach.whole_to, begin, end), end};
    for (int part = 0; part < 3; ++part) {
      const bool cut = part != 1;
      if (edges[part] == edges[part + 1] || (plain && !cut)) continue;
      modify_scores<first>(w, seat.panel, scores, tile_first, edges[part], edges[part + 1], cut,
                           Panel<kVectors>::splat(-kInfinity));
    }
  });
}

/// Weights of 16 rows: two keys make a pair of each part.
template <class T>
HWY_INLINE void store_weights(Vec a, Vec b, std::uint32_t* to, std::int64_t part_stride) {
  const Words dw;
  if constexpr (kParts<T> == 1) {
    // Rounded to nearest; the instruction leaves the pairs' halves in separate halves of the register.
    const __m512i interleave = _mm512_set_epi16(
        31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17,
        1, 16, 0);
    const __m512i halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b.raw, a.raw));
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(interleave, halves));
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

/// Online softmax of one panel: scores to weights, sums, and the output made ready for them.
template <class T>
HWY_NOINLINE void weigh_panel(const Walk& w, const Packed& packed, const Seat& seat, int buffer,
                              Companion<T>& companion) {
  const Floats d;
  const Reach<kVectors>& reach = seat.reach;
  const std::int64_t first_row = seat.panel * kPanelRows;
  const float* scores = packed.scores[buffer];
  const float plain = plain_factor(w.p);
  const Vec factor = hn::Set(d, plain > 0 ? plain : 1.0F);
  for (int v = 0; v < seat.vectors; ++v) {
    const std::int64_t end = reach.ends[v];
    const float* column = scores + v * 16;
    Vec highest = hn::Set(d, -kInfinity);
    Vec other = highest;
    for (std::int64_t j = reach.from; j < end; j += 2) {
      highest = hn::Max(highest, hn::LoadU(d, column + j * kPanelRows));
      other = hn::Max(other, hn::LoadU(d, column + (j + 1) * kPanelRows));
    }
    highest = hn::Mul(factor, hn::Max(highest, other));
    const Vec old_m = hn::LoadU(d, w.state.m + first_row + v * 16);
    Vec l = hn::LoadU(d, w.state.l + first_row + v * 16);
    Vec m = old_m;
    if (!hn::AllFalse(d, hn::Gt(highest, hn::Add(old_m, hn::Set(d, kHeadroom))))) {
      m = hn::Max(old_m, highest);
      hn::StoreU(m, d, w.state.m + first_row + v * 16);
      // A row that has seen nothing yet: any finite reference will do.
      const Vec reference = hn::IfThenElse(hn::Eq(m, hn::Set(d, -kInfinity)), hn::Zero(d), m);
      const Vec alpha = vector_exp2(d, hn::Sub(old_m, reference));
      l = hn::Mul(l, alpha);
      float* o = w.state.o + first_row * w.sizes.dim_v + v * 16;
      for (std::int64_t c = 0; c < w.sizes.dim_v; ++c) {
        hn::StoreU(hn::Mul(alpha, hn::LoadU(d, o + c * kPanelRows)), d, o + c * kPanelRows);
      }
    }
    m = hn::IfThenElse(hn::Eq(m, hn::Set(d, -kInfinity)), hn::Zero(d), m);
    std::uint32_t* to = packed.p[buffer] + v * 16;
    Vec even = hn::Zero(d);
    Vec odd = even;
    for (std::int64_t j = reach.from; j < end; j += kKeysPerCall) {
      for (std::int64_t pair = j; pair < j + kKeysPerCall; pair += 2) {
        const Vec a = vector_exp2(d, hn::MulSub(factor, hn::LoadU(d, column + pair * kPanelRows), m));
        const Vec b = vector_exp2(d, hn::MulSub(factor, hn::LoadU(d, column + (pair + 1) * kPanelRows), m));
        even = hn::Add(even, a);
        odd = hn::Add(odd, b);
        store_weights<T>(a, b, to + pair / 2 * kPanelRows, packed.p_part);
      }
      companion.advance();
    }
    hn::StoreU(hn::Add(l, hn::Add(even, odd)), d, w.state.l + first_row + v * 16);
    for (int part = 0; part < kParts<T>; ++part) {
      for (std::int64_t j = end; j < reach.to; j += 2) {
        hn::StoreU(hn::Zero(Words()), Words(), to + part * packed.p_part + j / 2 * kPanelRows);
      }
    }
  }
}

/// One tile of keys against all panels: while the vectors weigh one panel's scores, the tiles add the values of
/// the one before and score the one after.
template <class T>
HWY_INLINE void attend_tile(const Walk& w, const Packed& packed, std::int64_t panels, std::int64_t tile_first,
                            std::int64_t tile_keys) {
  const auto take_seat = [&](std::int64_t panel, Seat& seat) HWY_ATTR {
    for (; panel < panels; ++panel) {
      const std::int64_t rows = std::min(w.block.rows - panel * kPanelRows, kPanelRows);
      seat = {panel, static_cast<int>((rows + 15) / 16),
              Reach<kVectors>(w, panel, tile_first, tile_keys, kUnit)};
      if (!seat.reach.empty()) return true;
    }
    return false;
  };
  Seat seats[3];
  std::int64_t turn = 0;
  bool present = take_seat(0, seats[0]);
  if (present) Companion<T>(TileWork<T>::scores(w, packed, seats[0], 0), TileWork<T>(), 1).finish();
  TileWork<T> values;
  for (; present; ++turn) {
    const Seat& seat = seats[turn % 3];
    const int buffer = static_cast<int>(turn % 2);
    Seat& next = seats[(turn + 1) % 3];
    present = take_seat(seat.panel + 1, next);
    const TileWork<T> scores =
        present ? TileWork<T>::scores(w, packed, next, 1 - buffer) : TileWork<T>();
    std::int64_t calls = 0;
    for (int v = 0; v < seat.vectors; ++v) calls += (seat.reach.ends[v] - seat.reach.from) / kKeysPerCall;
    Companion<T> companion(values, scores, calls);
    const Reach<kVectors>& reach = seat.reach;
    if (w.p.mask == MaskKind::none || load_bias(w, seat.panel, tile_first, reach.from, reach.to, tile_keys)) {
      prepare_scores(w, seat, tile_first, packed.scores[buffer]);
      weigh_panel<T>(w, packed, seat, buffer, companion);
      values = TileWork<T>::values(w, packed, seat, buffer);
    } else {
      values = TileWork<T>();
    }
    companion.finish();
    tile_fence();
  }
  Companion<T>(values, TileWork<T>(), 1).finish();
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
  return sizes.scratch + N_AVX3::packed_words(p, sizes);
}
void attend(const blocked::RowBlock& block, const blocked::Sizes& sizes, float* scratch,
            const blocked::State& state) {
  if (!N_AVX3::attend_block(block, sizes, scratch, state)) blocked::attend(block, sizes, scratch, state);
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
