#include <algorithm>
#include <cctype>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <numeric>

#include "child_process.h"
#include "console.h"
#include "emu/model.h"
#include "ncu_metrics.h"
#include "profile.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The first call warms up; what is shown is the last.
constexpr std::size_t kCalls = 2;
/// Further runs for CUPTI, which disturbs less.
constexpr std::size_t kCuptiCalls = 20;

std::vector<std::string> child_command(const Problem& problem, const ProfileOptions& options,
                                       std::size_t times) {
  return {own_program(),
          "launch",
          to_string(problem),
          "--kernel",
          options.kernel,
          "--times",
          fmt::format("{}", times),
          "--seed",
          fmt::format("{}", options.seed)};
}

/// Nsight's view of all launches of the child.
std::vector<NcuKernel> run_ncu(const std::string& ncu, const std::vector<std::string>& child) {
  std::vector<std::string> names;
  for (const auto metrics : {ncu_metrics(), ncu_stalls()}) {
    for (const NcuMetric& metric : metrics) names.emplace_back(metric.name);
  }
  for (;;) {
    // Clocks and caches as they are when nobody looks: warm, as for bench.
    std::vector<std::string> command = {
        ncu,    "--csv",           "--page", "raw",      "--print-units", "base", "--clock-control",
        "none", "--cache-control", "none",   "--metrics"};
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ",") + name;
    command.push_back(list);
    command.insert(command.end(), child.begin(), child.end());
    const ChildResult result = run_child(command);
    const std::string said = result.out + "\n" + result.err;
    std::vector<NcuKernel> kernels = parse_ncu_csv(result.out);
    if (!kernels.empty()) return kernels;
    // Not every chip and version knows every metric.
    const std::vector<std::string> unknown = unknown_metrics(said, names);
    if (unknown.empty()) {
      const bool refused = said.find("ERR_NVGPUCTRPERM") != std::string::npos;
      throw CommandError(
          refused ? kMissing : kInternalError,
          fmt::format("ncu gave no counters (exit code {}){}:\n{}", result.exit_code,
                      refused ? "; the driver keeps them for the administrator" : "", last_lines(said, 8)));
    }
    std::erase_if(names, [&](const std::string& name) { return std::ranges::count(unknown, name) > 0; });
  }
}

/// CUPTI's time of one call.
struct CuptiTime {
  double median_us = 0;
  std::string why_none;
};

CuptiTime run_cupti(std::vector<std::string> child, std::size_t kernels_a_call) {
  child.insert(child.end(), {"--cupti", "--json"});
  const ChildResult result = run_child(child);
  const Json json = Json::parse(result.out, nullptr, false);
  if (!json.is_object()) return {0, "the run under CUPTI failed:\n" + last_lines(result.err, 3)};
  if (json.contains("why_no_times")) return {0, json.at("why_no_times").get<std::string>()};
  const auto times = json.at("kernel_us").get<std::vector<double>>();
  std::vector<double> calls;
  for (std::size_t i = 0; i + kernels_a_call <= times.size(); i += kernels_a_call) {
    calls.push_back(std::accumulate(times.begin() + static_cast<std::ptrdiff_t>(i),
                                    times.begin() + static_cast<std::ptrdiff_t>(i + kernels_a_call), 0.0));
  }
  if (calls.empty()) return {0, "CUPTI saw no kernel"};
  std::ranges::nth_element(calls, calls.begin() + static_cast<std::ptrdiff_t>(calls.size() / 2));
  return {calls[calls.size() / 2], {}};
}

double value_of(const NcuKernel& kernel, std::string_view metric) {
  const auto found = kernel.values.find(metric);
  return found == kernel.values.end() ? 0 : found->second;
}

std::string shown(const NcuMetric& metric, double value) {
  switch (metric.kind) {
    case NcuMetric::Kind::percent:
      return format_percent(value);
    case NcuMetric::Kind::bytes:
      return format_bytes(value);
    case NcuMetric::Kind::nanoseconds:
      return format_seconds(value * 1e-9);
    case NcuMetric::Kind::number:
      break;
  }
  return value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{:.2f}", value);
}

/// The chip of the model that a device's name has in it; null when the model does not know it.
const emu::Chip* chip_of(const CudaDevice& device) {
  std::string name = device.name;
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const emu::Chip& chip : emu::chips()) {
    const std::size_t at = name.find(chip.name);
    const std::size_t end = at + chip.name.size();
    // An L40 is no L4.
    if (at != std::string::npos &&
        (end == name.size() || std::isdigit(static_cast<unsigned char>(name[end])) == 0))
      return &chip;
  }
  return nullptr;
}

/// The whole call under the roofs of its chip.
struct Roofline {
  double microseconds = 0, flops = 0, dram_bytes = 0;
  double tflops = 0;     ///< reached
  double intensity = 0;  ///< operations for each byte of DRAM that was moved
  double roof = 0;       ///< TFLOP/s that the chip allows at this intensity; 0: not known
  double floor_us = 0;   ///< the fastest that the shape could be
};

