// THE ordered list of kernels: fastest first, the reference last.
#pragma once

#include <span>

#include "core/kernel.h"

namespace saccade {

/// Every kernel of this build, in the order the planner asks them.
[[nodiscard]] std::span<const Kernel* const> registry();

}  // namespace saccade
