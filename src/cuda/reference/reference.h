// The plain CUDA kernel: every feature, slowly. The last CUDA row of the registry and the GPU-side check.
#pragma once

#include "core/kernel.h"
#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE {
[[nodiscard]] const Kernel& cuda_reference();
}  // namespace saccade::SACCADE_MACHINE
