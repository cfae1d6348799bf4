#include "bench_text.h"

#include <algorithm>
#include <fmt/format.h>

#include "bench_record.h"
#include "console.h"

namespace saccade::cli {
namespace {

std::string interval_text(const measure::Interval& interval) {
  return fmt::format("{} .. {}", format_seconds(interval.low), format_seconds(interval.high));
}

std::string speedup_text(const measure::Speedup& speedup) {
  return fmt::format("{}x [{}, {}] {}", format_number(speedup.value), format_number(speedup.interval.low),
                     format_number(speedup.interval.high), measure::to_string(speedup.verdict));
}

constexpr double kWidePercent = 5;

double interval_percent(const KernelResult& kernel) {
  return 100 * kernel.seconds.interval.width() / kernel.seconds.median;
}

std::string samples_text(const KernelResult& kernel) {
  const int batch = kernel.samples.calls_per_sample;
  return batch == 1 ? fmt::format("{}", kernel.seconds.samples)
                    : fmt::format("{}x{}", kernel.seconds.samples, batch);
}

}  // namespace

std::string peak_text(const Bench& bench) {
  const std::string rate = format_number(bench.fma_flops_per_second() / 1e9);
  return bench.device().kind == DeviceKind::cuda
             ? fmt::format("matrix {} GFLOP/s on {}", rate, to_string(bench.device()))
             : fmt::format("FMA {} GFLOP/s on {} threads", rate, bench.threads());
}

bool is_noisy(const ShapeResult& shape) {
  const auto first = std::ranges::find_if(shape.kernels, &KernelResult::timed);
  return first != shape.kernels.end() && interval_percent(*first) > kWidePercent;
}

std::vector<std::string> noise_warnings(const ShapeResult& shape, double best_fma) {
  std::vector<std::string> warnings;
  const char* peak = shape.device.kind == DeviceKind::cuda ? "matrix" : "FMA";
  if (shape.any_timed() && shape.fma_flops_per_second < 0.9 * best_fma) {
    warnings.push_back(
        fmt::format("the machine gave only {:.0f}% of its {} peak around this shape: something else runs",
                    100 * shape.fma_flops_per_second / best_fma, peak));
  }
  for (const KernelResult& kernel : shape.kernels) {
    if (!kernel.timed()) continue;
    const bool above_fma = flops(shape.of.problem) / kernel.seconds.median > shape.fma_flops_per_second;
    const bool above_read = min_bytes(shape.of.problem) / kernel.seconds.median > shape.read_bytes_per_second;
    if (above_fma || above_read) {
      warnings.push_back(
          fmt::format("{} is above 100%: the {} ceiling was measured on a busy machine; repeat this",
                      kernel.kernel, above_fma ? peak : "read"));
    }
    if (kernel.samples.converged) continue;
    const double percent = interval_percent(kernel);
    if (percent > kWidePercent) {
      warnings.push_back(
          fmt::format("{}: the interval is still {:.0f}% wide after {} samples; raise --budget",
                      kernel.kernel, percent, kernel.seconds.samples));
    }
  }
  return warnings;
}

std::string shape_text(const ShapeResult& shape, double best_fma) {
  using enum Table::Align;
  const Problem& problem = shape.of.problem;
  const bool on_gpu = shape.device.kind == DeviceKind::cuda;
  std::string text = fmt::format(
      "{}   ({} GFLOP, {}, {}{})\n", to_string(problem), format_number(flops(problem) / 1e9),
      format_bytes(min_bytes(problem)),
      on_gpu ? to_string(shape.device) + ", device time" : fmt::format("{} threads", shape.threads),
      shape.cold ? ", cold caches" : "");
  const std::string against = shape.baseline.empty() ? "" : "vs " + shape.baseline;
  Table table({{"kernel"},
               {"verified"},
               {"median", right},
               {"95% interval"},
               {"min", right},
               {"p95", right},
               {"samples", right},
               {"GFLOP/s", right},
               {on_gpu ? "% matrix" : "% FMA", right},
               {"GB/s", right},
               {"% read", right},
               {against},
               {"workspace", right},
               {"extra", right}});
  for (const KernelResult& kernel : shape.kernels) {
    if (!kernel.timed()) continue;
    const measure::Summary& s = kernel.seconds;
    const double flops_per_second = flops(problem) / s.median;
    const double bytes_per_second = min_bytes(problem) / s.median;
    const std::string compared = kernel.speedup           ? speedup_text(*kernel.speedup)
                                 : shape.baseline.empty() ? ""
                                                          : "baseline";
    table.add({kernel.kernel, kernel.verified ? "yes" : "no", format_seconds(s.median),
               interval_text(s.interval), format_seconds(s.min), format_seconds(s.p95), samples_text(kernel),
               format_number(flops_per_second / 1e9),
               format_percent(100 * flops_per_second / shape.fma_flops_per_second),
               format_number(bytes_per_second / 1e9),
               format_percent(100 * bytes_per_second / shape.read_bytes_per_second), compared,
               format_bytes(static_cast<double>(kernel.workspace_bytes)),
               kernel.grown_bytes
                   ? format_bytes(static_cast<double>(kernel.workspace_bytes + *kernel.grown_bytes))
                   : ""});
  }
  text += table.text("  ");
  for (const KernelResult& kernel : shape.kernels) {
    if (!kernel.timed()) {
      text += fmt::format("  {}{}: {}\n", kernel.kernel, kernel.rejected ? " rejects" : "", kernel.not_timed);
    }
    if (!kernel.repro.empty()) text += fmt::format("    repeat: {}\n", kernel.repro);
  }
  for (const BarResult& bar : judge_bars(shape)) {
    text += fmt::format("  bar: {}: {} ({})\n", to_string(bar.bar), bar.met ? "met" : "NOT MET",
                        format_number(bar.value));
  }
  for (const std::string& warning : noise_warnings(shape, best_fma))
    text += fmt::format("  noise: {}\n", warning);
  return text;
}

}  // namespace saccade::cli
