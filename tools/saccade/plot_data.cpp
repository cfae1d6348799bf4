#include "plot_data.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "command.h"
#include "gnuplot.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kColors = {"#2b7bba", "#c8621a", "#2e8b57", "#a05fc0", "#d1495b",
                                "#8a7a2a", "#1a8f99", "#b0578d", "#6b7f99", "#a4683c"};
// Filled and hollow circles, squares, triangles, diamonds.
constexpr std::array kPoints = {7, 5, 9, 13, 11, 6, 4, 8, 12, 10};

std::string name_of(const Json& kernel, const Json& kernels) {
  const Json& name = kernel.at("kernel");
  const auto namesakes = std::ranges::count_if(
      kernels, [&](const Json& other) { return other.contains("time") && other.at("kernel") == name; });
  const std::string settings = namesakes > 1 ? kernel.value("config", "") : "";
  return name.get<std::string>() + (settings.empty() ? "" : " " + settings);
}

}  // namespace

std::vector<TimedKernel> timed_kernels(const Documents& documents) {
  std::vector<TimedKernel> timed;
  for (const Json& document : documents) {
    for (const Json& result : document.at("results")) {
      const Result<Problem> problem = parse_problem(result.at("shape").get<std::string>());
      if (!problem.ok()) throw CommandError(problem.status());
      const Json& kernels = result.at("kernels");
      for (const Json& kernel : kernels) {
        if (!kernel.contains("time")) continue;
        const auto microseconds = [&](const char* key) { return kernel.at("time").at(key).get<double>(); };
        TimedKernel one{.document = &document,
                        .result = &result,
                        .kernel = &kernel,
                        .problem = problem.value(),
                        .name = name_of(kernel, kernels),
                        .median_us = microseconds("median_us"),
                        .low_us = microseconds("low_us"),
                        .high_us = microseconds("high_us")};
        if (!(one.low_us > 0 && one.low_us <= one.median_us && one.median_us <= one.high_us)) {
          throw CommandError(kBadInput, fmt::format("the times of {} on {} are not 0 < low <= median <= high",
                                                    one.name, result.at("shape").get<std::string>()));
        }
        timed.push_back(std::move(one));
      }
    }
  }
  return timed;
}

std::string series_color(std::size_t n) {
  return fmt::format("'{}'", kColors[n % kColors.size()]);
}

int series_point(std::size_t n) {
  return kPoints[n % kPoints.size()];
}

std::string figure_head(Paper paper, int height, const std::string& title) {
  std::string text = fmt::format(
      "set terminal svg size {},{} noenhanced font 'Helvetica,Arial,sans-serif,13'{}\n"
      "set border 3 lw 1\nset tics nomirror\nset tics scale 0.6,0.3\nset errorbars 0.6\n"
      "set grid lt 1 lw 0.5 lc rgb '#a0808080'\n",  // grey, mostly transparent: visible on both backgrounds
      kFigureWidth, height, paper == Paper::white ? " background rgb '#ffffff'" : "");
  if (paper == Paper::white) text += fmt::format("set title {} font ',16'\n", gnuplot_quoted(title));
  return text;
}

std::string time_marks(double from_us, double to_us) {
  const bool narrow = to_us / from_us < 200;  // decades alone would leave hardly two marks
  std::string marks;
  for (int exponent = -3; exponent <= 10; ++exponent) {
    for (const int digit : {1, 2, 5}) {
      const double us = digit * std::pow(10.0, exponent);
      if ((digit != 1 && !narrow) || us < from_us || us > to_us) continue;
      const auto [unit, name] = us < 999     ? std::pair{1.0, "us"}
                                : us < 999e3 ? std::pair{1e3, "ms"}
                                             : std::pair{1e6, "s"};
      marks += fmt::format("{}'{:g} {}' {:g}", marks.empty() ? "" : ", ", us / unit, name, us);
    }
  }
  return "(" + marks + ")";
}

}  // namespace saccade::cli
