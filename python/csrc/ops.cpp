// The torch operators. They are written against the boxed calling convention, because a call of a small
// problem on a GPU is bound by the host: what TORCH_BOX would add is an allocation a tensor.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <torch/csrc/stable/library.h>

#include <saccade/saccade.h>

#include "describe.h"
#include "plan_cache.h"
#include "tensor.h"

namespace saccade_torch {
namespace {

namespace stable = torch::stable::detail;

/// torch's current stream of a GPU. It lives in a library that a CPU-only torch does not have, so it is
/// looked up where a CUDA tensor proves that the library is loaded.
void* current_stream(std::int32_t device_index) {
  using Function = AOTITorchError (*)(std::int32_t, void**);
  static const auto kFunction = [] {
    void* const library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return library != nullptr
               ? reinterpret_cast<Function>(dlsym(library, "aoti_torch_get_current_cuda_stream"))
               : nullptr;
  }();
  if (kFunction == nullptr) throw std::runtime_error("this torch has no CUDA streams");
  void* stream = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(kFunction(device_index, &stream));
  return stream;
}

/// Scratch memory of this thread for the CPU's kernels, which are done when they return. Taking it from
/// malloc for every call would have the system zero its pages every time.
void* host_workspace(std::size_t bytes) {
  struct Free {
    void operator()(void* data) const {
      ::operator delete (data, std::align_val_t{SACCADE_WORKSPACE_ALIGNMENT});
    }
  };
  thread_local std::unique_ptr<void, Free> memory;
  thread_local std::size_t capacity = 0;
  if (bytes > capacity) {
    memory.reset();
    capacity = 0;
    memory.reset(::operator new (bytes, std::align_val_t{SACCADE_WORKSPACE_ALIGNMENT}));
    capacity = bytes;
  }
  return memory.get();
}

Handle empty(const Shape& shape, std::int32_t dtype, std::int32_t device_type, std::int32_t device_index) {
  AtenTensorHandle handle = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(shape.dim, shape.sizes, shape.strides, dtype,
                                                         device_type, device_index, &handle));
  return Handle(handle);
}

void* data_of(const Handle& handle) {
  void* data = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(handle.get(), &data));
  return data;
}

struct Results {
  Handle o, lse;
};

Results run(Call& call) {
  PlanKey key;
  Outputs outputs;
  describe(call, key, outputs);
  const Plan& plan = find_plan(key);
  if (call.only_fast && plan.slow) throw std::runtime_error("no fast kernel on CUDA takes it yet");

  const bool cuda = key.device_kind == SACCADE_CUDA;
  const std::int32_t device_type = cuda ? codes().cuda : codes().cpu;
  const auto make = [&](const Shape& shape, std::int32_t dtype) {
    return empty(shape, dtype, device_type, key.device_index);
  };
  Results results;
  results.o = make(outputs.o, call.q.dtype());
  if (call.lse) results.lse = make(outputs.lse, codes().f32);

  saccade_tensors tensors{};
  tensors.struct_size = sizeof tensors;
  tensors.q = call.q.data();
  tensors.k = call.k.data();
  tensors.v = call.v.data();
  tensors.o = data_of(results.o);
  tensors.lse = call.lse ? static_cast<float*>(data_of(results.lse)) : nullptr;
  tensors.mask = call.mask.data();
  tensors.alibi_slopes = static_cast<const float*>(call.alibi_slopes.data());
  tensors.sinks = static_cast<const float*>(call.sinks.data());
  tensors.cu_seqlens_q = static_cast<const std::int32_t*>(call.cu_seqlens_q.data());
  tensors.cu_seqlens_kv = static_cast<const std::int32_t*>(call.cu_seqlens_kv.data());
  tensors.kv_lengths = static_cast<const std::int32_t*>(call.kv_lengths.data());
  tensors.block_table = static_cast<const std::int32_t*>(call.block_table.data());

  // On CUDA the workspace comes from torch's allocator on the stream it is used on, and goes back to it in
  // the same order: no two streams ever share it.
  Handle device_memory;
  void* workspace = nullptr;
  if (plan.workspace_bytes > 0) {
    if (cuda) {
      Shape bytes;
      bytes.add(static_cast<std::int64_t>(plan.workspace_bytes), 1);
      device_memory = make(bytes, codes().u8);
      workspace = data_of(device_memory);
    } else {
      workspace = host_workspace(plan.workspace_bytes);
    }
  }
  void* const stream = cuda ? current_stream(key.device_index) : nullptr;
  if (saccade_run(plan.plan, &tensors, workspace, plan.workspace_bytes, stream) != SACCADE_OK) {
    throw std::runtime_error(saccade_last_error());
  }
  return results;
}

