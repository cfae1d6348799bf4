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
#include "kernel_choice.h"
#include "runs.h"

namespace saccade::cli {
namespace {

BenchOptions resolve(const BenchCommandOptions& options) {
  BenchOptions bench = options.bench;
  bench.verify = !options.no_verify;
  bench.kernels = choose_kernels(options.kernels, options.config, options.device);
  if (options.baseline.empty()) return bench;
  bench.baseline = parse_kernel(options.baseline).label();
  const auto same = [&](const KernelChoice& kernel) { return kernel.label() == bench.baseline; };
  if (std::ranges::none_of(bench.kernels, same)) bench.kernels.push_back(parse_kernel(options.baseline));
  return bench;
}

}  // namespace

int run_bench(const BenchCommandOptions& options, const Globals& globals) {
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
  Recorder recorder(options.store, measure::collect_provenance(resolved.seed, globals.command_line), bench);
  if (!globals.json) {
    fmt::print("ceilings: FMA {} GFLOP/s on {} threads, copy {} GB/s beyond the caches\n\n",
               format_number(bench.fma_flops_per_second() / 1e9), bench.threads(),
               format_number(bench.copy_bytes_per_second() / 1e9));
  }
  bool failed = false;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string name = to_string(cases[i].problem);
    const ShapeResult result =
        bench.run(cases[i], [&](const std::string& what) { progress.show(i, name + ": " + what); });
    progress.clear();
    recorder.add(result);  // before it is shown: what was seen is kept
    if (!globals.json) fmt::print("{}\n", shape_text(result, bench.fma_flops_per_second()));
    std::fflush(stdout);
    failed |= std::ranges::any_of(result.kernels, &KernelResult::failed);
    if (options.check_bars) {
      failed |= std::ranges::any_of(judge_bars(result), [](const BarResult& bar) { return !bar.met; });
    }
  }
  const store::WholeRun whole = recorder.finish();
  const nlohmann::ordered_json document = bench_document(whole);
  if (!options.out.empty()) write_file(options.out, document.dump(1) + "\n");
  if (globals.json) {
    print_json(document);
  } else {
    if (!options.out.empty()) fmt::print("written: {}\n", options.out);
    if (!recorder.file().empty()) fmt::print("stored: run {} in {}\n", whole.run.id, recorder.file());
  }
  return failed ? kCheckFailed : kOk;
}

}  // namespace saccade::cli
