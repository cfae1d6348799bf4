#include "kernel_choice.h"

#include <algorithm>
#include <fmt/format.h>

#include "command.h"

namespace saccade::cli {

PlanOptions KernelChoice::options(int threads) const {
  PlanOptions options;
  options.kernel = name;
  options.config = config;
  options.threads = threads;
  return options;
}

KernelChoice parse_kernel(const std::string& text, const std::string& config) {
  const std::size_t colon = text.find(':');
  KernelChoice choice{text.substr(0, colon), colon == std::string::npos ? config : text.substr(colon + 1)};
  const std::vector<KernelInfo> known = kernels();
  if (std::ranges::none_of(known, [&](const KernelInfo& kernel) { return kernel.name == choice.name; })) {
    std::string names;
    for (const KernelInfo& kernel : known)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", kernel.name);
    throw CommandError(kBadInput,
                       fmt::format("there is no kernel '{}'; this build has {}", choice.name, names));
  }
  return choice;
}

std::vector<KernelChoice> choose_kernels(const std::vector<std::string>& texts, const std::string& config) {
  std::vector<KernelChoice> choices;
  if (texts.empty()) {
    if (!config.empty())
      throw CommandError(kBadInput, "--config needs --kernel: settings belong to one kernel");
    for (const KernelInfo& kernel : kernels()) choices.push_back({std::string(kernel.name), {}});
  }
  for (const std::string& text : texts) choices.push_back(parse_kernel(text, config));
  return choices;
}

Planned try_plan(const Problem& problem, const KernelChoice& kernel, int threads) {
  Result<Plan> plan = make_plan(problem, kernel.options(threads));
  if (plan.ok()) return {{plan.value()}, {}};
  if (plan.status().code() != Code::unsupported) throw CommandError(plan.status());
  // "no kernel takes SHAPE; NAME: reason": a table needs the reason only.
  const std::string& sentence = plan.status().message();
  const std::string mark = fmt::format("; {}: ", kernel.name);
  const std::size_t at = sentence.find(mark);
  return {{}, at == std::string::npos ? sentence : sentence.substr(at + mark.size())};
}

std::string repro_command(const Problem& problem, const KernelChoice& kernel, const VerifyOptions& how) {
  return repro_line(problem, kernel.quoted_label(), how);
}

}  // namespace saccade::cli
