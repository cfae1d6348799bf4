// How wrong an honest kernel may be. Every tolerance of the project is derived here, from the dtype and the
// problem alone; none is fitted to a kernel.
//
// Let u be the unit roundoff of the dtype and e = 2^-24 that of f32. A fused kernel reads its inputs exactly,
// computes scores, exponentials and sums in f32, rounds each weight p[j] to the dtype before it meets V (not
// when the dtype is f32) and rounds the output once. With P|V| = sum_j p[j] |v[j]| its error has these parts:
//
//   rounding o        at most u |o|
//   rounding weights  at most u P|V| (each weight's error has its own sign, so usually far less)
//   f32 weights       a relative error of each weight of typically e times the sum of
//     |scale| dim          a dot product of N(0,1) numbers, whose running sum grows like a random walk
//     5 |scale| sqrt(dim)  scaling and capping a score of 5 sigma
//     |lse| + log(n)       rounding the score: sum_j p[j] |s[j]| / sum_j p[j] is at most |lse| of the keys
//                          alone, without the sink, plus their entropy, and that is at most log(n)
//     sqrt(n)              sums of n terms in f32, in any order, with errors of random sign
//     4                    exp, the division and what else is done once
//   tiny numbers      half the smallest subnormal for the output, and as much, with random sign, for each of
//   n
//                     weights, which are relative to the largest until the division: times at most
//                     sqrt(sum_j p[j]^2), or 1 when the largest may be the sink; and f32 weights below the
//                     smallest normal number may become 0
//
// The element bound takes the worst case: twice the typical size of each f32 term, and for the score its four
// roundings (the bias or slope's product, its sum with the dot product, the change to base 2 and back).
// The relative L2 bound needs no worst case: rounding errors of random sign make two contributions of about
// 0.42 u (the root mean square of a rounding), 0.6 u together; 2 u is 3.3 times that.
//
// Few elements: ||o|| can be small by chance while the error is not. V is N(0,1), so an element of o has the
// standard deviation sqrt(sum_j p[j]^2); every L2 bound allows its factor times three of those (their root
// mean square over the rows) besides ||o||, which outgrows them like the root of the number of elements.
// Rows that repeat one another, because a query is broadcast over them, repeat what chance did to one: n of
// them are one row whose ||o|| and ||error|| are sqrt(n) times as large.
#pragma once

#include <cmath>
#include <cstdint>

#include <saccade/problem.h>

namespace saccade {

/// Unit roundoff: half the distance from 1 to the next number.
constexpr double unit_roundoff(DType dtype) {
  return dtype == DType::f16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-24;
}

/// Half the smallest positive number: the error of rounding something smaller than every normal number.
constexpr double half_subnormal(DType dtype) {
  return dtype == DType::f16 ? 0x1p-25 : dtype == DType::bf16 ? 0x1p-134 : 0x1p-150;
}

/// What the rows that were compared have in common.
struct RowSummary {
  double o_norm = 0;            ///< ||o|| of the oracle
  double elements = 0;          ///< elements of o
  double mean_abs_key_lse = 0;  ///< of the rows that attend to something
  double deviation = 0;         ///< root mean square of sqrt(sum_j p[j]^2) over those rows
  double copies = 1;            ///< rows that have the same query and the same keys, in the mean
};

/// The tolerances for one problem.
class ErrorBounds {
 public:
  explicit ErrorBounds(const Problem& problem)
      : u_(unit_roundoff(problem.dtype)),
        u_weights_(problem.dtype == DType::f32 ? 0 : u_),
        subnormal_(half_subnormal(problem.dtype)),
        sinks_(problem.sinks),
        keys_(static_cast<double>(problem.len_kv) + 1) {  // + 1: the sink, and so that no keys have a log
    const double scale = std::abs(static_cast<double>(problem.effective_scale()));
    const auto dim = static_cast<double>(problem.dim_qk);
    score_size_ = 5 * scale * std::sqrt(dim);
    arithmetic_ = 4 + scale * dim + score_size_ + std::sqrt(keys_);
    constexpr double kSmallestNormalF32 = 0x1p-126;
    constexpr double kLargestV = 8.1;  // of the case data's N(0,1)
    flushed_ = kSmallestNormalF32 * keys_ * kLargestV;
  }

  /// Largest error of one element of o, given its exact value, its sum_j p[j] |v[j]| and the log-sum-exp of
  /// its keys. A row that attends to nothing has 0 for the first two and must be exactly 0.
  [[nodiscard]] double element(double o, double p_abs_v, double key_lse) const {
    if (p_abs_v == 0) return 0;
    const double tiny = subnormal_ * (1 + 5 * std::sqrt(keys_)) + flushed_;  // 5 sigma of the random signs
    return u_ * std::abs(o) + (u_weights_ + worst_weight_error(key_lse)) * p_abs_v + tiny;
  }

  /// Largest ||error|| of all rows together.
  [[nodiscard]] double l2(const RowSummary& rows) const {
    return (2 * u_ + typical_weight_error(rows.mean_abs_key_lse)) * (rows.o_norm + by_chance(rows)) +
           tiny(rows) * std::sqrt(rows.elements);
  }

  /// What ||error|| may exceed twice the plain implementation's by. For f16 and bf16 that is what chance does
  /// to few elements and nothing else of size u. In f32, where both make a handful of roundings, it is one
  /// exponential by way of base 2: a product and its rounding more on scores of 5 sigma.
  [[nodiscard]] double plain_floor(const RowSummary& rows) const {
    return kF32 * (4 + score_size_ + rows.mean_abs_key_lse) * rows.o_norm + (u_ + kF32) * by_chance(rows) +
           tiny(rows) * 3 * std::sqrt(rows.copies);
  }

  /// Largest error of a log-sum-exp: log turns the weights' relative error into an absolute one.
  [[nodiscard]] double lse(double lse) const { return worst_weight_error(lse); }

  /// Relative error of a softmax weight, from f32 arithmetic alone.
  [[nodiscard]] double typical_weight_error(double lse) const {
    return kF32 * (arithmetic_ + std::abs(lse) + std::log(keys_));
  }
  [[nodiscard]] double worst_weight_error(double lse) const {
    return kF32 * (2 * arithmetic_ + 4 * (std::abs(lse) + std::log(keys_)));
  }

 private:
  /// Three standard deviations of an element, as ||o|| counts them.
  [[nodiscard]] static double by_chance(const RowSummary& rows) {
    return 3 * rows.deviation * std::sqrt(rows.copies);
  }

  /// The share of tiny numbers in the error of an element, as a root mean square.
  [[nodiscard]] double tiny(const RowSummary& rows) const {
    const double largest_weight = sinks_ ? 1 : rows.deviation;
    return subnormal_ * (1 + std::sqrt(keys_) * largest_weight) + flushed_;
  }

  static constexpr double kF32 = 0x1p-24;
  double u_, u_weights_, subnormal_;
  bool sinks_;
  double keys_, score_size_ = 0, arithmetic_ = 0, flushed_ = 0;
};

}  // namespace saccade
