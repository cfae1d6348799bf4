// Stands for the GPU's kernels and for the CUDA runtime in a build without nvcc.
#include "cuda/kernels.h"
#include "cuda/launch/runtime.h"

namespace saccade::device {
namespace {

Status missing() {
  return {Code::device_unavailable, "this build has no CUDA kernels (it was configured without nvcc)"};
}

}  // namespace

std::span<const Kernel* const> kernels() {
  return {};
}

Result<Machine> machine(int) {
  return missing();
}

Guard::Guard(int) : status_(missing()) {}
Guard::~Guard() = default;

Status check_memory(const Tensors&, int) {
  return missing();
}

void Memory::Free::operator()(std::byte*) const {}
Result<Memory> Memory::allocate(std::size_t) {
  return missing();
}
Status Memory::from_host(std::span<const std::byte>) const {
  return missing();
}
Status Memory::to_host(std::span<std::byte>) const {
  return missing();
}

Status synchronize() {
  return missing();
}

struct CallGraph::State {};
Result<CallGraph> CallGraph::capture(const std::function<Status(Stream)>&) {
  return missing();
}
Result<double> CallGraph::replay(int) const {
  return missing();
}

}  // namespace saccade::device