/// Takes the arguments off a boxed kernel's stack in their order. All are taken before any is judged, so that
/// none leaks when a check throws.
class Arguments {
 public:
  explicit Arguments(StableIValue* stack) : next_(stack) {}
  AtenTensorHandle tensor() { return stable::to<AtenTensorHandle>(*next_++); }
  AtenTensorHandle optional_tensor() {
    return stable::to<std::optional<AtenTensorHandle>>(*next_++).value_or(nullptr);
  }
  bool boolean() { return stable::to<bool>(*next_++); }
  std::int64_t integer() { return stable::to<std::int64_t>(*next_++); }
  double real() { return stable::to<double>(*next_++); }
  std::optional<double> optional_real() { return stable::to<std::optional<double>>(*next_++); }

 private:
  StableIValue* next_;
};

Tensor optional(AtenTensorHandle handle) {
  return handle != nullptr ? Tensor(handle) : Tensor();
}

/// Every operator has q, k and v first.
Call begin(Arguments& next) {
  Call call;
  call.q = Tensor(next.tensor());
  call.k = Tensor(next.tensor());
  call.v = Tensor(next.tensor());
  return call;
}

void sdpa(StableIValue* stack, std::uint64_t /*num_inputs*/, std::uint64_t /*num_outputs*/) {
  Arguments next(stack);
  Call call = begin(next);
  call.mask = optional(next.optional_tensor());
  call.causal = next.boolean();
  call.scale = next.optional_real();
  call.share_heads = next.boolean();
  if (call.mask && call.causal) throw std::runtime_error("attn_mask and is_causal exclude each other");
  stack[0] = stable::from(run(call).o.release());
}

void sdpa_plain(StableIValue* stack, std::uint64_t /*num_inputs*/, std::uint64_t /*num_outputs*/) {
  Arguments next(stack);
  Call call = begin(next);
  call.causal = next.boolean();
  call.share_heads = false;
  call.only_fast = true;
  stack[0] = stable::from(run(call).o.release());
}

void attention(StableIValue* stack, std::uint64_t /*num_inputs*/, std::uint64_t /*num_outputs*/) {
  Arguments next(stack);
  Call call = begin(next);
  for (Tensor* x : {&call.mask, &call.alibi_slopes, &call.sinks, &call.cu_seqlens_q, &call.cu_seqlens_kv,
                    &call.kv_lengths, &call.block_table}) {
    *x = optional(next.optional_tensor());
  }
  call.max_len_q = next.integer();
  call.max_len_kv = next.integer();
  call.causal = next.boolean();
  call.bottom_right = next.boolean();
  call.window_left = next.integer();
  call.window_right = next.integer();
  call.scale = next.optional_real();
  call.softcap = next.real();
  call.lse = next.boolean();
  const std::int32_t device_type = call.q.device_type();
  const std::int32_t device_index = call.q.device_index();
  Results results = run(call);
  if (!results.lse) {
    Shape nothing;
    nothing.add(0, 1);
    results.lse = empty(nothing, codes().f32, device_type, device_index);
  }
  stack[0] = stable::from(results.o.release());
  stack[1] = stable::from(results.lse.release());
}

// The `_forward` twins are the same kernels for callers that know that no gradient is asked for: their
// autograd key falls through in nanoseconds, while a formula registered from Python costs its microseconds on
// every call. `sdpa_plain` is for the drop-in alone: fewer arguments take less time to convert, and it
// refuses what PyTorch does faster.
#define SACCADE_SDPA_ARGUMENTS                                                                     \
  "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, bool is_causal=False, float? " \
  "scale=None, "                                                                                   \
  "bool enable_gqa=False) -> Tensor"
#define SACCADE_ATTENTION_ARGUMENTS                                                                          \
  "(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? alibi_slopes, Tensor? sinks, Tensor? cu_seqlens_q, " \
  "Tensor? cu_seqlens_kv, Tensor? kv_lengths, Tensor? block_table, SymInt max_len_q, SymInt max_len_kv, "    \
  "bool causal, "                                                                                            \
  "bool bottom_right, SymInt window_left, SymInt window_right, float? scale, float softcap, bool "           \
  "return_lse) "                                                                                             \
  "-> (Tensor, Tensor)"

STABLE_TORCH_LIBRARY(saccade, m) {
  m.def("sdpa" SACCADE_SDPA_ARGUMENTS);
  m.def("sdpa_forward" SACCADE_SDPA_ARGUMENTS);
  m.def("sdpa_plain(Tensor query, Tensor key, Tensor value, bool is_causal) -> Tensor");
  m.def("attention" SACCADE_ATTENTION_ARGUMENTS);
  m.def("attention_forward" SACCADE_ATTENTION_ARGUMENTS);
}

STABLE_TORCH_LIBRARY_IMPL(saccade, CPU, m) {
  m.impl("sdpa", sdpa);
  m.impl("sdpa_forward", sdpa);
  m.impl("sdpa_plain", sdpa_plain);
  m.impl("attention", attention);
  m.impl("attention_forward", attention);
}

STABLE_TORCH_LIBRARY_IMPL(saccade, CUDA, m) {
  m.impl("sdpa", sdpa);
  m.impl("sdpa_forward", sdpa);
  m.impl("sdpa_plain", sdpa_plain);
  m.impl("attention", attention);
  m.impl("attention_forward", attention);
}

}  // namespace
}  // namespace saccade_torch
