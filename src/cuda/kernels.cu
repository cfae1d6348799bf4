#include <array>

#include "cuda/kernels.h"
#include "cuda/ladder/rungs.h"
#include "cuda/reference/reference.h"

namespace saccade::SACCADE_MACHINE {

std::span<const Kernel* const> kernels() {
  static const std::array kRows = {&ladder::ladder_persistent(),
                                   &ladder::ladder_warp_specialized(),
                                   &ladder::ladder_cp_async(),
                                   &ladder::ladder_wmma(),
                                   &ladder::ladder_wmma_qk(),
                                   &ladder::ladder_cublas(),
                                   &ladder::ladder_light_barriers(),
                                   &ladder::ladder_warp_reduce(),
                                   &ladder::ladder_tiled(),
                                   &ladder::ladder_minimal(),
                                   &cuda_reference()};
  return kRows;
}

}  // namespace saccade::SACCADE_MACHINE
