#include "bench_record.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "command.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;

Json verification(const KernelResult& kernel) {
  const Verdict& verdict = *kernel.verified;
  Json json = {{"passed", verdict.passed()},
               {"relative_l2", rounded(verdict.relative_l2)},
               {"max_error", rounded(verdict.max_error)},
               {"rows_checked", verdict.rows_checked},
               {"rows_total", verdict.rows_total}};
  if (!kernel.repro.empty()) json["repro"] = kernel.repro;
  return json;
}

/// What no query asks for.
Json details(const ShapeResult& shape, const KernelResult& kernel) {
  Json json = Json::object();
  if (kernel.rejected) json["rejected"] = true;
  if (kernel.verified) json["verified"] = verification(kernel);
  if (!kernel.timed()) return json;
  if (kernel.kernel == shape.chosen) json["chosen"] = true;
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

store::Measurement record(const ShapeResult& shape, const KernelResult& kernel) {
  const Problem& problem = shape.of.problem;
  store::Measurement m;
  m.shape = to_string(problem);
  m.kernel = kernel.kernel;
  m.config = kernel.config;
  m.threads = shape.threads;
  m.timer = shape.device.kind == DeviceKind::cuda ? store::Timer::device : store::Timer::host;
  m.caches = shape.cold ? store::Caches::cold : store::Caches::warm;
  m.not_timed = kernel.not_timed;
  if (kernel.verified) m.verified = kernel.verified->passed();
  m.flops = flops(problem);
  m.bytes = min_bytes(problem);
  m.flops_ceiling = shape.fma_flops_per_second;
  m.bytes_ceiling = shape.read_bytes_per_second;
  m.calls_per_sample = kernel.samples.calls_per_sample;
  m.converged = kernel.samples.converged;
  m.seconds = kernel.seconds;
  m.samples = kernel.samples.seconds;
  m.details = details(shape, kernel);
  return m;
}

}  // namespace

double rounded(double x) {
  if (!std::isfinite(x) || x == 0) return x;
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(x))) - 4);
  // Dividing by a whole number where possible prints as the short decimal that is meant.
  return unit < 1 ? std::round(x / unit) / std::round(1 / unit) : std::round(x / unit) * unit;
}

Bound bound(const ShapeResult& shape) {
  const double compute_seconds = flops(shape.of.problem) / shape.fma_flops_per_second;
  const double memory_seconds = min_bytes(shape.of.problem) / shape.read_bytes_per_second;
  return compute_seconds >= memory_seconds ? Bound::compute : Bound::memory;
}

std::vector<BarResult> judge_bars(const ShapeResult& shape) {
  auto chosen = std::ranges::find_if(shape.kernels, [&](const KernelResult& kernel) {
    return kernel.timed() && kernel.kernel == shape.chosen;
  });
  if (chosen == shape.kernels.end()) chosen = std::ranges::find_if(shape.kernels, &KernelResult::timed);
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
      const bool fma = bar.what == Bar::What::fma;
      const double rate = (fma ? flops(problem) : min_bytes(problem)) / chosen->seconds.median;
      const double ceiling = fma ? shape.fma_flops_per_second : shape.read_bytes_per_second;
      result.value = 100 * rate / ceiling;
      result.met = result.value >= bar.value;
    }
    results.push_back(result);
  }
  return results;
}

store::Run run_record(const measure::Provenance& provenance, const Bench& bench) {
  const bool on_gpu = bench.device().kind == DeviceKind::cuda && !provenance.gpus.gpus.empty();
  Result<store::Run> run = store::describe_run(
      provenance, on_gpu ? provenance.gpus.gpus.at(static_cast<std::size_t>(bench.device().index)).name
                         : provenance.host.cpu_model);
  if (!run.ok()) throw CommandError(run.status());
  run->details = {{"device", to_string(bench.device())},
                  {"threads", bench.threads()},
                  {"caches", bench.options().cold ? "cold" : "warm"},
                  {"budget_seconds", bench.options().budget_seconds},
                  {"ceilings",
                   {{"fma_gflops", rounded(bench.fma_flops_per_second() / 1e9)},
                    {"copy_gbps", rounded(bench.copy_bytes_per_second() / 1e9)}}}};
  return std::move(run).value();
}

std::vector<store::Measurement> shape_records(const ShapeResult& shape) {
  std::vector<store::Measurement> records;
  for (const KernelResult& kernel : shape.kernels) records.push_back(record(shape, kernel));
  const auto timed = std::ranges::find_if(shape.kernels, &KernelResult::timed);
  if (timed == shape.kernels.end()) return records;
  Json& judged = records[static_cast<std::size_t>(timed - shape.kernels.begin())].details;
  for (const BarResult& bar : judge_bars(shape)) {
    judged["bars"].push_back({{"bar", to_string(bar.bar)}, {"value", rounded(bar.value)}, {"met", bar.met}});
  }
  return records;
}

}  // namespace saccade::cli