Roofline roofline(const Problem& problem, const std::vector<NcuKernel>& call, const emu::Chip* chip) {
  Roofline r{.flops = flops(problem)};
  for (const NcuKernel& kernel : call) {
    r.microseconds += value_of(kernel, kNcuDuration) * 1e-3;
    r.dram_bytes += value_of(kernel, kNcuDramBytes);
  }
  if (r.microseconds > 0) r.tflops = r.flops / r.microseconds * 1e-6;
  if (r.dram_bytes > 0) r.intensity = r.flops / r.dram_bytes;
  if (chip != nullptr) {
    const double peak = chip->matrix_flops * chip->multiprocessors * chip->clock_ghz * 1e-3;
    r.roof = r.dram_bytes > 0 ? std::min(peak, r.intensity * chip->dram_gbps * 1e-3) : peak;
    r.floor_us = emu::model({}, *chip, {r.flops, min_bytes(problem)}).floor;
  }
  return r;
}

/// The reasons that kept most warps waiting.
std::vector<std::pair<const NcuMetric*, double>> worst_stalls(const NcuKernel& kernel, std::size_t top) {
  std::vector<std::pair<const NcuMetric*, double>> stalls;
  for (const NcuMetric& metric : ncu_stalls()) {
    if (const double value = value_of(kernel, metric.name); value > 0) stalls.emplace_back(&metric, value);
  }
  std::ranges::stable_sort(stalls, [](const auto& a, const auto& b) { return a.second > b.second; });
  if (stalls.size() > top) stalls.resize(top);
  return stalls;
}

void print_kernel(const NcuKernel& kernel, std::size_t top) {
  fmt::print("\n{}\n  grid {}, blocks of {}\n", kernel.name, kernel.grid, kernel.block);
  using enum Table::Align;
  Table table({{"measured", left}, {"", right}, {"", left}});
  for (const NcuMetric& metric : ncu_metrics()) {
    const auto found = kernel.values.find(metric.name);
    table.add({std::string(metric.title), found == kernel.values.end() ? "-" : shown(metric, found->second),
               std::string(metric.meaning)});
  }
  Table stalls({{"warps wait for", left}, {"warps", right}, {"", left}});
  for (const auto& [metric, value] : worst_stalls(kernel, top)) {
    stalls.add({std::string(metric->title), fmt::format("{:.2f}", value), std::string(metric->meaning)});
  }
  fmt::print("{}\n{}", table.text("  "), stalls.text("  "));
}

void print_call(const Roofline& r, const CuptiTime& cupti, const emu::Chip* chip) {
  fmt::print("\nThe call: {} by Nsight", format_seconds(r.microseconds * 1e-6));
  if (cupti.why_none.empty()) {
    fmt::print(
        ", {} by CUPTI (the median of {}; both are device time, `saccade bench` should say the same)\n",
        format_seconds(cupti.median_us * 1e-6), kCuptiCalls);
  } else {
    fmt::print("; no cross-check: {}\n", cupti.why_none);
  }
  fmt::print("Roofline: {} TFLOP/s at {} operations for each byte of DRAM", format_number(r.tflops),
             format_number(r.intensity));
  if (r.roof > 0) {
    fmt::print(", {} of the {} TFLOP/s that {} allows there (data sheet); the shape's floor is {}\n",
               format_percent(100 * r.tflops / r.roof), format_number(r.roof), chip->title,
               format_seconds(r.floor_us * 1e-6));
  } else {
    fmt::print("; the peaks of this chip are not known here\n");
  }
}

Json to_json(const NcuKernel& kernel) {
  Json values;
  for (const auto& [name, value] : kernel.values) values[name] = value;
  return {{"name", kernel.name}, {"grid", kernel.grid}, {"block", kernel.block}, {"metrics", values}};
}

}  // namespace

int profile_nsight(const Problem& problem, const ProfileOptions& options, const Globals& globals) {
  const CudaDevice device = require_gpu();
  const std::string ncu = require_program("ncu", "Nsight Compute reads the GPU's counters");
  std::vector<NcuKernel> kernels = run_ncu(ncu, child_command(problem, options, kCalls));
  const std::size_t kernels_a_call = std::max<std::size_t>(1, kernels.size() / kCalls);
  const std::vector<NcuKernel> call(kernels.end() - static_cast<std::ptrdiff_t>(kernels_a_call),
                                    kernels.end());
  const CuptiTime cupti = run_cupti(child_command(problem, options, kCuptiCalls), kernels_a_call);
  const emu::Chip* chip = chip_of(device);
  const Roofline roof = roofline(problem, call, chip);
  if (!globals.json) {
    fmt::print("{}  {}  on {}\n", to_string(problem), options.kernel, device.name);
    for (const NcuKernel& kernel : call) print_kernel(kernel, static_cast<std::size_t>(options.top));
    print_call(roof, cupti, chip);
    return kOk;
  }
  Json document = {
      {"schema", "saccade.profile/1"},    {"source", "nsight"},      {"shape", to_string(problem)},
      {"kernel", options.kernel},         {"device", device.name},   {"seed", options.seed},
      {"nsight_us", roof.microseconds},   {"tflops", roof.tflops},   {"dram_bytes", roof.dram_bytes},
      {"flops_per_byte", roof.intensity}, {"kernels", Json::array()}};
  if (chip != nullptr) {
    document["roof_tflops"] = roof.roof;
    document["floor_us"] = roof.floor_us;
  }
  if (cupti.why_none.empty()) {
    document["cupti_us"] = cupti.median_us;
  } else {
    document["why_no_cupti"] = cupti.why_none;
  }
  for (const NcuKernel& kernel : call) document["kernels"].push_back(to_json(kernel));
  print_json(document);
  return kOk;
}

}  // namespace saccade::cli
