#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "cupti.h"
#include "profile.h"
#include "verify/case_data.h"

namespace saccade::cli {

int run_launch(const LaunchOptions& options, const Globals& globals) {
  const Problem problem = one_problem(options.cases, "launch");
  const CaseData data(problem, options.seed);
  const Runner runner = kernel_runner(cuda_plan(options.kernel));
  std::unique_ptr<CuptiTrace> trace;
  if (options.cupti) trace = std::make_unique<CuptiTrace>();
  for (std::int64_t i = 0; i < options.times; ++i) {
    if (const Status status = runner(problem, data.tensors()); !status.ok()) throw CommandError(status);
  }
  nlohmann::ordered_json document = {
      {"schema", "saccade.launch/1"}, {"shape", to_string(problem)}, {"calls", options.times}};
  if (trace != nullptr) {
    document["kernel_us"] = trace->microseconds();
    if (!trace->why_none().empty()) document["why_no_times"] = trace->why_none();
  }
  if (globals.json) {
    print_json(document);
  } else {
    fmt::print("{} calls\n", options.times);
  }
  return kOk;
}

}  // namespace saccade::cli
