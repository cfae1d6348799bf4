// The tensors of a call as memory: what each is called, where it lies and which bytes it has.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <saccade/problem.h>
#include <saccade/run.h>

#include "core/extent.h"

namespace saccade {

/// A tensor of the call: what it is called, where it lies, and how.
struct Operand {
  std::string_view name;
  const void* data;
  std::size_t element_bytes;
  Extent extent;
};

/// Several operands, without touching the heap: run() allocates nothing.
class Operands {
 public:
  void push_back(const Operand& operand) { items_[count_++] = operand; }
  [[nodiscard]] const Operand* begin() const { return items_.data(); }
  [[nodiscard]] const Operand* end() const { return items_.data() + count_; }
  [[nodiscard]] const Operand& back() const { return items_[count_ - 1]; }

 private:
  std::array<Operand, 16> items_{};
  std::size_t count_ = 0;
};

/// What a call reads and what it writes; only what the problem names.
[[nodiscard]] Operands inputs(const Problem& problem, const Tensors& tensors);
[[nodiscard]] Operands outputs(const Problem& problem, const Tensors& tensors);

}  // namespace saccade
