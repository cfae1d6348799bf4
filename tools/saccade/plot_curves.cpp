// Figures with two logarithmic axes.
#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "console.h"
#include "gnuplot.h"
#include "plot_data.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Range {
  double low = std::numeric_limits<double>::max();
  double high = 0;

  void add(double x) {
    low = std::min(low, x);
    high = std::max(high, x);
  }
};

struct Roof {
  double gflops = 0;
  double gbps = 0;

  [[nodiscard]] double ridge() const { return gflops / gbps; }
  [[nodiscard]] std::string name(const std::string& what) const {
    return fmt::format("{}: {} GFLOP/s, {} GB/s", what, format_number(gflops), format_number(gbps));
  }
};

/// The shape without its length, which is the number of its keys.
std::string family_of(const Problem& problem) {
  std::istringstream tokens(to_string(problem));
  std::string family, token;
  while (tokens >> token) {
    const std::size_t digits = token.find_first_of("0123456789");
    const std::string key = token.substr(0, digits);
    if (digits != std::string::npos && (key == "l" || key == "lk")) continue;
    family += (family.empty() ? "" : " ") + token;
  }
  return family;
}

struct Line {
  std::string family;
  std::string kernel;
  std::map<std::int64_t, const TimedKernel*> by_length{};
};

std::string draw_lines(const std::vector<Line>& lines, Paper paper) {
  Range time, length;
  std::set<std::int64_t> lengths;
  for (const Line& line : lines) {
    for (const auto& [keys, timed] : line.by_length) {
      time.add(timed->low_us);
      time.add(timed->high_us);
      length.add(static_cast<double>(keys));
      lengths.insert(keys);
    }
  }
  std::string marks;
  for (const std::int64_t keys : lengths) marks += fmt::format("{}{}", marks.empty() ? "" : ", ", keys);
  const double from = time.low / 1.4, to = time.high * 1.4;
  const int key_rows = static_cast<int>(lines.size());
  std::string text =
      figure_head(paper, 410 + 20 * key_rows, "Time against length") +
      fmt::format(
          "set logscale xy\nset xrange [{:g}:{:g}]\nset yrange [{:g}:{:g}]\nset xtics {}\nset ytics {}\n"
          "unset mxtics\nset xlabel 'keys' offset 0,0.5\nset key below left Left reverse maxcols 1 samplen "
          "3\n",
          length.low / 1.15, length.high * 1.15, from, to,
          lengths.size() <= 12 ? "(" + marks + ")" : "autofreq", time_marks(from, to));
  std::string command;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    text += fmt::format("$line{} << END\n", i);
    for (const auto& [keys, timed] : lines[i].by_length) {
      text += fmt::format("{} {:g} {:g} {:g}\n", keys, timed->median_us, timed->low_us, timed->high_us);
    }
    text += "END\n";
    command +=
        fmt::format("{} $line{} using 1:2:3:4 with yerrorlines lt 1 lw 1.6 ps 0.7 pt {} lc rgb {} title {}",
                    i == 0 ? "plot" : ",", i, series_point(i), series_color(i),
                    gnuplot_quoted(fmt::format("{}, {}", lines[i].family, lines[i].kernel)));
  }
  return run_gnuplot(text + command + "\n");
}

}  // namespace

