#include "bench_document.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "command.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Five digits: more than any timing holds, and diffs stay readable.
double rounded(double x) {
  if (!std::isfinite(x) || x == 0) return x;
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(x))) - 4);
  // Dividing by a whole number where possible prints as the short decimal that is meant.
  return unit < 1 ? std::round(x / unit) / std::round(1 / unit) : std::round(x / unit) * unit;
}

double microseconds(double seconds) {
  return rounded(seconds * 1e6);
}

Json verification(const KernelResult& kernel) {
  if (!kernel.verified) return nullptr;
  const Verdict& verdict = *kernel.verified;
  Json json = {{"passed", verdict.passed()},
               {"relative_l2", rounded(verdict.relative_l2)},
               {"max_error", rounded(verdict.max_error)},
               {"rows_checked", verdict.rows_checked},
               {"rows_total", verdict.rows_total}};
  if (!kernel.repro.empty()) json["repro"] = kernel.repro;
  return json;
}

Json times(const KernelResult& kernel) {
  const measure::Summary& s = kernel.seconds;
  return {{"median_us", microseconds(s.median)},
          {"low_us", microseconds(s.interval.low)},
          {"high_us", microseconds(s.interval.high)},
          {"min_us", microseconds(s.min)},
          {"p95_us", microseconds(s.p95)},
          {"samples", s.samples},
          {"calls_per_sample", kernel.samples.calls_per_sample},
          {"converged", kernel.samples.converged}};
}

Json kernel_json(const ShapeResult& shape, const KernelResult& kernel) {
  Json json = {{"kernel", kernel.kernel}};
  if (!kernel.timed()) {
    json[kernel.rejected ? "rejected" : "not_timed"] = kernel.not_timed;
    if (kernel.verified) json["verified"] = verification(kernel);
    return json;
  }
  const Problem& problem = shape.of.problem;
  json["config"] = kernel.config;
  json["verified"] = verification(kernel);
  json["time"] = times(kernel);
  const double flops_per_second = flops(problem) / kernel.seconds.median;
  const double bytes_per_second = min_bytes(problem) / kernel.seconds.median;
  json["gflops"] = rounded(flops_per_second / 1e9);
  json["fma_percent"] = rounded(100 * flops_per_second / shape.fma_flops_per_second);
  json["gbps"] = rounded(bytes_per_second / 1e9);
  json["read_percent"] = rounded(100 * bytes_per_second / shape.read_bytes_per_second);
  json["workspace_bytes"] = kernel.workspace_bytes;
  if (kernel.grown_bytes) json["extra_bytes"] = kernel.workspace_bytes + *kernel.grown_bytes;
  if (kernel.speedup) {
    json["speedup"] = {{"baseline", shape.baseline},
                       {"value", rounded(kernel.speedup->value)},
                       {"low", rounded(kernel.speedup->interval.low)},
                       {"high", rounded(kernel.speedup->interval.high)},
                       {"verdict", measure::to_string(kernel.speedup->verdict)}};
  }
  return json;
}

Json shape_json(const ShapeResult& shape) {
  const Problem& problem = shape.of.problem;
  Json json = {{"shape", to_string(problem)}, {"flops", flops(problem)}, {"bytes", min_bytes(problem)}};
  if (shape.read_bytes_per_second > 0) {
    json["read_ceiling_gbps"] = rounded(shape.read_bytes_per_second / 1e9);
    json["fma_ceiling_gflops"] = rounded(shape.fma_flops_per_second / 1e9);
    json["bound"] = bound(shape) == Bound::compute ? "compute" : "memory";
  }
  for (const BarResult& bar : judge_bars(shape)) {
    json["bars"].push_back({{"bar", to_string(bar.bar)}, {"value", rounded(bar.value)}, {"met", bar.met}});
  }
  json["kernels"] = Json::array();
  for (const KernelResult& kernel : shape.kernels) json["kernels"].push_back(kernel_json(shape, kernel));
  return json;
}

}  // namespace

Bound bound(const ShapeResult& shape) {
  const double compute_seconds = flops(shape.of.problem) / shape.fma_flops_per_second;
  const double memory_seconds = min_bytes(shape.of.problem) / shape.read_bytes_per_second;
  return compute_seconds >= memory_seconds ? Bound::compute : Bound::memory;
}

std::vector<BarResult> judge_bars(const ShapeResult& shape) {
  const auto chosen = std::ranges::find_if(shape.kernels, &KernelResult::timed);
  if (chosen == shape.kernels.end()) return {};
  const Problem& problem = shape.of.problem;
  std::vector<BarResult> results;
  for (const Bar& bar : shape.of.bars) {
    BarResult result{.bar = bar};
    if (bar.what == Bar::What::extra) {
      if (!chosen->grown_bytes) continue;
      result.value = static_cast<double>(chosen->workspace_bytes + *chosen->grown_bytes) / (1 << 20);
      result.met = result.value <= bar.value;
    } else {
      const double rate =
          (bar.what == Bar::What::fma ? flops(problem) : min_bytes(problem)) / chosen->seconds.median;
      const double ceiling =
          bar.what == Bar::What::fma ? shape.fma_flops_per_second : shape.read_bytes_per_second;
      result.value = 100 * rate / ceiling;
      result.met = result.value >= bar.value;
    }
    results.push_back(result);
  }
  return results;
}

Json bench_document(const measure::Provenance& provenance, const Bench& bench,
                    const std::vector<ShapeResult>& shapes) {
  Json document = {{"schema", kBenchSchema},
                   {"provenance", provenance},
                   {"device", "cpu"},
                   {"threads", bench.threads()},
                   {"caches", bench.options().cold ? "cold" : "warm"},
                   {"budget_seconds", bench.options().budget_seconds},
                   {"ceilings",
                    {{"fma_gflops", rounded(bench.fma_flops_per_second() / 1e9)},
                     {"copy_gbps", rounded(bench.copy_bytes_per_second() / 1e9)}}}};
  document["results"] = Json::array();
  for (const ShapeResult& shape : shapes) document["results"].push_back(shape_json(shape));
  return document;
}

Json load_bench_document(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) throw CommandError(kBadInput, fmt::format("{} cannot be read", file));
  Json document = Json::parse(stream, nullptr, false);
  if (document.is_discarded()) throw CommandError(kBadInput, fmt::format("{} is not JSON", file));
  const std::string schema = document.is_object() ? document.value("schema", "") : "";
  if (schema != kBenchSchema) {
    throw CommandError(kBadInput,
                       fmt::format("{} has the schema '{}'; '{}' is needed", file, schema, kBenchSchema));
  }
  return document;
}

void write_file(const std::string& file, const std::string& text) {
  namespace fs = std::filesystem;
  const fs::path path(file);
  const fs::path draft(file + ".tmp");
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  std::ofstream stream(draft, std::ios::binary);
  stream << text << std::flush;
  if (!stream) throw CommandError(kBadInput, fmt::format("{} cannot be written", file));
  stream.close();
  fs::rename(draft, path, error);
  if (error) throw CommandError(kBadInput, fmt::format("{} cannot be written: {}", file, error.message()));
}

}  // namespace saccade::cli
