#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench_document.h"
#include "bench_shape.h"
#include "bench_text.h"
#include "cases.h"
#include "console.h"
#include "kernel_choice.h"
#include "subcommand.h"

namespace saccade::cli {
namespace {

struct Options {
  CaseSelection cases;
  std::vector<std::string> kernels;
  std::string baseline;
  std::string config;
  std::string out;
  bool no_verify = false;
  bool check_bars = false;
  BenchOptions bench;
};

BenchOptions resolve(const Options& options) {
  BenchOptions bench = options.bench;
  bench.verify = !options.no_verify;
  bench.kernels = choose_kernels(options.kernels, options.config);
  if (options.baseline.empty()) return bench;
  bench.baseline = parse_kernel(options.baseline).label();
  const auto same = [&](const KernelChoice& kernel) { return kernel.label() == bench.baseline; };
  if (std::ranges::none_of(bench.kernels, same)) bench.kernels.push_back(parse_kernel(options.baseline));
  return bench;
}

int run_bench(const Options& options, const Globals& globals) {
  const std::vector<Case> cases = options.cases.load("mission");
  const BenchOptions resolved = resolve(options);
  // Wrong settings should be known before anything is measured.
  for (const Case& each : cases) {
    for (const KernelChoice& kernel : resolved.kernels)
      (void)try_plan(each.problem, kernel, resolved.threads);
  }
  Progress progress(cases.size());
  progress.show(0, "measuring ceilings");
  Bench bench(resolved);
  progress.clear();
  if (!globals.json) {
    fmt::print("ceilings: FMA {} GFLOP/s on {} threads, copy {} GB/s beyond the caches\n\n",
               format_number(bench.fma_flops_per_second() / 1e9), bench.threads(),
               format_number(bench.copy_bytes_per_second() / 1e9));
  }
  std::vector<ShapeResult> results;
  bool failed = false;
  for (const Case& each : cases) {
    const std::string name = to_string(each.problem);
    results.push_back(
        bench.run(each, [&](const std::string& what) { progress.show(results.size(), name + ": " + what); }));
    progress.clear();
    if (!globals.json) fmt::print("{}\n", shape_text(results.back(), bench.fma_flops_per_second()));
    std::fflush(stdout);
    failed |= std::ranges::any_of(results.back().kernels, &KernelResult::failed);
    if (options.check_bars) {
      failed |=
          std::ranges::any_of(judge_bars(results.back()), [](const BarResult& bar) { return !bar.met; });
    }
  }
  const auto provenance = measure::collect_provenance(resolved.seed, globals.command_line);
  const nlohmann::ordered_json document = bench_document(provenance, bench, results);
  if (!options.out.empty()) write_file(options.out, document.dump(1) + "\n");
  if (globals.json) {
    print_json(document);
  } else {
    if (!options.out.empty()) fmt::print("written: {}\n", options.out);
  }
  return failed ? kCheckFailed : kOk;
}

}  // namespace

void add_bench(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app, globals, "bench", "Time kernels side by side against the machine's ceilings",
                  [options](Globals& g) { return run_bench(*options, g); });
  command->add_option("SHAPE", options->cases.shapes, "Shapes (default: the case file 'mission')");
  add_cases_option(*command, options->cases);
  command
      ->add_option("--kernel", options->kernels,
                   "Kernels: NAME or 'NAME:key=value ...' (default: all that take the shape)")
      ->allow_extra_args(false);
  command->add_option("--config", options->config, "Settings for the named kernels, 'key=value ...'");
  command->add_option("--baseline", options->baseline,
                      "Kernel that the others are compared with (default: the last)");
  command->add_option("--threads", options->bench.threads, "CPU threads (0: all)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--budget", options->bench.budget_seconds, "Seconds of sampling for each shape")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--cold", options->bench.cold, "Empty the caches before every sample");
  command->add_flag("--no-verify", options->no_verify, "Time kernels that were not verified first");
  command
      ->add_option("--verify-rows", options->bench.verify_rows,
                   "Rows compared with the oracle at most (0: all)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--check-bars", options->check_bars, "Exit with 1 when a bar of a case file is not met");
  command->add_option("--seed", options->bench.seed, "Seed of data, order and resampling")
      ->capture_default_str();
  command->add_option("--out", options->out, "Write the results to this JSON file");
}

}  // namespace saccade::cli
