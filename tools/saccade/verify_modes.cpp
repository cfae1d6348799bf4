#include "verify_modes.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "console.h"
#include "kernel_choice.h"
#include "verify/fuzz.h"
#include "verify/planted.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;

std::vector<PlanOptions> fuzzable(const std::vector<std::string>& texts, const std::string& device) {
  std::vector<PlanOptions> kernels;
  for (const KernelChoice& kernel : choose_kernels(texts, {}, device)) {
    if (!kernel.config.empty())
      throw CommandError(kBadInput, "--fuzz takes kernels by name only, without settings");
    kernels.push_back(kernel.options(0));
  }
  return kernels;
}

Json failure_json(const FuzzFailure& failure) {
  Json json = {{"kernel", failure.kernel},
               {"seed", failure.seed},
               {"shape", to_string(failure.problem)},
               {"smallest", to_string(failure.smallest)},
               {"repro", failure.repro}};
  for (const Failure& each : failure.verdict.failures) {
    json["failures"].push_back({{"check", to_string(each.check)}, {"detail", each.detail}});
  }
  return json;
}

void print_failure(const FuzzFailure& failure) {
  fmt::print("FAILED {} on {}\n  smallest that fails: {}\n", failure.kernel, to_string(failure.problem),
             to_string(failure.smallest));
  for (const Failure& each : failure.verdict.failures)
    fmt::print("  {}: {}\n", to_string(each.check), each.detail);
  fmt::print("  repeat: {}\n", failure.repro);
}

}  // namespace

ExitCode run_self_test(std::uint64_t seed, const Globals& globals) {
  Table table({{"planted bug"}, {"dtype"}, {"caught by"}, {"what it does"}});
  Json results = Json::array();
  std::size_t missed = 0;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const SelfTestResult& bug : self_test(dtype, seed)) {
      Json checks = Json::array();
      std::string names;
      for (const Check check : bug.caught_by) {
        checks.push_back(to_string(check));
        names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(check));
      }
      missed += bug.caught() ? 0 : 1;
      table.add({std::string(bug.name), std::string(to_string(dtype)), bug.caught() ? names : "NOTHING",
                 std::string(bug.description)});
      results.push_back({{"bug", bug.name},
                         {"dtype", to_string(dtype)},
                         {"shape", to_string(bug.problem)},
                         {"caught", bug.caught()},
                         {"caught_by", checks}});
    }
  }
  if (globals.json) {
    print_json({{"schema", "saccade.selftest/1"}, {"missed", missed}, {"results", results}});
  } else {
    fmt::print("{}\n{} planted bugs, {} missed\n", table.text(), results.size(), missed);
  }
  return missed > 0 ? kCheckFailed : kOk;
}

ExitCode run_fuzz(std::int64_t count, std::uint64_t seed, const std::vector<std::string>& kernels,
                  const std::string& device, const Globals& globals) {
  Progress progress(static_cast<std::size_t>(count));
  const FuzzResult result = fuzz(count, seed, fuzzable(kernels, device), [&](std::int64_t done) {
    progress.show(static_cast<std::size_t>(done), "random problems");
  });
  progress.clear();
  if (globals.json) {
    Json failures = Json::array();
    for (const FuzzFailure& failure : result.failures) failures.push_back(failure_json(failure));
    print_json({{"schema", "saccade.fuzz/1"},
                {"seed", seed},
                {"problems", result.problems},
                {"runs", result.runs},
                {"failures", failures}});
  } else {
    for (const FuzzFailure& failure : result.failures) print_failure(failure);
    fmt::print("{} random problems from seed {}, {} failures\n", result.problems, seed,
               result.failures.size());
    for (const auto& [name, runs] : result.runs) fmt::print("  {:<14} took {}\n", name, runs);
  }
  const bool in_vain = result.failures.empty() && result.problems < count;
  if (in_vain) fmt::print(stderr, "no random problem was found that one of these kernels takes\n");
  return result.failures.empty() && !in_vain ? kOk : kCheckFailed;
}

}  // namespace saccade::cli
