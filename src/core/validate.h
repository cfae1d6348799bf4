// Checks of a call's pointers and of the integers they point to.
#pragma once

#include <cstddef>

#include <saccade/problem.h>
#include <saccade/run.h>
#include <saccade/status.h>

namespace saccade {

/// Checks the pointers and the workspace of a call on a problem that validate() accepts. Reads nothing
/// through them.
[[nodiscard]] Status validate_pointers(const Problem& problem, const Tensors& tensors, Workspace workspace,
                                       std::size_t workspace_bytes);

/// Checks the workspace alone.
[[nodiscard]] Status validate_workspace(Workspace workspace, std::size_t workspace_bytes);

/// Checks cu_seqlens, kv_lengths and the block table. They must be readable by the host.
[[nodiscard]] Status validate_indices(const Problem& problem, const Tensors& tensors);

}  // namespace saccade
