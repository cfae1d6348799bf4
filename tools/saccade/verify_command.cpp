#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cases.h"
#include "commands.h"
#include "console.h"
#include "kernel_choice.h"
#include "verify/verify.h"
#include "verify_modes.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Counts, and the document that --json prints.
struct Tally {
  Json results = Json::array();
  std::size_t passed = 0, failed = 0, rejected = 0;

  void reject(const std::string& shape, const KernelChoice& kernel, const std::string& why) {
    ++rejected;
    results.push_back({{"shape", shape}, {"kernel", kernel.label()}, {"rejected", why}});
  }

  void add(const std::string& shape, const KernelChoice& kernel, const VerifyOptions& how,
           const Verdict& verdict, const std::string& repro) {
    ++(verdict.passed() ? passed : failed);
    Json json = {{"shape", shape},
                 {"kernel", kernel.label()},
                 {"seed", how.seed},
                 {"passed", verdict.passed()},
                 {"relative_l2", verdict.relative_l2},
                 {"plain_relative_l2", verdict.plain_relative_l2},
                 {"max_error", verdict.max_error},
                 {"rows_checked", verdict.rows_checked},
                 {"rows_total", verdict.rows_total}};
    for (const Failure& failure : verdict.failures) {
      json["failures"].push_back({{"check", to_string(failure.check)}, {"detail", failure.detail}});
    }
    if (!verdict.passed()) json["repro"] = repro;
    results.push_back(std::move(json));
  }
};

constexpr char kLine[] = "{:<44}  {:<14}  {:>6}  {:<8}  {:>8}  {:>8}  {:>8}  {}\n";

void print_verdict(const std::string& shape, const KernelChoice& kernel, const VerifyOptions& how,
                   const Verdict& verdict, const std::string& repro) {
  fmt::print(kLine, shape, kernel.label(), how.seed, verdict.passed() ? "ok" : "FAILED",
             fmt::format("{:.1e}", verdict.relative_l2), fmt::format("{:.1e}", verdict.plain_relative_l2),
             fmt::format("{:.1e}", verdict.max_error),
             fmt::format("{}/{}", verdict.rows_checked, verdict.rows_total));
  for (const Failure& failure : verdict.failures)
    fmt::print("    {}: {}\n", to_string(failure.check), failure.detail);
  if (!verdict.passed()) fmt::print("    repeat: {}\n", repro);
}

/// All kernels that take the case, all seeds.
void verify_case(const Problem& problem, const std::vector<KernelChoice>& kernels,
                 const VerifyCommandOptions& options, const Globals& globals, Progress& progress,
                 std::size_t done, Tally& tally) {
  const std::string shape = to_string(problem);
  std::vector<KernelChoice> taking;
  std::vector<NamedRunner> runners;
  for (const KernelChoice& kernel : kernels) {
    const Planned planned = try_plan(problem, kernel, 0);
    if (planned.plan.empty()) {
      tally.reject(shape, kernel, planned.rejection);
      const bool asked_for = !options.kernels.empty();
      if (asked_for && !globals.json)
        fmt::print("{:<44}  {:<14}  rejects: {}\n", shape, kernel.label(), planned.rejection);
      continue;
    }
    taking.push_back(kernel);
    runners.push_back({kernel.quoted_label(), kernel_runner(kernel.options(0))});
  }
  if (taking.empty()) return;
  for (std::int64_t i = 0; i < options.seeds; ++i) {
    VerifyOptions how = options.how;
    how.seed += static_cast<std::uint64_t>(i);
    progress.show(done, fmt::format("{} seed {}", shape, how.seed));
    const std::vector<Verdict> verdicts = verify_each(problem, runners, how);
    progress.clear();
    for (std::size_t k = 0; k < taking.size(); ++k) {
      const std::string repro = repro_command(problem, taking[k], how);
      if (!globals.json) print_verdict(shape, taking[k], how, verdicts[k], repro);
      tally.add(shape, taking[k], how, verdicts[k], repro);
    }
  }
  std::fflush(stdout);
}

}  // namespace

int run_verify(const VerifyCommandOptions& options, const Globals& globals) {
  const bool names_shapes = !options.cases.shapes.empty() || !options.cases.files.empty();
  if (names_shapes && (options.self_test || options.fuzz > 0)) {
    throw CommandError(kBadInput,
                       "--self-test and --fuzz bring their own problems; leave shapes and --cases out");
  }
  if (options.self_test) return run_self_test(options.how.seed, globals);
  if (options.fuzz > 0)
    return run_fuzz(options.fuzz, options.how.seed, options.kernels, options.device, globals);
  const std::vector<Case> cases = options.cases.load("small");
  const std::vector<KernelChoice> kernels = choose_kernels(options.kernels, {}, options.device);
  Tally tally;
  Progress progress(cases.size());
  if (!globals.json) fmt::print(kLine, "shape", "kernel", "seed", "", "rel. L2", "plain's", "max", "rows");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    verify_case(cases[i].problem, kernels, options, globals, progress, i, tally);
  }
  if (globals.json) {
    print_json({{"schema", "saccade.verify/1"},
                {"passed", tally.passed},
                {"failed", tally.failed},
                {"rejected", tally.rejected},
                {"results", tally.results}});
  } else {
    fmt::print("\n{} passed, {} failed, {} rejected by a kernel\n", tally.passed, tally.failed,
               tally.rejected);
  }
  if (tally.passed + tally.failed == 0)
    throw CommandError(kBadInput, "no named kernel takes any of the shapes");
  return tally.failed > 0 ? kCheckFailed : kOk;
}

}  // namespace saccade::cli
