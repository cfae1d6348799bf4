// Figures made of bars that lie: names stay readable, and more shapes make the figure longer, not wider.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "console.h"
#include "gnuplot.h"
#include "plot_data.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Bar {
  std::string row;
  std::string series;
  double value = 0, low = 0, high = 0;
  std::string text{};  ///< stands behind the bar
};

struct BarChart {
  std::string title;
  std::string axis{};
  std::vector<Bar> bars{};
  double from = 0, to = 100;
  double origin = 0;  ///< where the bars start
  bool logarithmic = false;
  std::string marks = "autofreq";
  int bar_height = 13;  ///< pixels
  double gap = 0.6;     ///< between rows, in bars
};

std::vector<std::string> distinct(const std::vector<Bar>& bars, std::string Bar::*field) {
  std::vector<std::string> names;
  for (const Bar& bar : bars) {
    if (std::ranges::find(names, bar.*field) == names.end()) names.push_back(bar.*field);
  }
  return names;
}

/// Characters of the longest of the names, as they are drawn.
double longest(const std::vector<std::string>& names) {
  std::size_t characters = 0;
  for (const std::string& name : names)
    characters = std::max(characters, std::min(name.size(), kLongestPlotText));
  return static_cast<double>(characters);
}

std::string draw(const BarChart& chart, Paper paper) {
  const std::vector<std::string> rows = distinct(chart.bars, &Bar::row);
  const std::vector<std::string> series = distinct(chart.bars, &Bar::series);
  std::vector<std::string> data(series.size());
  std::string labels, row_marks;
  double y = chart.gap;
  for (const std::string& row : rows) {
    const double row_start = y;
    for (std::size_t s = 0; s < series.size(); ++s) {
      for (const Bar& bar : chart.bars) {
        if (bar.row != row || bar.series != series[s]) continue;
        data[s] += fmt::format("{:g} {:g} {:g} {:g} {:g} {:g} {:g} {:g}\n", bar.value, y + 0.5,
                               std::min(bar.value, chart.origin), std::max(bar.value, chart.origin), y + 0.05,
                               y + 0.95, bar.low, bar.high);
        labels += fmt::format("set label {} at first {:g}, first {:g} left offset 0.7,0 font ',10'\n",
                              gnuplot_quoted(bar.text), std::max(bar.high, chart.origin), y + 0.5);
        y += 1;
      }
    }
    row_marks +=
        fmt::format("{}{} {:g}", row_marks.empty() ? "" : ", ", gnuplot_tic(row), (row_start + y) / 2);
    y += chart.gap;
  }
  // gnuplot takes the names for wider than they are, at the bars' cost.
  const double left = 16 + 6.4 * longest(rows);
  const int key_columns =
      std::max(1, static_cast<int>((kFigureWidth - left - 80) / (50 + 7 * longest(series))));
  const int key_rows = (static_cast<int>(series.size()) + key_columns - 1) / key_columns;
  const int height =
      (paper == Paper::white ? 115 : 85) + 16 * key_rows + static_cast<int>(chart.bar_height * y);
  std::string text = figure_head(paper, height, chart.title);
  text += fmt::format(
      "set xlabel {} offset 0,0.6\nset xrange [{:g}:{:g}]\nset xtics {}\nset yrange [{:g}:-0.1]\nset ytics "
      "({}) "
      "scale 0 font "
      "',11'\n"
      "set grid noytics\nset lmargin at screen {:g}\nset rmargin 11\nset style fill solid 0.9 noborder\n",
      gnuplot_quoted(chart.axis), chart.from, chart.to, chart.marks, y, row_marks, left / kFigureWidth);
  text +=
      series.front().empty() ? "unset key\n" : "set key outside top center horizontal font ',11' samplen 2\n";
  if (chart.logarithmic) text += "set logscale x\n";
  if (chart.origin > chart.from)
    text += fmt::format("set arrow from first {0:g}, graph 0 to first {0:g}, graph 1 nohead lt -1 lw 1\n",
                        chart.origin);
  text += labels;
  std::string command = "plot";
  for (std::size_t s = 0; s < series.size(); ++s) {
    text += fmt::format("$series{} << END\n{}END\n", s, data[s]);
  }
  for (std::size_t s = 0; s < series.size(); ++s) {
    text += fmt::format("{0} $series{1} using 1:2:3:4:5:6 with boxxyerror lc rgb {2} title {3}", command, s,
                        series_color(s), gnuplot_quoted(series[s]));
    command = ",";
  }
  for (std::size_t s = 0; s < series.size(); ++s) {
    text += fmt::format(", $series{} using 1:2:7:8 with xerrorbars pt 0 lt -1 lw 1 notitle", s);
  }
  return run_gnuplot(text + "\n");
}

/// The shape without its dtype, and without what nearly all shapes share.
std::string label_of(const Problem& problem) {
  std::string text = to_string(problem);
  const std::string dtype = fmt::format(" {}", to_string(problem.dtype));
  if (const std::size_t at = text.find(dtype); at != std::string::npos) text.erase(at, dtype.size());
  if (text.starts_with("b1 ")) text.erase(0, 3);
  return text;
}

}  // namespace

