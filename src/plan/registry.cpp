#include "plan/registry.h"

#include <vector>

#include "cpu/kernels.h"
#include "cuda/kernels.h"

namespace saccade {

std::span<const Kernel* const> registry() {
  static const std::vector<const Kernel*> kRows = [] {
    const std::span<const Kernel* const> cuda = device::kernels();
    std::vector<const Kernel*> rows(cuda.begin(), cuda.end());
    for (const Kernel* kernel : {&cpu_decode(), &cpu_amx(), &cpu_blocked(), &cpu_reference()}) {
      rows.push_back(kernel);
    }
    return rows;
  }();
  return kRows;
}

}  // namespace saccade
