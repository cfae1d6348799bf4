#include "plot.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include <saccade/problem.h>

#include "command.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr DType kSeries[] = {DType::f32, DType::f16, DType::bf16};
constexpr const char* kColors[] = {"#1f4e79", "#d9822b", "#3a8f5c"};

/// Percentages of one shape, dtype apart.
struct Group {
  std::string label;
  bool memory_bound = false;
  std::map<DType, double> percent{};
};

/// The shape without its dtype, and without what nearly all shapes share.
std::string label_of(const Problem& problem) {
  std::string text = to_string(problem);
  const std::string dtype = fmt::format(" {}", to_string(problem.dtype));
  if (const std::size_t at = text.find(dtype); at != std::string::npos) text.erase(at, dtype.size());
  if (text.starts_with("b1 ")) text.erase(0, 3);
  return text;
}

std::vector<Group> collect(const std::vector<Json>& documents) {
  std::vector<Group> groups;
  for (const Json& document : documents) {
    for (const Json& result : document.at("results")) {
      const Result<Problem> problem = parse_problem(result.at("shape").get<std::string>());
      if (!problem.ok()) throw CommandError(problem.status());
      const Json& kernels = result.at("kernels");
      const auto timed =
          std::ranges::find_if(kernels, [](const Json& kernel) { return kernel.contains("time"); });
      if (timed == kernels.end()) continue;
      const std::string label = label_of(problem.value());
      auto group = std::ranges::find(groups, label, &Group::label);
      if (group == groups.end()) group = groups.insert(groups.end(), Group{.label = label});
      group->memory_bound = result.at("bound") == "memory";
      group->percent[problem->dtype] =
          timed->at(group->memory_bound ? "read_percent" : "fma_percent").get<double>();
    }
  }
  return groups;
}

std::string script(const std::vector<Group>& groups, const std::string& svg_file) {
  const int width = std::max(640, 160 + 44 * static_cast<int>(groups.size()));
  std::string text = fmt::format(
      "set terminal svg size {},460 enhanced font 'Helvetica,Arial,sans-serif,14' background rgb '#ffffff'\n"
      "set output '{}'\n"
      "set title 'Speed as % of what the machine can do' font ',17'\n"
      "set ylabel '% of ceiling'\nset yrange [0:100]\nset ytics 20\n"
      "set grid ytics lc rgb '#d0d0d0'\nset border 3 lc rgb '#606060'\nset tics nomirror\n"
      "set key outside top right horizontal\n"
      "set style data histogram\nset style histogram clustered gap 1\nset style fill solid 0.95 noborder\n"
      "set boxwidth 0.9\nset xtics rotate by -38 font ',11' scale 0\nset bmargin 9\nset rmargin 14\n"
      "set label 'FMA peak; * read bandwidth over the same footprint' at graph 0, 1.05 font ',11' textcolor "
      "rgb '#606060'\n",
      width, svg_file);
  text += "$data << END\n";
  for (const Group& group : groups) {
    text += fmt::format("\"{}{}\"", group.label, group.memory_bound ? " *" : "");
    for (const DType dtype : kSeries) {
      const auto found = group.percent.find(dtype);
      text += found == group.percent.end() ? " NaN" : fmt::format(" {:.1f}", found->second);
    }
    text += '\n';
  }
  text += "END\n";
  std::string command = "plot";
  for (std::size_t i = 0; i < std::size(kSeries); ++i) {
    const auto has_series = [&](const Group& group) { return group.percent.contains(kSeries[i]); };
    if (std::ranges::none_of(groups, has_series)) continue;  // gnuplot does not draw empty series
    text += fmt::format("{} $data using {}:xtic(1) lc rgb '{}' title '{}'", command, i + 2, kColors[i],
                        to_string(kSeries[i]));
    command = ",";
  }
  return text + '\n';
}

struct ClosePipe {
  void operator()(std::FILE* pipe) const { pclose(pipe); }
};

}  // namespace

bool has_gnuplot() {
  return std::system("command -v gnuplot > /dev/null 2>&1") == 0;
}

void plot_speed(const std::vector<Json>& documents, const std::string& svg_file) {
  if (!has_gnuplot()) throw CommandError(kMissing, "gnuplot is not installed; it draws the picture");
  if (svg_file.find('\'') != std::string::npos) {
    throw CommandError(kBadInput, fmt::format("{}: gnuplot cannot write to a name with a quote", svg_file));
  }
  const std::vector<Group> groups = collect(documents);
  if (groups.empty()) throw CommandError(kBadInput, "there is no timed shape to draw");
  std::unique_ptr<std::FILE, ClosePipe> pipe(popen("gnuplot", "w"));
  if (pipe == nullptr) throw CommandError(kMissing, "gnuplot cannot be started");
  fmt::print(pipe.get(), "{}", script(groups, svg_file));
  if (pclose(pipe.release()) != 0)
    throw CommandError(kInternalError, "gnuplot failed; its words stand above");
}

}  // namespace saccade::cli
