// The figures of a report, drawn by gnuplot as SVG. Each function ends the command when gnuplot is missing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace saccade::cli {

/// What a figure is drawn on.
enum class Paper {
  white,  ///< a picture of its own: white background, with a title
  clear,  ///< part of a page that has its own background and headings
};

/// One figure: its SVG documents, or the sentence that says why there is none.
struct Figure {
  std::vector<std::string> svgs{};
  std::string left_out{};
};

using Documents = std::vector<nlohmann::ordered_json>;

/// Each shape's fastest kernel as a percentage of the ceiling that binds it, one bar a dtype.
[[nodiscard]] Figure speed_figure(const Documents& documents, Paper paper);
/// Each kernel's speed-up over the baseline it was timed against.
[[nodiscard]] Figure speedup_figure(const Documents& documents, Paper paper);
/// Every timed kernel under the roofs that were measured beside it.
[[nodiscard]] Figure roofline_figure(const Documents& documents, Paper paper);
/// Time against the number of keys, a line for each kernel and each family of shapes that differ in nothing
/// else. More lines than one picture can show are spread over several.
[[nodiscard]] Figure latency_figure(const Documents& documents, Paper paper);
/// The kernels of the shape that has most of them, slowest first, and what each step gains.
[[nodiscard]] Figure ladder_figure(const Documents& documents, Paper paper);

}  // namespace saccade::cli
