// The memory of one call: random inputs, poisoned outputs, and traps around and between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <saccade/problem.h>
#include <saccade/run.h>

#include "core/sequence.h"
#include "verify/guarded_buffer.h"

namespace saccade {

/// All buffers of one call; what they hold depends on the problem and the seed only.
///
/// q, k and v are independent and N(0,1), unscaled. Boolean masks let about 70% through, biases are N(0,1)
/// with some -inf, and both hide some rows entirely. Sequence lengths are random, some 0, one the longest;
/// pages are shuffled, and the block table's unused entries are far out of range. What no row of the call
/// uses (gaps between rows, rows past a sequence's end, unused pages) holds the guard pattern, a NaN. Seeds
/// that are multiples of kNanEvery also have NaN in one query, key or value that is in use.
class CaseData {
 public:
  static constexpr std::uint64_t kNanEvery = 8;

  /// The problem must be valid.
  CaseData(const Problem& problem, std::uint64_t seed, PastEnd past_end = PastEnd::fault);

  [[nodiscard]] const Tensors& tensors() const { return tensors_; }
  /// Whether a NaN was put into an input that is in use.
  [[nodiscard]] bool has_nan() const { return has_nan_; }
  /// Whether the query has any key to attend to.
  [[nodiscard]] bool attends_any(const Sequence& s, std::int64_t head, std::int64_t i) const;
  /// A changed problem on partly copied inputs, for questions about the weights that the oracle can answer.
  struct Variant {
    Problem problem;
    Tensors tensors;
    std::vector<std::byte> values{}, mask{}, slopes{};
  };
  /// V without its signs: o becomes sum_j p[j] |v[j]|.
  [[nodiscard]] Variant absolute_values() const;
  /// All scores doubled, no V, no sink: exp(this lse - 2 * the true lse) is sum_j p[j]^2.
  [[nodiscard]] Variant doubled_scores() const;

  /// Fills both outputs, their gaps included, with a NaN that no kernel makes.
  void poison();
  /// Whether an element of o (at this offset from t.o) is as poison() left it.
  [[nodiscard]] bool poisoned_o(std::int64_t offset) const;
  [[nodiscard]] bool poisoned_lse(std::int64_t offset) const;
  /// Which input, guard band or output gap is not as it was, as a sentence; empty when all are.
  [[nodiscard]] std::string damage() const;
  /// The bytes of o and lse, to compare two runs.
  [[nodiscard]] std::vector<std::byte> output_bytes() const;

 private:
  /// A tensor, where its logical origin lies, and which of its elements the call uses.
  struct Operand {
    std::string_view name;
    std::size_t element_bytes = 1;
    std::int64_t origin = 0;             ///< index of the element that the caller's pointer names
    std::vector<std::uint8_t> in_use{};  ///< a flag for each element
    bool shared = false;                 ///< some element belongs to more than one row
    GuardedBuffer buffer{};

    [[nodiscard]] std::int64_t elements() const { return static_cast<std::int64_t>(in_use.size()); }
    [[nodiscard]] std::byte* at(std::int64_t offset) const {
      return buffer.bytes().data() + (origin + offset) * static_cast<std::int64_t>(element_bytes);
    }
    [[nodiscard]] void* data() const { return at(0); }
    /// Notes that the call uses `run` elements from this offset on.
    void use(std::int64_t offset, std::int64_t run);
  };
  /// One axis of a tensor: its size and its stride in elements.
  struct Axis {
    std::int64_t size, stride;
  };

  [[nodiscard]] Operand allocate(std::string_view name, std::size_t element_bytes, std::int64_t run,
                                 std::initializer_list<Axis> axes = {}) const;
  [[nodiscard]] Operand allocate_queries(std::string_view name, const Strides& strides,
                                         std::int64_t dim) const;
  [[nodiscard]] Operand allocate_keys(std::string_view name, const Strides& strides, std::int64_t dim) const;
  void make_indices();
  void make_queries_and_keys();
  void make_mask();
  void make_per_head();
  void make_outputs();
  void plant_nan();
  void fill_normal(Operand& operand, DType dtype, std::uint64_t which) const;
  void hide_some(Operand& mask) const;
  /// Whether the query sees the key and no bias of -inf hides it.
  [[nodiscard]] bool attends(const Sequence& s, std::int64_t head, std::int64_t i, std::int64_t key) const;
  [[nodiscard]] std::array<const Operand*, 10> inputs() const;
  /// Of every input with its guard bands.
  [[nodiscard]] std::vector<std::uint64_t> input_checksums() const;

  Problem p_;
  std::uint64_t seed_;
  PastEnd past_end_;
  Tensors tensors_;
  Operand q_, k_, v_, mask_, slopes_, sinks_, cu_seqlens_q_, cu_seqlens_kv_, kv_lengths_, block_table_;
  Operand o_, lse_;
  std::vector<std::uint64_t> checksums_;
  bool has_nan_ = false;
};

}  // namespace saccade
