#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <omp.h>

#include <saccade/plan.h>

#include "cuda/launch/runtime.h"
#include "plan/plan_state.h"
#include "plan/registry.h"

namespace saccade {
namespace {

/// The machine behind a device, or why it is not available.
Result<Machine> find_machine(const PlanOptions& options) {
  const Device device = options.device;
  const auto unavailable = [&](std::string_view why) {
    return Status(Code::device_unavailable,
                  fmt::format("device {} is not available: {}", to_string(device), why));
  };
  if (device.kind == DeviceKind::cuda) {
    Result<Machine> machine = device::machine(device.index);
    if (!machine.ok()) return unavailable(machine.status().message());
    return machine;
  }
  if (device.index != 0) return unavailable("the host is cpu, index 0");
  return Machine{.device = device, .threads = options.threads > 0 ? options.threads : omp_get_max_threads()};
}

}  // namespace

std::string to_string(Device device) {
  if (device.kind == DeviceKind::cuda) return fmt::format("cuda:{}", device.index);
  return device.index == 0 ? "cpu" : fmt::format("cpu:{}", device.index);
}

const Problem& Plan::problem() const noexcept {
  return state_->problem;
}
Device Plan::device() const noexcept {
  return state_->device;
}
std::string_view Plan::kernel() const noexcept {
  return state_->kernel->name;
}
const std::string& Plan::config() const noexcept {
  return state_->prepared.config;
}
std::size_t Plan::workspace_bytes() const noexcept {
  return state_->prepared.workspace_bytes;
}

std::string Plan::explain() const {
  const detail::PlanState& s = *state_;
  std::size_t width = s.kernel->name.size();
  for (const auto& [name, reason] : s.rejections) width = std::max(width, name.size());
  std::string text = fmt::format("{} on {}\n", to_string(s.problem), to_string(s.device));
  const auto line = [&](std::string_view name, const std::string& what) {
    text += fmt::format("  {:<{}} {}\n", name, width, what);
  };
  for (const auto& [name, reason] : s.rejections) line(name, "no: " + reason);
  line(s.kernel->name, fmt::format("chosen{}: {}", s.forced ? " by name" : "", s.kernel->summary));
  line("config", s.prepared.config.empty() ? "-" : s.prepared.config);
  line("workspace", fmt::format("{} bytes", s.prepared.workspace_bytes));
  return text;
}

std::vector<KernelInfo> kernels() {
  std::vector<KernelInfo> list;
  for (const Kernel* kernel : registry()) list.push_back({kernel->name, kernel->summary, kernel->device});
  return list;
}

Result<Plan> make_plan(const Problem& problem, const PlanOptions& options) {
  if (Status status = validate(problem); !status.ok()) return status;
  if (options.pointer_alignment <= 0 ||
      !std::has_single_bit(static_cast<unsigned>(options.pointer_alignment))) {
    return Status(Code::invalid_argument, fmt::format("pointer_alignment is {}; it must be a power of two",
                                                      options.pointer_alignment));
  }
  Result<Machine> machine = find_machine(options);
  if (!machine.ok()) return machine.status();
  machine->pointer_alignment = options.pointer_alignment;
  if (options.threads < 0) {
    return Status(Code::invalid_argument,
                  fmt::format("threads is {}; it must not be negative (0: all)", options.threads));
  }

  auto state = std::make_shared<detail::PlanState>();
  state->problem = problem;
  state->device = options.device;
  state->forced = !options.kernel.empty();
  state->trusted_pointers = options.trusted_pointers;
  for (const Kernel* kernel : registry()) {
    if (kernel->device != options.device.kind || (state->forced && kernel->name != options.kernel)) continue;
    if (auto reason = kernel->refusal(problem, machine.value(), state->forced)) {
      state->rejections.emplace_back(kernel->name, *std::move(reason));
      continue;
    }
    Result<Prepared> prepared = kernel->prepare(problem, machine.value(), options.config);
    if (!prepared.ok()) return prepared.status();
    state->kernel = kernel;
    state->prepared = std::move(prepared).value();
    return detail::PlanState::wrap(std::move(state));
  }
  if (state->rejections.empty()) {
    return Status(Code::invalid_argument, fmt::format("kernel '{}' is not in the registry for device {}",
                                                      options.kernel, to_string(options.device)));
  }
  std::string reasons;
  for (const auto& [name, reason] : state->rejections) reasons += fmt::format("; {}: {}", name, reason);
  return Status(Code::unsupported, fmt::format("no kernel takes {}{}", to_string(problem), reasons));
}

}  // namespace saccade
