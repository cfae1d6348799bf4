#include "cuda/kernels.h"

#include <array>

#include "cuda/reference/reference.h"

namespace saccade::SACCADE_MACHINE {

std::span<const Kernel* const> kernels() {
  static const std::array<const Kernel*, 1> kRows = {&cuda_reference()};
  return kRows;
}

}  // namespace saccade::SACCADE_MACHINE
