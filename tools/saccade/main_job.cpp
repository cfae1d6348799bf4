#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench_document.h"
#include "bench_record.h"
#include "bench_shape.h"
#include "bench_text.h"
#include "cases.h"
#include "commands.h"
#include "console.h"
#include "cuda/launch/runtime.h"
#include "cuda_driver.h"
#include "gnuplot.h"
#include "kernel_choice.h"
#include "plot.h"
#include "report_html.h"
#include "report_text.h"
#include "runs.h"

namespace saccade::cli {
namespace {

constexpr char kLine[] = "{:<40}  {:<23}  {:<8}  {:>9}  {:>8}  {:>9}  {}\n";

void print_rows(const ShapeResult& shape) {
  const Problem& problem = shape.of.problem;
  std::string name = to_string(problem);
  for (const KernelResult& kernel : shape.kernels) {
    if (kernel.rejected) continue;
    if (kernel.timed()) {
      const double seconds = kernel.seconds.median;
      const bool compute = bound(shape) == Bound::compute;
      const double percent = compute ? 100 * flops(problem) / seconds / shape.fma_flops_per_second
                                     : 100 * min_bytes(problem) / seconds / shape.read_bytes_per_second;
      const std::string speedup = kernel.speedup ? fmt::format("{}x {}", format_number(kernel.speedup->value),
                                                               measure::to_string(kernel.speedup->verdict))
                                                 : "";
      fmt::print(kLine, name, kernel.kernel, kernel.verified ? "yes" : "no", format_seconds(seconds),
                 format_number(flops(problem) / seconds / 1e9),
                 format_percent(percent) + (compute ? "  " : " *"), speedup);
    } else {
      fmt::print(kLine, name, kernel.kernel, kernel.failed() ? "FAILED" : "-", "-", "-", "-  ",
                 kernel.not_timed);
      if (!kernel.repro.empty()) fmt::print("    repeat: {}\n", kernel.repro);
    }
    name.clear();
  }
  std::fflush(stdout);
}

void print_device_line(Device device, const CudaDevices& cuda) {
  if (device.kind == DeviceKind::cuda) {
    fmt::print("device: {}, {}\n", to_string(device),
               cuda.devices.at(static_cast<std::size_t>(device.index)).name);
  } else if (cuda.devices.empty()) {
    fmt::print("device: cpu; {}\n", cuda.why_none);
  } else {
    fmt::print("device: cpu; {} is here, but {}\n", cuda.devices[0].name,
               device::machine(0).status().message());
  }
}

}  // namespace

int run_main_job(const MainJobOptions& options, const Globals& globals) {
  const std::vector<Case> cases = load_cases(find_case_file("mission"));
  BenchOptions how;
  how.kernels = choose_kernels({});
  how.budget_seconds = options.budget_seconds;
  if (!globals.json) print_device_line(how.kernels.front().device, find_cuda_devices());

  Progress progress(cases.size());
  progress.show(0, "measuring what this machine can do");
  Bench bench(how);
  progress.clear();
  if (!globals.json) {
    fmt::print("ceilings: {}; read bandwidth is measured over each shape's own footprint\n\n",
               peak_text(bench));
    fmt::print(kLine, "shape", "kernel", "verified", "time", "GFLOP/s", "of peak  ",
               "against the last kernel");
  }
  Recorder recorder(options.store, measure::collect_provenance(how.seed, globals.command_line), bench);
  std::vector<ShapeResult> results;
  for (const Case& each : cases) {
    const std::string name = to_string(each.problem);
    results.push_back(
        bench.run(each, [&](const std::string& what) { progress.show(results.size(), name + ": " + what); }));
    progress.clear();
    recorder.add(results.back());
    if (!globals.json) print_rows(results.back());
  }

  const nlohmann::ordered_json document = bench_document(recorder.finish());
  const std::string stem = options.out_dir + "/mission";
  const bool picture = has_gnuplot() && std::ranges::any_of(results, &ShapeResult::any_timed);
  write_file(stem + ".json", document.dump(1) + "\n");
  write_file(stem + ".md",
             fmt::format("# Saccade on this machine\n\n{}\n{}{}", provenance_markdown(document),
                         table_markdown(document, Rows::all), picture ? "\n![speed](mission.svg)\n" : ""));
  if (picture) {
    write_file(stem + ".svg", speed_figure({document}, Paper::white).svgs.at(0));
    write_file(stem + ".html", html_report({document}));
  }
  if (globals.json) {
    print_json(document);
  } else {
    fmt::print("\n* of the read bandwidth over the same footprint; the others are of the {} peak\n",
               bench.device().kind == DeviceKind::cuda ? "matrix" : "FMA");
    if (const auto noisy = std::ranges::count_if(results, is_noisy); noisy > 0) {
      fmt::print("noise: the times of {} of {} shapes scatter by more than 5%; is something else running?\n",
                 noisy, results.size());
    }
    fmt::print("report: {0}.md ({0}.json{1}\n", stem,
               picture ? fmt::format(", {0}.svg); page: {0}.html", stem) : ")");
  }
  const auto failed = [](const ShapeResult& shape) {
    return std::ranges::any_of(shape.kernels, &KernelResult::failed);
  };
  return std::ranges::any_of(results, failed) ? kCheckFailed : kOk;
}

}  // namespace saccade::cli
