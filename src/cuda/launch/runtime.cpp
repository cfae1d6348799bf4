#include "cuda/launch/runtime.h"

#include <utility>

#include "cuda/launch/error.h"

namespace saccade::device {
namespace {

Result<int> attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  if (Status status = to_status(cudaDeviceGetAttribute(&value, which, index), "asking the GPU");
      !status.ok()) {
    return status;
  }
  return value;
}

}  // namespace

Result<Machine> machine(int index) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    (void)cudaGetLastError();
    return Status(Code::device_unavailable,
                  std::string("the CUDA runtime found no GPU: ") + cudaGetErrorString(error));
  }
  if (index < 0 || index >= count) {
    return Status(Code::device_unavailable, "there are " + std::to_string(count) + " CUDA devices");
  }
  Machine facts{.device = {DeviceKind::cuda, index}};
  int major = 0;
  int minor = 0;
  int shared = 0;
  for (const auto& [which, to] : {std::pair{cudaDevAttrComputeCapabilityMajor, &major},
                                  {cudaDevAttrComputeCapabilityMinor, &minor},
                                  {cudaDevAttrMultiProcessorCount, &facts.multiprocessors},
                                  {cudaDevAttrMaxSharedMemoryPerBlockOptin, &shared}}) {
    const Result<int> value = attribute(which, index);
    if (!value.ok()) return value.status();
    *to = value.value();
  }
  facts.compute_capability = 10 * major + minor;
  facts.shared_bytes_per_block = static_cast<std::size_t>(shared);
  constexpr int kOldest = 80;
  if (facts.compute_capability < kOldest) {
    return Status(Code::device_unavailable, "compute capability " + std::to_string(major) + "." +
                                                std::to_string(minor) + " is too old: the kernels need 8.0");
  }
  return facts;
}

Guard::Guard(int index) {
  int current = 0;
  status_ = to_status(cudaGetDevice(&current), "asking for the current GPU");
  if (!status_.ok() || current == index) return;
  status_ = to_status(cudaSetDevice(index), "choosing the GPU");
  if (status_.ok()) before_ = current;
}

Guard::~Guard() {
  if (before_ >= 0) (void)cudaSetDevice(before_);
}

Status check_memory(const Tensors& tensors, int index) {
  const std::pair<const char*, const void*> pointers[] = {
      {"q", tensors.q}, {"k", tensors.k}, {"v", tensors.v}, {"o", tensors.o}};
  for (const auto& [name, pointer] : pointers) {
    if (pointer == nullptr) continue;
    cudaPointerAttributes where{};
    if (Status status = to_status(cudaPointerGetAttributes(&where, pointer), "asking where a tensor lies");
        !status.ok()) {
      return status;
    }
    const bool managed = where.type == cudaMemoryTypeManaged;
    if (managed || (where.type == cudaMemoryTypeDevice && where.device == index)) continue;
    const std::string place =
        where.type == cudaMemoryTypeDevice ? "cuda:" + std::to_string(where.device) : "the host";
    return {Code::device_unavailable, std::string(name) + " lies in memory of " + place +
                                          ", but the plan is for cuda:" + std::to_string(index)};
  }
  return {};
}

void Memory::Free::operator()(std::byte* data) const {
  (void)cudaFree(data);
}

Result<Memory> Memory::allocate(std::size_t bytes) {
  Memory memory;
  if (bytes == 0) return memory;
  void* data = nullptr;
  if (Status status = to_status(cudaMalloc(&data, bytes), "allocating GPU memory"); !status.ok())
    return status;
  memory.data_.reset(static_cast<std::byte*>(data));
  memory.bytes_ = bytes;
  return memory;
}

Status Memory::from_host(std::span<const std::byte> host) const {
  return to_status(cudaMemcpy(data(), host.data(), host.size(), cudaMemcpyHostToDevice),
                   "copying to the GPU");
}

Status Memory::to_host(std::span<std::byte> host) const {
  return to_status(cudaMemcpy(host.data(), data(), host.size(), cudaMemcpyDeviceToHost),
                   "copying from the GPU");
}

Status synchronize() {
  return to_status(cudaDeviceSynchronize(), "waiting for the GPU");
}

/// The handles of one graph.
struct CallGraph::State {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  State(State&&) = delete;
  State& operator=(State&&) = delete;
  ~State() {
    if (exec != nullptr) (void)cudaGraphExecDestroy(exec);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    if (begin != nullptr) (void)cudaEventDestroy(begin);
    if (end != nullptr) (void)cudaEventDestroy(end);
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
  }
};

Result<CallGraph> CallGraph::capture(const std::function<Status(Stream)>& enqueue) {
  CallGraph made;
  made.state_ = std::make_shared<State>();
  State& s = *made.state_;
  for (const cudaError_t error :
       {cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking), cudaEventCreate(&s.begin),
        cudaEventCreate(&s.end), cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal)}) {
    if (Status status = to_status(error, "starting a CUDA graph"); !status.ok()) return status;
  }
  Status enqueued;
  for (int n = 0; n < kCallsPerGraph && enqueued.ok(); ++n) enqueued = enqueue(s.stream);
  const cudaError_t ended = cudaStreamEndCapture(s.stream, &s.graph);
  if (!enqueued.ok()) return enqueued;
  if (Status status = to_status(ended, "capturing a CUDA graph"); !status.ok()) return status;
  if (Status status = to_status(cudaGraphInstantiate(&s.exec, s.graph, 0), "making a CUDA graph");
      !status.ok()) {
    return status;
  }
  return made;
}

Result<double> CallGraph::replay(int times) const {
  const State& s = *state_;
  cudaError_t error = cudaEventRecord(s.begin, s.stream);
  for (int n = 0; n < times && error == cudaSuccess; ++n) error = cudaGraphLaunch(s.exec, s.stream);
  if (error == cudaSuccess) error = cudaEventRecord(s.end, s.stream);
  if (error == cudaSuccess) error = cudaEventSynchronize(s.end);
  float milliseconds = 0;
  if (error == cudaSuccess) error = cudaEventElapsedTime(&milliseconds, s.begin, s.end);
  if (Status status = to_status(error, "replaying a CUDA graph"); !status.ok()) return status;
  return milliseconds * 1e-3;
}

}  // namespace saccade::device
