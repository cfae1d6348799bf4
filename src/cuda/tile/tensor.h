// Tensors in global memory as kernels see them.
#pragma once

#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE::tile {

/// A tensor [batch, heads, length, dim] by strides.
template <class T>
struct Tensor4 {
  T* data;
  std::int64_t batch, head, row;

  [[nodiscard]] SACCADE_BOTH T* rows(std::int64_t b, std::int64_t h) const {
    return data + b * batch + h * head;
  }
};

}  // namespace saccade::SACCADE_MACHINE::tile
