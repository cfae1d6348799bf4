// 64 query rows of a warpgroup, or 32, against tiles of keys and values in shared memory: both products by
// wgmma, which run on their own; scores, weights and outputs in registers.
//
// Queries, keys and values lie in boxes (tile/boxes.h). Warp w of the four has rows 16 w.., as tile/scores.h
// says: with g = lane / 4, a lane holds pairs of neighbouring keys (columns) of rows g and g + 8. Of 32 rows,
// warp w has 8 w..: rows g + 8 of its products are other rows, that nobody looks at, so that all four warps
// share the work on these.
#pragma once

#include "cuda/ptx/ldmatrix.h"
#include "cuda/ptx/mma.h"
#include "cuda/ptx/wgmma.h"
#include "cuda/tile/boxes.h"
#include "cuda/tile/scores.h"

namespace saccade::SACCADE_MACHINE::tile {

/// Whether rows get a base from a sample of a tile's scores before weights are computed boldly.
enum class Sample : std::uint8_t { always, if_needed, never };

/// T: F16 or BF16; kDimQk and kDimV: of keys and of values; kKeys: of a tile; kBold: weights are computed
/// before it is known that none is too large; kWarpRows: 16 or 8; kHeld: queries are kept in registers
/// (take_queries()), and the descriptors and pointers of queries are not looked at; kAhead: scores are taken
/// away from where the next ones come. A tile's way: start_scores(), a wait, weigh(), then take_weights()
/// once no product reads weights any more, start_values(). The caller waits.
template <class T, int kDimQk, int kDimV, int kKeys, bool kBold, int kWarpRows, bool kHeld = false,
          bool kAhead = false>
class WarpgroupRows {
  static constexpr int kHalves = kWarpRows / 8;  ///< rows of a lane

 public:
  using Queries = QueryBoxes<kWarpRows>;

  /// Forgets everything: the rows are others now.
  SACCADE_DEVICE void begin() {
    SACCADE_UNROLL
    for (RowState& state : state_) state = {};
    based_ = false;
    SACCADE_UNROLL
    for (float& x : o_) x = 0;
    if constexpr (kAhead) {
      SACCADE_UNROLL
      for (float& x : taken_sum_) x = 0;
    }
  }
  /// Takes the queries to registers, with kHeld.
  SACCADE_DEVICE void take_queries(ptx::SharedPointer<T> queries) {
    SACCADE_UNROLL
    for (int c = 0; c < kDimQk / 16; ++c) load_queries(q_[c], queries, c);
  }
  /// Starts the products of queries and keys (Boxes::by_rows), as a group.
  SACCADE_DEVICE void start_scores(std::uint64_t queries, std::uint64_t keys) {
    // Costs nothing, and says that they are new: ptxas would serialise products whose registers are half
    // unused.
    SACCADE_UNROLL
    for (float& x : s_) x = 0;
    ptx::fence_products();
    SACCADE_UNROLL
    for (int c = 0; c < kDimQk / 16; ++c) multiply_columns(c, queries, keys);
    ptx::commit_products();
  }
  /// Starts adding the weighted values (Boxes::by_columns) of one of kSlices slices of the tile, as a group.
  template <int kSlice = 0, int kSlices = 1>
  SACCADE_DEVICE void start_values(std::uint64_t values) {
    constexpr int kSteps = kKeys / 16 / kSlices;
    ptx::fence_products();
    SACCADE_UNROLL
    for (int j = kSlice * kSteps; j < (kSlice + 1) * kSteps; ++j)
      ptx::warpgroup_multiply<T, kDimV, ptx::Major::mn>(o_, weights_[j], Boxes<kKeys>::rows(values, j), true);
    ptx::commit_products();
  }

