#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <saccade/plan.h>

#include "cases.h"
#include "commands.h"
#include "kernel_choice.h"

namespace saccade::cli {
int run_explain(const ExplainOptions& options, const Globals& globals) {
  if (options.cases.shapes.empty() && options.cases.files.empty()) {
    throw CommandError(kBadInput, "explain needs a SHAPE or --cases");
  }
  PlanOptions plan_options;
  if (options.kernel.empty()) {
    plan_options.device = parse_device(options.device);
  } else {
    plan_options = parse_kernel(options.kernel, options.config, options.device).options(options.threads);
  }
  plan_options.threads = options.threads;
  plan_options.config = plan_options.config.empty() ? options.config : plan_options.config;
  nlohmann::ordered_json plans = nlohmann::ordered_json::array();
  for (const Case& each : options.cases.load("mission")) {
    const Result<Plan> plan = make_plan(each.problem, plan_options);
    if (!plan.ok()) throw CommandError(plan.status());
    if (!globals.json) fmt::print("{}", plan->explain());
    plans.push_back({{"shape", to_string(each.problem)},
                     {"device", to_string(plan->device())},
                     {"kernel", plan->kernel()},
                     {"config", plan->config()},
                     {"workspace_bytes", plan->workspace_bytes()},
                     {"explanation", plan->explain()}});
  }
  if (globals.json) print_json({{"schema", "saccade.explain/1"}, {"plans", plans}});
  return kOk;
}

}  // namespace saccade::cli
