// Decoding with shared keys: what one query row of several heads has in common with several rows of one head.
#pragma once

#include <saccade/problem.h>

namespace saccade {

/// The same problem, of the same tensors, with the query heads of each key head as rows of one head, where
/// they can be: one query row a head, which sees every key of its sequence, and nothing that depends on the
/// head (ALiBi, sinks). Kernels that compute tiles of rows then read each key once instead of once a head.
/// Other problems come back as they are.
[[nodiscard]] Problem heads_as_rows(const Problem& problem);

}  // namespace saccade