  /// Turns the scores, which are there, into weights relative to the row's base. `change` is what changes and
  /// hides scores (PlainScores and the like), `row` this warp's first row, `first_key` the tile's first key,
  /// `masked` whether some of them are hidden from some row. With kBold the queries and keys are still there,
  /// and the first tile is sampled; what others do that find rows without a base is kSample's to say: most
  /// find none, and go faster without the question (0.5 to 3%).
  template <Sample kSample, class Change>
  SACCADE_DEVICE void weigh(const Change& change, int row, int first_key, bool masked,
                            ptx::SharedPointer<T> queries, ptx::SharedPointer<T> keys) {
    ptx::hold_registers(s_);
    float scale = change_scores(s_, change, row, first_key, masked);
    if constexpr (kBold && Change::kPlain) {
      RowState before[kHalves];
      SACCADE_UNROLL
      for (int h = 0; h < kHalves; ++h) before[h] = state_[h];
      const bool sampled = kSample == Sample::always || (kSample == Sample::if_needed && !based_);
      if (sampled) sample(scale);
      if (based_) {
        if (weigh_boldly(scale)) {
          moved_ = kSample == Sample::if_needed && sampled;
          return;
        }
        multiply_again(s_, queries, keys);
        scale = change_scores(s_, change, row, first_key, masked);
      }
      if (sampled) {
        SACCADE_UNROLL
        for (int h = 0; h < kHalves; ++h) state_[h] = before[h];
      }
    }
    weigh_carefully(s_, scale);
  }
  /// Takes the weights for the next start_values(); when those before have come to their end.
  SACCADE_DEVICE void take_weights() {
    ptx::hold_registers(o_);
    if (moved_) rescale();
    pack_weights<0, 1>(s_);
  }

  // Scores a tile ahead, with kAhead: start_scores(), a wait, find_bases(), take_scores(), then the products
  // that run while weigh_taken() computes: start_scores() or, from the second tile on, start_both(); a wait,
  // pack_taken(). Before that weights may be found too large: weigh_again().

  /// Hides scores of the next tile, which are there, if `masked`, and gives rows that have no base one of
  /// them: the largest, or without a mask the largest of a quarter.
  template <class Change>
  SACCADE_DEVICE void find_bases(const Change& change, int row, int first_key, bool masked) {
    ptx::hold_registers(s_);
    const float scale = change_scores(s_, change, row, first_key, masked);
    if (based_) return;
    float largest[kHalves];
    if (masked) {
      largest_of<kKeys / 8>(s_, largest);
    } else {
      largest_of<kKeys / 32>(s_, largest);
    }
    bool all = true;
    SACCADE_UNROLL
    for (int h = 0; h < kHalves; ++h) {
      float& m = state_[h].m;
      const float max = over_lanes(largest[h]) * scale;
      m = m == -kInfinity ? max : m;
      all = all && m != -kInfinity;
    }
    based_ = !ptx::any_lane(!all);
  }
  /// Every row of the warp has a base.
  [[nodiscard]] SACCADE_DEVICE bool based() const { return based_; }
  /// Takes the scores, relative to their rows' bases, to where weights are computed. Without one hidden
  /// scores still become 0, and others far too large.
  SACCADE_DEVICE void take_scores(float scale) {
    static_assert(kBold && kAhead && kHalves == 2);
    accept_taken();
    constexpr float kNone = -1e30F;
    SACCADE_UNROLL
    for (int n = 0; n < kKeys / 2; ++n) {
      const float m = state_[n / 2 % 2].m;
      taken_[n] = ptx::fma(s_[n], scale, -(m == -kInfinity ? kNone : m));
    }
  }
  /// Starts adding the values weighted by the weights that are packed, and the scores of other keys, as one
  /// group: both are long chains, in whose gaps the other one finds room.
  SACCADE_DEVICE void start_both(std::uint64_t values, std::uint64_t queries, std::uint64_t keys) {
    static_assert(kDimQk == kKeys);
    SACCADE_UNROLL
    for (float& x : s_) x = 0;
    ptx::fence_products();
    SACCADE_UNROLL
    for (int c = 0; c < kDimQk / 16; ++c) {
      ptx::warpgroup_multiply<T, kDimV, ptx::Major::mn>(o_, weights_[c], Boxes<kKeys>::rows(values, c), true);
      multiply_columns(c, queries, keys);
    }
    ptx::commit_products();
  }
  SACCADE_DEVICE void weigh_taken() {
    weigh_all(taken_, taken_sum_, [](float x, int) { return x; });
  }
  /// Whether none of this lane's weights was too large.
  [[nodiscard]] SACCADE_DEVICE bool taken_well() const {
    return taken_sum_[0] + taken_sum_[kHalves - 1] <= kMostWeight;  // NaN is not
  }
  /// When no product reads weights any more.
  SACCADE_DEVICE void pack_taken() {
    ptx::hold_registers(o_);
    ptx::hold_registers(s_);
    pack_weights<0, 1>(taken_);
  }
  /// The weights that were taken last once more, with care, by this warp alone; no product runs.
  template <class Change>
  SACCADE_DEVICE void weigh_again(const Change& change, int row, int first_key, bool masked,
                                  ptx::SharedPointer<T> queries, ptx::SharedPointer<T> keys) {
    multiply_again(taken_, queries, keys);
    weigh_carefully(taken_, change_scores(taken_, change, row, first_key, masked));
    if (moved_) rescale();
    pack_weights<0, 1>(taken_);
    SACCADE_UNROLL
    for (int h = 0; h < kHalves; ++h) taken_sum_[h] = 0;  // has been added
  }
  /// Adds the weights up that were taken last; take_scores() does so too.
  SACCADE_DEVICE void accept_taken() {
    SACCADE_UNROLL
    for (int h = 0; h < kHalves; ++h) {
      state_[h].l += taken_sum_[h];
      taken_sum_[h] = 0;
    }
  }

