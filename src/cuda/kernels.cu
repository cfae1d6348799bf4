#include <array>

#include "cuda/kernels.h"
#include "cuda/ladder/rungs.h"
#include "cuda/reference/reference.h"
#include "cuda/sm80/sm80.h"
#include "cuda/sm90/sm90.h"

namespace saccade::SACCADE_MACHINE {

std::span<const Kernel* const> kernels() {
  // The families first; the rungs by the times of evidence/h200/ladder.json. cuBLAS comes after the fused
  // rungs: it wants memory for all scores.
  static const std::array kRows = {&sm90_forward(),
                                   &sm80_forward(),
                                   &ladder::ladder_cp_async(),
                                   &ladder::ladder_warp_specialized(),
                                   &ladder::ladder_persistent(),
                                   &ladder::ladder_wmma(),
                                   &ladder::ladder_cublas(),
                                   &ladder::ladder_light_barriers(),
                                   &ladder::ladder_wmma_qk(),
                                   &ladder::ladder_tiled(),
                                   &ladder::ladder_warp_reduce(),
                                   &ladder::ladder_minimal(),
                                   &cuda_reference()};
  return kRows;
}

}  // namespace saccade::SACCADE_MACHINE
