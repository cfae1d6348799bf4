// The Ampere and Ada family: mma.sync, ldmatrix, cp.async.
#pragma once

#include "core/kernel.h"
#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE {
[[nodiscard]] const Kernel& sm80_forward();
}  // namespace saccade::SACCADE_MACHINE
