// Benchmark results as text for a terminal.
#pragma once

#include <string>

#include "bench_shape.h"

namespace saccade::cli {

/// "FMA 340 GFLOP/s on 2 threads", "matrix 650000 GFLOP/s on cuda:0".
[[nodiscard]] std::string peak_text(const Bench& bench);

/// One block: the shape, a table of its kernels, what was not timed and why, bars and warnings. `best_fma` is
/// the run's best rate, by which warnings tell whether the machine was quiet.
[[nodiscard]] std::string shape_text(const ShapeResult& shape, double best_fma);

/// Whether the times of the shape's first kernel scatter more than a quiet machine's do.
[[nodiscard]] bool is_noisy(const ShapeResult& shape);

/// What to doubt about a shape's numbers, one sentence each.
[[nodiscard]] std::vector<std::string> noise_warnings(const ShapeResult& shape, double best_fma);

}  // namespace saccade::cli
