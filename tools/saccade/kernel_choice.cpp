#include "kernel_choice.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

#include "command.h"
#include "cuda/launch/runtime.h"

namespace saccade::cli {

PlanOptions KernelChoice::options(int threads) const {
  PlanOptions options;
  options.kernel = name;
  options.config = config;
  options.threads = threads;
  options.device = device;
  return options;
}

Device parse_device(const std::string& text) {
  if (text.empty()) {
    const Device gpu{DeviceKind::cuda, 0};
    return device::machine(gpu.index).ok() ? gpu : Device{};
  }
  if (text == "cpu") return {};
  if (text == "cuda") return {DeviceKind::cuda, 0};
  int index = 0;
  const std::string_view digits = text.starts_with("cuda:") ? std::string_view(text).substr(5) : "";
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
    throw CommandError(kBadInput, fmt::format("--device is '{}'; it must be cpu, cuda or cuda:N", text));
  }
  return {DeviceKind::cuda, index};
}

KernelChoice parse_kernel(const std::string& text, const std::string& config, const std::string& device) {
  const std::size_t colon = text.find(':');
  KernelChoice choice{text.substr(0, colon), colon == std::string::npos ? config : text.substr(colon + 1)};
  const std::vector<KernelInfo> known = kernels();
  const auto found = std::ranges::find(known, choice.name, &KernelInfo::name);
  if (found == known.end()) {
    std::string names;
    for (const KernelInfo& kernel : known)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", kernel.name);
    throw CommandError(kBadInput,
                       fmt::format("there is no kernel '{}'; this build has {}", choice.name, names));
  }
  if (device.empty()) {
    choice.device.kind = found->device;
  } else {
    choice.device = parse_device(device);
    if (choice.device.kind != found->device) {
      throw CommandError(kBadInput, fmt::format("kernel '{}' does not run on {}", choice.name, device));
    }
  }
  return choice;
}

std::vector<KernelChoice> choose_kernels(const std::vector<std::string>& texts, const std::string& config,
                                         const std::string& device) {
  std::vector<KernelChoice> choices;
  if (texts.empty()) {
    if (!config.empty())
      throw CommandError(kBadInput, "--config needs --kernel: settings belong to one kernel");
    const Device chosen = parse_device(device);
    for (const KernelInfo& kernel : kernels()) {
      if (kernel.device == chosen.kind) choices.push_back({std::string(kernel.name), {}, chosen});
    }
    if (choices.empty()) {
      throw CommandError(kMissing, fmt::format("device {} is not available: this build has no kernels for it",
                                               to_string(chosen)));
    }
  }
  for (const std::string& text : texts) choices.push_back(parse_kernel(text, config, device));
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
