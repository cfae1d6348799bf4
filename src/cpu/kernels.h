// The CPU room's rows of the registry.
#pragma once

#include "core/kernel.h"

namespace saccade {

/// SIMD over the head dimension, split over keys: few query rows against many keys.
[[nodiscard]] const Kernel& cpu_decode();
/// Matrix tiles (AMX) of bf16 parts, the rest as cpu_blocked: machines that have them.
[[nodiscard]] const Kernel& cpu_amx();
/// SIMD over query rows, blocked online softmax: everything else.
[[nodiscard]] const Kernel& cpu_blocked();
/// The float64 oracle as a kernel: every feature, slowly.
[[nodiscard]] const Kernel& cpu_reference();

}  // namespace saccade
