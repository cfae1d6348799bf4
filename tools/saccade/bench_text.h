// Benchmark results as text for a terminal.
#pragma once

#include <string>

#include "bench_shape.h"

namespace saccade::cli {

/// One block: the shape, a table of its kernels, what was not timed and why, bars and warnings.
[[nodiscard]] std::string shape_text(const ShapeResult& shape, double fma_flops_per_second);

/// Whether the machine did not give its FMA peak around this shape.
[[nodiscard]] bool is_noisy(const ShapeResult& shape, double fma_flops_per_second);

/// What to doubt about a shape's numbers, one sentence each.
[[nodiscard]] std::vector<std::string> noise_warnings(const ShapeResult& shape, double fma_flops_per_second);

}  // namespace saccade::cli
