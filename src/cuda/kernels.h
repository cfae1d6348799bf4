// The CUDA kernels as rows of a registry, in the planner's order. `device` holds those of this build's GPU
// code; `emulated` the same sources for the CPU machine of src/emu.
#pragma once

#include <span>

#include "core/kernel.h"

namespace saccade::device {
/// Fastest first, the reference last. Empty in a build without nvcc.
[[nodiscard]] std::span<const Kernel* const> kernels();
}  // namespace saccade::device

namespace saccade::emulated {
/// The same rows as the GPU's. Their launches run in the innermost emu::Session of the calling thread.
[[nodiscard]] std::span<const Kernel* const> kernels();
}  // namespace saccade::emulated
