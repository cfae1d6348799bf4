// Which kernels a command works on, and how each is planned.
#pragma once

#include <string>
#include <vector>

#include <saccade/plan.h>

#include "verify/verify.h"

namespace saccade::cli {

/// A kernel by name, with settings where the user gave some.
struct KernelChoice {
  std::string name;
  std::string config;
  Device device{};

  /// The name, or "name:settings".
  [[nodiscard]] std::string label() const { return config.empty() ? name : name + ":" + config; }
  /// The label as one word of a shell.
  [[nodiscard]] std::string quoted_label() const { return config.empty() ? name : "'" + label() + "'"; }
  [[nodiscard]] PlanOptions options(int threads) const;
};

/// Reads "cpu", "cuda" or "cuda:N"; empty means the best device there is: the first GPU that this build has
/// kernels for, else the CPU.
[[nodiscard]] Device parse_device(const std::string& text);

/// Reads "name" or "name:key=value key=value"; the name must be in the registry. Settings that the text does
/// not give are those of `config`. A kernel's name says whether it runs on the CPU or on CUDA; `device` (as
/// for parse_device) may say which GPU.
[[nodiscard]] KernelChoice parse_kernel(const std::string& text, const std::string& config = {},
                                        const std::string& device = {});

/// The named kernels, or all of the device's in the registry's order when none is named.
[[nodiscard]] std::vector<KernelChoice> choose_kernels(const std::vector<std::string>& texts,
                                                       const std::string& config = {},
                                                       const std::string& device = {});

/// The plan, or why this kernel does not take the problem. Other errors (bad settings) end the command.
struct Planned {
  std::vector<Plan> plan;  ///< one, or none when rejected
  std::string rejection;
};
[[nodiscard]] Planned try_plan(const Problem& problem, const KernelChoice& kernel, int threads);

/// The one command that repeats a verification.
[[nodiscard]] std::string repro_command(const Problem& problem, const KernelChoice& kernel,
                                        const VerifyOptions& how);

}  // namespace saccade::cli
