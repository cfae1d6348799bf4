// The rungs of the ladder, lowest first.
#pragma once

#include "cuda/ladder/rung.h"

namespace saccade::SACCADE_MACHINE::ladder {

[[nodiscard]] const Kernel& ladder_minimal();
[[nodiscard]] const Kernel& ladder_tiled();
[[nodiscard]] const Kernel& ladder_warp_reduce();
[[nodiscard]] const Kernel& ladder_light_barriers();
[[nodiscard]] const Kernel& ladder_cublas();
[[nodiscard]] const Kernel& ladder_wmma_qk();
[[nodiscard]] const Kernel& ladder_wmma();
[[nodiscard]] const Kernel& ladder_cp_async();
[[nodiscard]] const Kernel& ladder_warp_specialized();
[[nodiscard]] const Kernel& ladder_persistent();

}  // namespace saccade::SACCADE_MACHINE::ladder
