// What figures are made of: the timed kernels of benchmark documents, and the look that figures share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include <saccade/problem.h>

#include "plot.h"

namespace saccade::cli {

/// One kernel that was timed on one shape. Points into the documents.
struct TimedKernel {
  const nlohmann::ordered_json* document = nullptr;
  const nlohmann::ordered_json* result = nullptr;  ///< the shape
  const nlohmann::ordered_json* kernel = nullptr;
  Problem problem;
  std::string name;  ///< with its settings where the shape has the same kernel twice
  double median_us = 0, low_us = 0, high_us = 0;
};

/// In the documents' order, in which a shape's first kernel is the planner's choice.
[[nodiscard]] std::vector<TimedKernel> timed_kernels(const Documents& documents);

/// Of every figure, in pixels: narrow enough that a phone need not shrink the words much.
inline constexpr int kFigureWidth = 660;

/// The n-th series' colour, "'#rrggbb'": each has a contrast of at least 3.8 on white and on near-black.
[[nodiscard]] std::string series_color(std::size_t n);
/// The n-th series' gnuplot point type; all are told apart without colour.
[[nodiscard]] int series_point(std::size_t n);

/// The terminal, borders and grid; the picture comes out on standard output.
[[nodiscard]] std::string figure_head(Paper paper, int height, const std::string& title);

/// "('1 us' 1, '10 us' 10, ...)": marks of a logarithmic axis of microseconds.
[[nodiscard]] std::string time_marks(double from_us, double to_us);

}  // namespace saccade::cli
