// The Hopper family: wgmma, the bulk copy engine, clusters.
#pragma once

#include "core/kernel.h"
#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE {
[[nodiscard]] const Kernel& sm90_forward();
}  // namespace saccade::SACCADE_MACHINE
