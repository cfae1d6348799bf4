// Judging a CUDA kernel on the CPU machine of src/emu.
#pragma once

#include <string>

#include "core/kernel.h"
#include "emu/machine.h"
#include "verify/verify.h"

namespace saccade {

/// The emulated kernel of this name; null when there is none.
[[nodiscard]] const Kernel* find_emulated(std::string_view name);

/// The machine that emulated kernels are told they run on: a Hopper GPU.
[[nodiscard]] Machine emulated_machine();

/// Runs an emulated kernel with these settings in a guarded workspace. What the emulator finds wrong comes
/// back as the status.
[[nodiscard]] Runner emulated_runner(const Kernel& kernel, const std::string& config,
                                     const emu::Options& options);

}  // namespace saccade