Figure roofline_figure(const Documents& documents, Paper paper) {
  const std::vector<TimedKernel> all = timed_kernels(documents);
  if (all.empty()) return {.left_out = "No shape was timed, so there is nothing to place on a roofline."};
  Range fma, read, copy, intensity, rate;
  std::vector<std::string> names;
  std::map<std::string, std::string> points;
  for (const TimedKernel& timed : all) {
    const Json& ceilings = timed.document->at("ceilings");
    fma.add(timed.result->value("fma_ceiling_gflops", ceilings.at("fma_gflops").get<double>()));
    read.add(timed.result->at("read_ceiling_gbps").get<double>());
    copy.add(ceilings.at("copy_gbps").get<double>());
    const double x = timed.result->at("flops").get<double>() / timed.result->at("bytes").get<double>();
    const double y = timed.kernel->at("gflops").get<double>();
    intensity.add(x);
    rate.add(y);
    if (!points.contains(timed.name)) names.push_back(timed.name);
    points[timed.name] += fmt::format("{:g} {:g}\n", x, y);
  }
  if (!(read.low > 0 && fma.low > 0 && copy.low > 0 && intensity.low > 0 && rate.low > 0)) {
    return {.left_out = "A ceiling or a rate is zero, which has no place on a roofline's axes."};
  }
  const Roof high{fma.high, read.high}, low{fma.low, read.low}, memory{fma.high, copy.high};
  const double from = std::min(intensity.low, high.ridge()) / 2;
  const double to = std::max({intensity.high, low.ridge(), memory.ridge()}) * 2;
  std::string text =
      figure_head(paper, 430 + 20 * (static_cast<int>(names.size()) + 3), "Roofline") +
      fmt::format(
          "set logscale xy\nset format '%g'\nset xrange [{:g}:{:g}]\nset yrange [{:g}:{:g}]\n"
          "set xlabel 'operations per byte of q, k, v and o' offset 0,0.5\nset ylabel 'GFLOP/s'\n"
          "set key below left Left reverse maxcols 1 samplen 3 spacing 1.1\n",
          from, to, std::min(rate.low, std::min(low.gbps, memory.gbps) * from) / 1.5, high.gflops * 1.6);
  std::string command = "plot";
  const auto roof = [&](const char* block, const Roof& r, const std::string& name, const char* look) {
    text += fmt::format("${0} << END\n{1:g} {2:g}\n{3:g} {4:g}\n{5:g} {4:g}\nEND\n", block, from,
                        r.gbps * from, r.ridge(), r.gflops, to);
    command += fmt::format(" ${} with lines lt -1 {} title {},", block, look, gnuplot_quoted(name));
  };
  roof("high", high, high.name("highest roof"), "lw 1.8");
  if (fma.low < fma.high || read.low < read.high) roof("low", low, low.name("lowest roof"), "lw 1.2 dt 2");
  roof("copy", memory, memory.name("roof of a copy"), "lw 1.2 dt 3");
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += fmt::format("$kernel{} << END\n{}END\n", i, points[names[i]]);
    command += fmt::format("{} $kernel{} with points pt {} ps 0.9 lc rgb {} title {}", i > 0 ? "," : "", i,
                           series_point(i), series_color(i), gnuplot_quoted(names[i]));
  }
  return {.svgs = {run_gnuplot(text + command + "\n")}};
}

Figure latency_figure(const Documents& documents, Paper paper) {
  const std::vector<TimedKernel> all = timed_kernels(documents);
  std::vector<Line> lines;
  for (const TimedKernel& timed : all) {
    if (timed.problem.len_kv <= 0) continue;
    const std::string family = family_of(timed.problem);
    const auto same = [&](const Line& line) { return line.family == family && line.kernel == timed.name; };
    auto line = std::ranges::find_if(lines, same);
    if (line == lines.end()) line = lines.insert(lines.end(), Line{.family = family, .kernel = timed.name});
    line->by_length[timed.problem.len_kv] = &timed;
  }
  std::erase_if(lines, [](const Line& line) { return line.by_length.size() < 2; });
  if (lines.empty()) {
    return {.left_out =
                "No kernel was timed on shapes that differ in their length alone, so there is no "
                "line of time against length to draw."};
  }
  // Kernels on the same shapes stand side by side.
  std::ranges::stable_sort(lines, {}, &Line::family);
  constexpr std::size_t kLinesAtMost = 10;  // as many as there are colours and marks
  const std::size_t pictures = (lines.size() + kLinesAtMost - 1) / kLinesAtMost;
  Figure figure;
  for (std::size_t i = 0; i < pictures; ++i) {
    const auto begin = lines.begin() + static_cast<std::ptrdiff_t>(i * lines.size() / pictures);
    const auto end = lines.begin() + static_cast<std::ptrdiff_t>((i + 1) * lines.size() / pictures);
    figure.svgs.push_back(draw_lines({begin, end}, paper));
  }
  return figure;
}

}  // namespace saccade::cli
