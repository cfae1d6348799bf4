// An attention problem as a value: everything about a call except the pointers.
//
// What is computed, for each batch b, query head h and query i (the float64 oracle in src/cpu defines it):
//
//   s[j] = softcap(scale * dot(q[b,h,i], k[b,g,j])) + bias[b,h,i,j] - slope[b,h] * |i + diagonal - j|
//   s[j] = -inf where j is hidden by the causal mask, the window, a false in the mask or a bias of -inf
//   lse  = log(sum_j exp(s[j]) + exp(sink[h]))
//   o    = sum_j exp(s[j] - lse) * v[b,g,j]
//
// with g = h / (heads_q / heads_kv), softcap(x) = c * tanh(x / c) when c > 0, and diagonal = 0 (top_left) or
// len_kv - len_q of that sequence (bottom_right). A row with nothing to attend to gives o = 0 and lse = -inf
// (or the sink's logit, when there is one). A NaN that a row attends to reaches the row's output; finite
// inputs never make one. Finite biases below about -2.3e38 count as that: they hide nothing, and lse shows
// the difference in rows that have no other key. What a non-finite value in a hidden key's V does to the row
// is unspecified. Keys beyond a sequence's length are not hidden but absent: nothing that lies there is ever
// used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <saccade/export.h>
#include <saccade/status.h>

namespace saccade {

/// Element types of q, k, v and o.
enum class DType : std::uint8_t { f16, bf16, f32 };

/// Bytes of one element; 0 for a value outside the enum.
[[nodiscard]] SACCADE_API std::size_t size_of(DType dtype) noexcept;
/// "f16", "bf16", "f32".
[[nodiscard]] SACCADE_API std::string_view to_string(DType dtype) noexcept;

/// Where the diagonal of the causal mask, of the window and of ALiBi starts.
enum class Alignment : std::uint8_t {
  top_left,      ///< Query 0 sits on key 0, as in PyTorch's is_causal.
  bottom_right,  ///< The last query sits on the last key, as in flash-attention.
};

/// What the mask tensor means.
enum class MaskKind : std::uint8_t {
  none,
  boolean,   ///< One byte a pair; non-zero means "attend".
  additive,  ///< Added to the score; -inf hides the key.
};

/// How keys and values lie in memory.
enum class KvLayout : std::uint8_t {
  dense,   ///< [batch, heads_kv, len_kv, dim] by strides.
  ragged,  ///< [total_kv, heads_kv, dim]: sequences one after the other, bounded by cu_seqlens_kv.
  paged,   ///< [num_pages, page_size, heads_kv, dim]: sequences in pages named by a block table.
};

/// A window or length without a bound.
inline constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();
/// The largest dim_qk and dim_v.
inline constexpr std::int64_t kMaxHeadDim = 512;

/// Distances between neighbours in elements. May be negative, or 0 on inputs (broadcast). `dim` must be 1.
/// For ragged tensors `batch` is unused; for paged ones it is the distance between pages.
struct Strides {
  std::int64_t batch = 0, head = 0, row = 0, dim = 1;
  friend bool operator==(const Strides&, const Strides&) = default;
};

/// Strides of the mask, in elements; 0 broadcasts. `row` walks queries and `key` walks keys.
struct MaskStrides {
  std::int64_t batch = 0, head = 0, row = 0, key = 1;
  friend bool operator==(const MaskStrides&, const MaskStrides&) = default;
};

/// Strides of the log-sum-exp output. For ragged queries `batch` is unused.
struct LseStrides {
  std::int64_t batch = 0, head = 0, row = 1;
  friend bool operator==(const LseStrides&, const LseStrides&) = default;
};

/// The two usual orders of dense tensors.
enum class Order : std::uint8_t {
  bhld,  ///< [batch, head, length, dim], PyTorch's SDPA.
  blhd,  ///< [batch, length, head, dim], flash-attention.
};

/// One attention problem. Plain data: copy it, compare it, hash it, print it, parse it back.
struct Problem {
  DType dtype = DType::f16;
  std::int64_t batch = 1;
  std::int64_t heads_q = 1;
  std::int64_t heads_kv = 1;  ///< heads_q must be a multiple of it.
  std::int64_t len_q = 0;     ///< The longest sequence's queries when ragged.
  std::int64_t len_kv = 0;    ///< The longest sequence's keys when ragged, paged or with kv_lengths.
  std::int64_t dim_qk = 64;
  std::int64_t dim_v = 64;

