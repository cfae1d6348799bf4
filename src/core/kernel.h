// The interface every kernel family implements: a row of the registry.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <saccade/plan.h>
#include <saccade/run.h>

namespace saccade {

/// What a kernel may know of the machine when it accepts and configures a problem.
struct Machine {
  Device device;
  int threads = 1;  ///< CPU threads it may use at most.
  // Of a CUDA device; 0 on the CPU.
  int compute_capability = 0;  ///< 90 for 9.0
  int multiprocessors = 0;
  std::size_t shared_bytes_per_block = 0;  ///< what a block may ask for at most
  int pointer_alignment = 16;              ///< of q, k, v and o, in bytes
};

/// A kernel bound to a problem and a configuration.
struct Prepared {
  std::string config;  ///< "key=value ...", complete: preparing with it again gives the same kernel.
  std::size_t workspace_bytes = 0;
  /// Runs on validated tensors and a workspace that is large and aligned enough.
  std::function<Status(const Tensors&, std::byte* workspace, Stream)> launch;
};

/// One row of the registry. Rows are immutable and live as long as the program.
struct Kernel {
  std::string_view name;
  std::string_view summary;
  DeviceKind device;
  /// Why this kernel does not take this (valid) problem, as a sentence; nothing when it does.
  std::optional<std::string> (*reject)(const Problem&, const Machine&);
  /// Chooses a configuration, honouring the settings in `config`, and binds the problem to it.
  Result<Prepared> (*prepare)(const Problem&, const Machine&, std::string_view config);
  /// Why a later row serves this problem faster, as a sentence; nothing when it does not. A caller who names
  /// the kernel is not told so.
  std::optional<std::string> (*decline)(const Problem&, const Machine&) = nullptr;

  /// Why the planner passes the kernel over.
  [[nodiscard]] std::optional<std::string> refusal(const Problem& problem, const Machine& machine,
                                                   bool named) const {
    if (auto reason = reject(problem, machine)) return reason;
    return named || decline == nullptr ? std::nullopt : decline(problem, machine);
  }
};

}  // namespace saccade
