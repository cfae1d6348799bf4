#include "plan/registry.h"

#include <array>

#include "cpu/kernels.h"

namespace saccade {

std::span<const Kernel* const> registry() {
  static const std::array<const Kernel*, 3> kRows = {&cpu_decode(), &cpu_blocked(), &cpu_reference()};
  return kRows;
}

}  // namespace saccade
