// A call's tensors in the memory of a GPU, between guard bands.
#pragma once

#include <saccade/plan.h>
#include <saccade/run.h>

namespace saccade {

/// Runs a plan for a CUDA device on copies of host tensors: every operand goes to the GPU with a band of the
/// guard pattern before and after it, and the outputs come back. Errors: a band, an input or the workspace's
/// surroundings were written.
[[nodiscard]] Status run_mirrored(const Plan& plan, const Tensors& host);

}  // namespace saccade