  // Rows that have one tile and no other, after begin(). Its slices are weighed one after the other, each
  // while the values of the one before are added up, and nobody asks whether a weight was too large until the
  // end: the way of nearly all rows has to be short, or fetching its instructions takes longer than they do.

  /// As weigh() and take_weights() for one of kSlices slices of the only tile.
  template <int kSlice, int kSlices, class Change>
  SACCADE_DEVICE void weigh_slice(const Change& change, int row, int first_key, bool masked) {
    if constexpr (kSlice == 0) {
      ptx::hold_registers(s_);
      sample(change_scores(s_, change, row, first_key, masked));
    }
    auto& s = reinterpret_cast<float(&)[kKeys / kSlices / 2]>(s_[kSlice * kKeys / kSlices / 2]);
    float base[kHalves];
    SACCADE_UNROLL
    for (int h = 0; h < kHalves; ++h) base[h] = state_[h].base();
    float sum[kHalves];
    weigh_all(s, change.scale.size, base, sum);
    SACCADE_UNROLL
    for (int h = 0; h < kHalves; ++h) state_[h].l += sum[h];
    pack_weights<kSlice, kSlices>(s_);
  }
  /// Whether no weight was too large, and every row has a base; before finish_states().
  [[nodiscard]] SACCADE_DEVICE bool is_well() const {
    const bool well = state_[0].l <= kMostWeight && state_[kHalves - 1].l <= kMostWeight;  // NaN is not
    return based_ && !ptx::any_lane(!well);
  }
  /// Everything once more, with care, by this warp alone: other warps need not know. Queries, keys and values
  /// are still there.
  template <class Change>
  SACCADE_DEVICE void attend_again(const Change& change, int row, int first_key, bool masked,
                                   ptx::SharedPointer<T> queries, ptx::SharedPointer<T> keys,
                                   ptx::SharedPointer<T> values) {
    SACCADE_UNROLL
    for (int h = 0; h < kHalves; ++h) state_[h] = {};
    multiply_again(s_, queries, keys);
    weigh_carefully(s_, change_scores(s_, change, row, first_key, masked));
    pack_weights<0, 1>(s_);
    auto& o = reinterpret_cast<float(&)[kDimV / 8][4]>(o_);
    SACCADE_UNROLL
    for (int n = 0; n < kDimV / 2; ++n) o[n / 4][n % 4] = 0;  // a range-for would put all into memory
    const int lane = ptx::lane_index();
    SACCADE_UNROLL
    for (int j = 0; j < kKeys / 16; ++j) {
      SACCADE_UNROLL
      for (int c = 0; c < kDimV / 16; ++c) {
        std::uint32_t v[4];
        ptx::load_matrices_transposed(
            v, values + Boxes<kKeys>::place(16 * j + lane % 16, 16 * c + lane / 16 * 8));
        ptx::multiply_add<T>(o[2 * c], weights_[j], v[0], v[1]);
        ptx::multiply_add<T>(o[2 * c + 1], weights_[j], v[2], v[3]);
      }
    }
  }

  /// Adds up the weights that the lanes of each row have; after the last weigh().
  SACCADE_DEVICE void finish_states() {
    SACCADE_UNROLL
    for (RowState& state : state_) {
      state.l += ptx::shuffle_xor(state.l, 1);
      state.l += ptx::shuffle_xor(state.l, 2);
    }
  }
  /// When all products have come to their end.
  SACCADE_DEVICE void finish_sums() { ptx::hold_registers(o_); }
  /// Of rows lane / 4 + 8 h of the warp.
  [[nodiscard]] SACCADE_DEVICE const RowState& state(int h) const { return state_[h]; }
  /// The sum of weighted values of row lane / 4 + 8 h and column 8 n + lane % 4 * 2 + e.
  [[nodiscard]] SACCADE_DEVICE float sum(int n, int h, int e) const { return o_[4 * n + 2 * h + e]; }

 private:
  /// Scores are so far above the base at most when they are looked at.
  static constexpr float kSlack = 8;

