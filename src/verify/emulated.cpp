#include "verify/emulated.h"

#include <fmt/format.h>

#include "cuda/kernels.h"
#include "emu/session.h"
#include "verify/guarded_buffer.h"

namespace saccade {

const Kernel* find_emulated(std::string_view name) {
  for (const Kernel* kernel : emulated::kernels()) {
    if (kernel->name == name) return kernel;
  }
  return nullptr;
}

Machine emulated_machine() {
  return {.device = {DeviceKind::cuda, 0},
          .threads = 1,
          .compute_capability = 90,
          .multiprocessors = 132,
          .shared_bytes_per_block = emu::kMaxSharedBytes};
}

Runner emulated_runner(const Kernel& kernel, const std::string& config, const emu::Options& options) {
  return [&kernel, config, options](const Problem& problem, const Tensors& tensors) -> Status {
    const Machine machine = emulated_machine();
    if (const auto reason = kernel.reject(problem, machine)) {
      return {Code::unsupported, fmt::format("{} does not take this: {}", kernel.name, *reason)};
    }
    Result<Prepared> prepared = kernel.prepare(problem, machine, config);
    if (!prepared.ok()) return prepared.status();
    const GuardedBuffer workspace(prepared->workspace_bytes, kWorkspaceAlignment, PastEnd::fault);
    const emu::Session session(options);
    Status status = prepared->launch(tensors, workspace.bytes().data(), nullptr);
    if (status.ok() && !workspace.bands_intact()) {
      return {Code::internal, fmt::format("{} wrote outside its workspace of {} bytes", kernel.name,
                                          workspace.bytes().size())};
    }
    return status;
  };
}

}  // namespace saccade
