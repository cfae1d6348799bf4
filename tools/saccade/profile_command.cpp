#include <fmt/format.h>

#include "child_process.h"
#include "cuda/kernels.h"
#include "emu/model.h"
#include "profile.h"
#include "verify/emulated.h"

namespace saccade::cli {
namespace {

std::string listed(const std::string& so_far, std::string_view name) {
  return fmt::format("{}{}{}", so_far, so_far.empty() ? "" : ", ", name);
}

/// Names are the same on the GPU and in the emulator.
void check_kernel(const std::string& kernel) {
  const std::string name = kernel.substr(0, kernel.find(':'));
  if (find_emulated(name) != nullptr) return;
  std::string names;
  for (const Kernel* known : emulated::kernels()) names = listed(names, known->name);
  throw CommandError(kBadInput, fmt::format("there is no CUDA kernel '{}'; there are {}", name, names));
}

void check_chip(const std::string& chip) {
  if (emu::find_chip(chip) != nullptr) return;
  std::string names;
  for (const emu::Chip& known : emu::chips()) names = listed(names, known.name);
  throw CommandError(kBadInput, fmt::format("there is no chip '{}'; the model knows {}", chip, names));
}

}  // namespace

Problem one_problem(const CaseSelection& cases, std::string_view command) {
  if (cases.shapes.empty()) throw CommandError(kBadInput, fmt::format("{} needs a SHAPE", command));
  const std::vector<Case> all = cases.load("");
  if (all.size() != 1) {
    throw CommandError(kBadInput, fmt::format("{} takes one shape; {} were given", command, all.size()));
  }
  return all.front().problem;
}

PlanOptions cuda_plan(const std::string& kernel) {
  const std::size_t colon = kernel.find(':');
  PlanOptions plan;
  plan.device = {DeviceKind::cuda, 0};
  plan.kernel = kernel.substr(0, colon);
  if (colon != std::string::npos) plan.config = kernel.substr(colon + 1);
  return plan;
}

CudaDevice require_gpu() {
  CudaDevices found = find_cuda_devices();
  if (found.devices.empty()) throw CommandError(kMissing, fmt::format("no GPU: {}", found.why_none));
  if (device::kernels().empty()) {
    throw CommandError(kMissing, "this build has no GPU kernels: there was no nvcc when it was made");
  }
  return found.devices.front();
}

std::string require_program(const std::string& name, std::string_view purpose) {
  std::string file = find_program(name);
  if (file.empty()) {
    throw CommandError(kMissing, fmt::format("{} is not installed (neither in PATH nor in "
                                             "/usr/local/cuda/bin); {}",
                                             name, purpose));
  }
  return file;
}

int run_profile(const ProfileOptions& options, const Globals& globals) {
  const Problem problem = one_problem(options.cases, "profile");
  check_kernel(options.kernel);
  if (!options.chip.empty()) {
    check_chip(options.chip);
    if (!options.emulate) {
      throw CommandError(kBadInput, "--chip needs --emulate: a GPU that is here is measured, not modelled");
    }
  }
  return options.emulate ? profile_emulated(problem, options, globals)
                         : profile_nsight(problem, options, globals);
}

}  // namespace saccade::cli