  /// A lane's sum of weights in a tile is this at most: far from f16's end.
  static constexpr float kMostWeight = 1 << 14;

  template <int kScores, class Change>
  static SACCADE_DEVICE float change_scores(float (&s)[kScores], const Change& change, int row, int first_key,
                                            bool masked) {
    return change.change(reinterpret_cast<float(&)[1][kScores / 4][4]>(s), row, first_key, masked);
  }
  /// Weights of a slice to what products read.
  template <int kSlice, int kSlices>
  SACCADE_DEVICE void pack_weights(const float (&s)[kKeys / 2]) {
    constexpr int kSteps = kKeys / 16 / kSlices;
    SACCADE_UNROLL
    for (int j = kSlice * kSteps; j < (kSlice + 1) * kSteps; ++j) {
      SACCADE_UNROLL
      for (int n = 0; n < 4; ++n)
        weights_[j][n] =
            n % 2 < kHalves ? ptx::pack<T>(s[8 * j + 2 * n], s[8 * j + 2 * n + 1]) : ptx::unspecified();
    }
  }
  /// Without a look at the scores: most tiles move no base, and a weight that is too large shows in its sum.
  /// False if there is one; the scores are gone then.
  SACCADE_DEVICE bool weigh_boldly(float scale) {
    float base[kHalves];
    SACCADE_UNROLL
    for (int h = 0; h < kHalves; ++h) base[h] = state_[h].m;
    float sum[kHalves];
    weigh_all(s_, scale, base, sum);
    bool well = true;
    SACCADE_UNROLL
    for (const float x : sum) well = well && x <= kMostWeight;  // NaN is not
    if (ptx::any_lane(!well)) return false;
    SACCADE_UNROLL
    for (int h = 0; h < kHalves; ++h) state_[h].l += sum[h];
    return true;
  }
  /// Gives rows a base from a quarter of their scores: others are hardly ever too far above it.
  SACCADE_DEVICE void sample(float scale) {
    float largest[kHalves];
    largest_of<(kKeys + 31) / 32>(s_, largest);
    SACCADE_UNROLL
    for (float& x : largest) x *= scale;
    raise(largest);
  }
  /// Of this lane's scores of the first kCount times eight keys.
  template <int kCount>
  static SACCADE_DEVICE void largest_of(const float (&s)[kKeys / 2], float (&largest)[kHalves]) {
    SACCADE_UNROLL
    for (int h = 0; h < kHalves; ++h) {
      float even = s[2 * h];
      float odd = s[2 * h + 1];
      SACCADE_UNROLL
      for (int n = 1; n < kCount; ++n) {
        even = ptx::larger(even, s[4 * n + 2 * h]);
        odd = ptx::larger(odd, s[4 * n + 2 * h + 1]);
      }
      largest[h] = ptx::larger(even, odd);
    }
  }
  SACCADE_DEVICE void weigh_carefully(float (&s)[kKeys / 2], float scale) {
    float largest[kHalves];
    largest_of<kKeys / 8>(s, largest);
    bool far = false;
    SACCADE_UNROLL
    for (int h = 0; h < kHalves; ++h) {
      largest[h] *= scale;
      far = far || largest[h] - state_[h].m > kSlack;  // not m + kSlack, which may round up
    }
    moved_ = ptx::any_lane(far);
    if (moved_) raise(largest);
    float base[kHalves];
    SACCADE_UNROLL
    for (int h = 0; h < kHalves; ++h) base[h] = state_[h].base();
    float sum[kHalves];
    weigh_all(s, scale, base, sum);
    SACCADE_UNROLL
    for (int h = 0; h < kHalves; ++h) state_[h].l += sum[h];
  }
  /// Earlier sums, relative to another base.
  SACCADE_DEVICE void rescale() {
    SACCADE_UNROLL
    for (int n = 0; n < kDimV / 2; ++n) {
      if (n / 2 % 2 < kHalves) o_[n] *= keep_[n / 2 % 2];
    }
  }
  /// 16 columns of the products of queries and keys, after c times 16.
  SACCADE_DEVICE void multiply_columns(int c, std::uint64_t queries, std::uint64_t keys) {
    const std::uint64_t columns = Boxes<kKeys>::columns(keys, c);
    if constexpr (kHeld) {
      ptx::warpgroup_multiply<T, kKeys, ptx::Major::k>(s_, q_[c], columns, c > 0);
    } else {
      ptx::warpgroup_multiply<T, kKeys, ptx::Major::k, ptx::Major::k>(s_, Queries::columns(queries, c),
                                                                      columns, c > 0);
    }
  }
  /// Turns scores into weights relative to `base`, and adds this lane's up.
  template <int kScores>
  static SACCADE_DEVICE void weigh_all(float (&s)[kScores], float scale, const float (&base)[kHalves],
                                       float (&sum)[kHalves]) {
    weigh_all(s, sum, [&](float x, int h) { return ptx::fma(x, scale, -base[h]); });
  }
  /// The same, with relative(score, half of the rows) saying how far a score is above its base.
  template <int kScores, class Relative>
  static SACCADE_DEVICE void weigh_all(float (&s)[kScores], float (&sum)[kHalves], const Relative& relative) {
    SACCADE_UNROLL
    for (int h = 0; h < kHalves; ++h) {
      float sums[2] = {};
      SACCADE_UNROLL
      for (int n = 0; n < kScores / 4; ++n) {
        SACCADE_UNROLL
        for (int e = 0; e < 2; ++e) {
          float& x = s[4 * n + 2 * h + e];
          x = ptx::fast_exp2(relative(x, h));
          sums[e] += x;
        }
      }
      sum[h] = sums[0] + sums[1];
    }
  }
  /// The largest number of the four lanes of a row.
  static SACCADE_DEVICE float over_lanes(float x) {
    x = ptx::larger(x, ptx::shuffle_xor(x, 1));
    return ptx::larger(x, ptx::shuffle_xor(x, 2));
  }
  /// The scores once more, by this warp alone: other warps need not know.
  SACCADE_DEVICE void multiply_again(float (&scores)[kKeys / 2], ptx::SharedPointer<T> queries,
                                     ptx::SharedPointer<T> keys) {
    auto& s = reinterpret_cast<float(&)[kKeys / 8][4]>(scores);
    SACCADE_UNROLL
    for (float& x : scores) x = 0;
    const int lane = ptx::lane_index();
    const int key = lane / 16 * 8 + lane % 8;
    const auto multiply = [&](int c, const std::uint32_t(&q)[4]) {
      SACCADE_UNROLL
      for (int j = 0; j < kKeys / 16; ++j) {
        std::uint32_t k[4];
        ptx::load_matrices(k, keys + Boxes<kKeys>::place(16 * j + key, 16 * c + lane / 8 % 2 * 8));
        ptx::multiply_add<T>(s[2 * j], q, k[0], k[1]);
        ptx::multiply_add<T>(s[2 * j + 1], q, k[2], k[3]);
      }
    };
    if constexpr (kHeld) {
      SACCADE_UNROLL
      for (int c = 0; c < kDimQk / 16; ++c) multiply(c, q_[c]);
    } else {
      SACCADE_NO_UNROLL
      for (int c = 0; c < kDimQk / 16; ++c) {
        std::uint32_t q[4];
        load_queries(q, queries, c);
        multiply(c, q);
      }
    }
  }
  /// 16 columns of this warp's queries, after c times 16. Of eight rows, both halves are the same.
  static SACCADE_DEVICE void load_queries(std::uint32_t (&q)[4], ptx::SharedPointer<T> queries, int c) {
    const int lane = ptx::lane_index();
    const int row = ptx::warp_index() % 4 * kWarpRows + lane % kWarpRows;
    ptx::load_matrices(q, queries + Queries::place(row, 16 * c + lane / 16 * 8));
  }

  /// Makes the largest scores what weights are relative to.
  SACCADE_DEVICE void raise(const float (&largest)[kHalves]) {
    bool all = true;
    SACCADE_UNROLL
    for (int h = 0; h < kHalves; ++h) {
      keep_[h] = state_[h].raise(over_lanes(largest[h]));
      state_[h].l *= keep_[h];
      all = all && state_[h].m != -kInfinity;
    }
    if constexpr (kBold) based_ = !ptx::any_lane(!all);
  }

  float s_[kKeys / 2];
  float taken_[kAhead ? kKeys / 2 : 1];
  float taken_sum_[kHalves];  ///< of a lane
  std::uint32_t q_[kHeld ? kDimQk / 16 : 1][4];
  std::uint32_t weights_[kKeys / 16][4];
  float o_[kDimV / 2];
  /// m is a score that the row has seen, not always the largest: see tile/warp_rows.h.
  RowState state_[kHalves];
  float keep_[kHalves];  ///< what earlier sums are worth, if moved_
  bool based_ = false;   ///< every row of the warp has seen a key
  bool moved_ = false;   ///< the last weights are relative to another base than those before
};

}  // namespace saccade::SACCADE_MACHINE::tile