  Strides q, k, v, o;

  std::optional<float> scale;  ///< Default 1/sqrt(dim_qk).
  float softcap = 0;           ///< 0: off.

  bool causal = false;  ///< The same as a window_right of 0.
  Alignment alignment = Alignment::top_left;
  std::int64_t window_left = kUnbounded;   ///< Keys visible before the diagonal.
  std::int64_t window_right = kUnbounded;  ///< Keys visible after the diagonal.

  MaskKind mask = MaskKind::none;
  DType mask_dtype = DType::f32;  ///< Of an additive mask: f32, or the same as dtype.
  MaskStrides mask_strides;       ///< Logical shape [batch, heads_q, len_q, len_kv].

  bool alibi = false;                   ///< Slopes f32 [batch, heads_q].
  std::int64_t alibi_batch_stride = 0;  ///< 0: the same slopes for every batch.
  bool sinks = false;                   ///< One f32 logit a query head joins the softmax's denominator.

  bool lse = false;  ///< Whether the natural-log-sum-exp is written, f32.
  LseStrides lse_strides;

  bool ragged_q = false;     ///< q, o (and lse) hold sequences one after the other, bounded by cu_seqlens_q.
  std::int64_t total_q = 0;  ///< Rows of q when ragged.

  KvLayout kv_layout = KvLayout::dense;
  std::int64_t total_kv = 0;  ///< Rows of k and v when ragged.
  bool kv_lengths = false;    ///< Each batch uses its own number of keys (dense; always so when paged).
  std::int64_t page_size = 0;
  std::int64_t num_pages = 0;
  std::int64_t pages_per_sequence = 0;  ///< Row length of the block table.

  /// A dense self-attention-like problem with packed [batch, head, length, dim] tensors.
  [[nodiscard]] SACCADE_API static Problem dense(std::int64_t batch, std::int64_t heads, std::int64_t len,
                                                 std::int64_t dim, DType dtype = DType::f16);
  /// Sets all strides (mask and lse included) to packed memory for the present sizes and layouts. Ragged and
  /// paged tensors have one packed order each ([total, head, dim]; [page, row, head, dim]) and ignore
  /// `order`.
  SACCADE_API Problem& pack(Order order = Order::bhld);

  /// The scale in force: `scale`, or 1/sqrt(dim_qk) (1 when dim_qk is 0).
  [[nodiscard]] SACCADE_API float effective_scale() const noexcept;
  /// Query heads that share one key head; 0 when there are no heads.
  [[nodiscard]] constexpr std::int64_t group() const noexcept {
    return heads_kv > 0 ? heads_q / heads_kv : 0;
  }

  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Prints the problem in the shape syntax, e.g. "b1 h8 l512 d64 f16 causal"; parse_problem reads it back
/// exactly.
[[nodiscard]] SACCADE_API std::string to_string(const Problem& problem);

/// Reads the shape syntax (docs/shapes.md): tokens in any order, separated by blanks.
[[nodiscard]] SACCADE_API Result<Problem> parse_problem(std::string_view text);

/// Checks everything that can be checked without pointers. The sentence names the argument and the values.
[[nodiscard]] SACCADE_API Status validate(const Problem& problem);

/// Floating-point operations by the house convention: 4 * batch * heads_q * len_q * len_kv * (dim_qk +
/// dim_v)/2, halved when causal and square. Windows, masks and sequence lengths are not subtracted.
[[nodiscard]] SACCADE_API double flops(const Problem& problem) noexcept;

/// The fewest bytes a call can move: q, k, v read once, o (and lse) written once.
[[nodiscard]] SACCADE_API double min_bytes(const Problem& problem) noexcept;

/// A hash that agrees with ==.
[[nodiscard]] SACCADE_API std::size_t hash(const Problem& problem) noexcept;

}  // namespace saccade

template <>
struct std::hash<saccade::Problem> {
  std::size_t operator()(const saccade::Problem& problem) const noexcept { return saccade::hash(problem); }
};