Figure speed_figure(const Documents& documents, Paper paper) {
  BarChart chart{.title = "Speed as % of what the machine can do",
                 .axis = "% of the FMA peak; * of the read bandwidth"};
  const Json* shape = nullptr;
  for (const TimedKernel& timed : timed_kernels(documents)) {
    if (std::exchange(shape, timed.result) == timed.result) continue;  // only the planner's choice
    const bool memory_binds = timed.result->at("bound") == "memory";
    const double percent = timed.kernel->at(memory_binds ? "read_percent" : "fma_percent").get<double>();
    Bar bar{.row = label_of(timed.problem) + (memory_binds ? " *" : ""),
            .series = std::string(to_string(timed.problem.dtype)),
            .value = percent,
            .low = percent * timed.median_us / timed.high_us,
            .high = percent * timed.median_us / timed.low_us,
            .text = fmt::format("{:.1f}", percent)};
    chart.to = std::max(chart.to, std::ceil(bar.high / 10) * 10);
    const auto same = [&](const Bar& other) { return other.row == bar.row && other.series == bar.series; };
    std::erase_if(chart.bars, same);  // a shape that was measured again
    chart.bars.push_back(std::move(bar));
  }
  if (chart.bars.empty()) return {.left_out = "No shape was timed, so there is no speed to draw."};
  return {.svgs = {draw(chart, paper)}};
}

Figure speedup_figure(const Documents& documents, Paper paper) {
  std::vector<const TimedKernel*> compared;
  const std::vector<TimedKernel> all = timed_kernels(documents);
  std::vector<std::string> baselines;
  for (const TimedKernel& timed : all) {
    if (!timed.kernel->contains("speedup")) continue;
    compared.push_back(&timed);
    const std::string baseline = timed.kernel->at("speedup").at("baseline").get<std::string>();
    if (std::ranges::find(baselines, baseline) == baselines.end()) baselines.push_back(baseline);
  }
  if (compared.empty()) {
    return {.left_out = "No kernel was timed beside a baseline, so there is no speed-up to draw."};
  }
  BarChart chart{.title = "Speed-up", .from = 1, .to = 1, .origin = 1, .logarithmic = true};
  chart.axis = baselines.size() == 1 ? fmt::format("times as fast as {}, logarithmic", baselines[0])
                                     : "times as fast as the baseline, logarithmic";
  for (const TimedKernel* timed : compared) {
    const Json& speedup = timed->kernel->at("speedup");
    const double value = speedup.at("value").get<double>();
    Bar bar{.row = timed->result->at("shape").get<std::string>(),
            .series = timed->name,
            .value = value,
            .low = speedup.at("low").get<double>(),
            .high = speedup.at("high").get<double>(),
            .text = format_number(value) + "x"};
    if (bar.row.starts_with("b1 ")) bar.row.erase(0, 3);
    if (baselines.size() > 1) bar.text += " " + speedup.at("baseline").get<std::string>();
    if (!(bar.low > 0)) continue;  // has no place on a logarithmic axis
    chart.from = std::min(chart.from, bar.low / 1.1);
    chart.to = std::max(chart.to, bar.high * 1.1);
    chart.bars.push_back(std::move(bar));
  }
  if (chart.to / chart.from < 10) chart.marks = "(0.1, 0.2, 0.5, 0.8, 1, 1.2, 1.5, 2, 3, 5, 7, 10)";
  return {.svgs = {draw(chart, paper)}};
}

Figure ladder_figure(const Documents& documents, Paper paper) {
  const Problem mission = Problem::dense(1, 8, 512, 64, DType::f16);
  const std::vector<TimedKernel> all = timed_kernels(documents);
  const auto kernels_of = [&](const Json* shape) {
    return std::ranges::count(all, shape, &TimedKernel::result);
  };
  const TimedKernel* chosen = nullptr;
  for (const TimedKernel& timed : all) {
    const auto more = chosen == nullptr ? 1 : kernels_of(timed.result) - kernels_of(chosen->result);
    if (more > 0 || (more == 0 && timed.problem == mission && chosen->problem != mission)) chosen = &timed;
  }
  if (chosen == nullptr || kernels_of(chosen->result) < 2) {
    return {.left_out = "No shape was timed with more than one kernel, so there is no ladder to draw."};
  }
  std::vector<TimedKernel> steps;
  std::ranges::copy_if(all, std::back_inserter(steps),
                       [&](const TimedKernel& timed) { return timed.result == chosen->result; });
  std::ranges::stable_sort(steps, std::ranges::greater{}, &TimedKernel::median_us);

  // Without gaps the bars are stairs.
  BarChart chart{.title = "The ladder", .logarithmic = true, .bar_height = 24, .gap = 0};
  chart.axis = fmt::format("time of {}, logarithmic", chosen->result->at("shape").get<std::string>());
  chart.from = chart.origin = steps.back().low_us / 2;
  chart.to = std::ranges::max(steps, {}, &TimedKernel::high_us).high_us * 1.1;
  chart.marks = time_marks(chart.from, chart.to);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    std::string text = format_seconds(steps[i].median_us * 1e-6);
    if (i > 0) text += fmt::format(", {}x", format_number(steps[i - 1].median_us / steps[i].median_us));
    chart.bars.push_back({steps[i].name, "", steps[i].median_us, steps[i].low_us, steps[i].high_us, text});
  }
  return {.svgs = {draw(chart, paper)}};
}

}  // namespace saccade::cli
