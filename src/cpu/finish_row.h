// The end of a row's online softmax, the same for every CPU kernel.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <saccade/problem.h>
#include <saccade/run.h>

#include "core/sequence.h"

namespace saccade {

/// Adds the head's sink to a softmax with maximum m and sum l (base 2), writes the row's lse, and returns the
/// factor that turns the accumulated row into o.
inline float finish_row(const Problem& p, const Tensors& t, const Sequence& s, std::int64_t head,
                        std::int64_t query, float m, float l) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float weight = 1;
  if (p.sinks) {
    const float sink = std::numbers::log2e_v<float> * t.sinks[head];
    const float top = std::isnan(sink) ? sink : std::max(m, sink);
    if (top != -kInfinity) {
      weight = std::exp2(m - top);
      l = l * weight + std::exp2(sink - top);
      m = top;
    }
  }
  const bool empty = m == -kInfinity && !(l > 0 || std::isnan(l));
  if (p.lse) {
    t.lse[lse_offset(p, s, head, query)] =
        empty ? -kInfinity : std::numbers::ln2_v<float> * (m + std::log2(l));
  }
  return empty ? 0 : weight / l;
}

}  // namespace saccade
