#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

#include <saccade/plan.h>

#include "cases.h"
#include "kernel_choice.h"
#include "subcommand.h"

namespace saccade::cli {
namespace {

struct Options {
  CaseSelection cases;
  std::string kernel;
  std::string config;
  int threads = 0;
};

int explain(const Options& options, const Globals& globals) {
  if (options.cases.shapes.empty() && options.cases.files.empty()) {
    throw CommandError(kBadInput, "explain needs a SHAPE or --cases");
  }
  PlanOptions plan_options;
  if (!options.kernel.empty())
    plan_options = parse_kernel(options.kernel, options.config).options(options.threads);
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

}  // namespace

void add_explain(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app, globals, "explain", "Which kernel serves a shape, and why no faster one",
                  [options](Globals& g) { return explain(*options, g); });
  command->add_option("SHAPE", options->cases.shapes, "Shapes, e.g. 'b1 h8 l512 d64 f16 causal'");
  add_cases_option(*command, options->cases);
  command->add_option("--kernel", options->kernel, "Insist on this kernel");
  command->add_option("--config", options->config, "Kernel settings, 'key=value ...'");
  command->add_option("--threads", options->threads, "CPU threads at most (0: all)");
}

}  // namespace saccade::cli
