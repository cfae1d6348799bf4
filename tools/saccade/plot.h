// Pictures by gnuplot.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace saccade::cli {

/// Whether gnuplot can be run.
[[nodiscard]] bool has_gnuplot();

/// Draws the speed of each shape's fastest kernel as a percentage of the ceiling that binds it, one bar a
/// dtype, as SVG. Ends the command when gnuplot is missing or fails.
void plot_speed(const std::vector<nlohmann::ordered_json>& documents, const std::string& svg_file);

}  // namespace saccade::cli
