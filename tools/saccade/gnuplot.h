// Running gnuplot, and text that is safe in its scripts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace saccade::cli {

/// Whether gnuplot can be run.
[[nodiscard]] bool has_gnuplot();

/// What gnuplot prints for a script, which is the picture when the script sets no output. Ends the command
/// when gnuplot is missing or fails; its warnings (a tight key) are not for the reader of a report.
[[nodiscard]] std::string run_gnuplot(const std::string& script);

/// The text as a string of gnuplot's language that means exactly this text; control characters become blanks,
/// and what no figure has room for becomes "...".
[[nodiscard]] std::string gnuplot_quoted(std::string_view text);
/// The same for the label of a tic, which gnuplot reads as a format.
[[nodiscard]] std::string gnuplot_tic(std::string_view text);

/// Characters of a text at most, "..." included.
inline constexpr std::size_t kLongestPlotText = 54;

}  // namespace saccade::cli
