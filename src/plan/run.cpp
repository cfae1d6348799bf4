#include <fmt/format.h>
#include <memory>
#include <new>

#include <saccade/attention.h>
#include <saccade/run.h>

#include "core/validate.h"
#include "cuda/launch/runtime.h"
#include "plan/plan_state.h"

namespace saccade {

Status run(const Plan& plan, const Tensors& tensors, Workspace workspace, Stream stream) {
  const detail::PlanState& state = detail::PlanState::of(plan);
  const Prepared& prepared = state.prepared;
  Status status = state.trusted_pointers
                      ? validate_workspace(workspace, prepared.workspace_bytes)
                      : validate_pointers(state.problem, tensors, workspace, prepared.workspace_bytes);
  if (!status.ok()) return status;
  auto* const scratch = static_cast<std::byte*>(workspace.data);
  if (state.device.kind == DeviceKind::cpu) {
    if (status = validate_indices(state.problem, tensors); !status.ok()) return status;
    return prepared.launch(tensors, scratch, stream);
  }
  if (!state.trusted_pointers) {
    if (status = device::check_memory(tensors, state.device.index); !status.ok()) return status;
  }
  const device::Guard guard(state.device.index);
  if (!guard.status().ok()) return guard.status();
  return prepared.launch(tensors, scratch, stream);
}

namespace {

/// Runs on a workspace of the GPU's and waits.
Status attend_on_gpu(const Plan& plan, const Tensors& tensors) {
  const device::Guard guard(plan.device().index);
  if (!guard.status().ok()) return guard.status();
  const Result<device::Memory> memory = device::Memory::allocate(plan.workspace_bytes());
  if (!memory.ok()) return memory.status();
  if (Status status = run(plan, tensors, {memory->data(), memory->bytes()}); !status.ok()) return status;
  return device::synchronize();
}

}  // namespace

Status attend(const Problem& problem, const Tensors& tensors, const PlanOptions& options) {
  Result<Plan> plan = make_plan(problem, options);
  if (!plan.ok()) return plan.status();
  if (plan->device().kind == DeviceKind::cuda) return attend_on_gpu(plan.value(), tensors);
  const std::size_t bytes = plan->workspace_bytes();
  const std::align_val_t alignment{kWorkspaceAlignment};
  const auto release = [&](void* data) { ::operator delete(data, alignment); };
  const std::unique_ptr<void, decltype(release)> memory(
      bytes > 0 ? ::operator new(bytes, alignment, std::nothrow) : nullptr, release);
  if (bytes > 0 && memory == nullptr) {
    return {Code::out_of_memory, fmt::format("no memory for a workspace of {} bytes", bytes)};
  }
  return run(plan.value(), tensors, {memory.get(), bytes});
}

View View::packed(const void* data, DType dtype, std::array<std::int64_t, 4> sizes) {
  const auto& [batch, heads, len, dim] = sizes;
  // Views serve inputs and outputs alike; only `o` is ever written through.
  const Strides strides = Problem::dense(batch, heads, len, dim, dtype).q;
  return {const_cast<void*>(data), dtype, sizes, {strides.batch, strides.head, strides.row, strides.dim}};
}

Result<Problem> describe(const View& q, const View& k, const View& v, const View& o) {
  const std::pair<std::string_view, const View&> views[] = {{"q", q}, {"k", k}, {"v", v}, {"o", o}};
  for (const auto& [name, view] : views) {
    if (view.dtype != q.dtype) {
      return Status(Code::invalid_argument, fmt::format("{} is {} but q is {}; q, k, v and o share one type",
                                                        name, to_string(view.dtype), to_string(q.dtype)));
    }
  }
  struct Rule {
    std::string_view a_name;
    std::int64_t a;
    std::string_view b_name;
    std::int64_t b;
  };
  const Rule rules[] = {
      {"the batch of k", k.sizes[0], "the batch of q", q.sizes[0]},
      {"the batch of v", v.sizes[0], "the batch of q", q.sizes[0]},
      {"the batch of o", o.sizes[0], "the batch of q", q.sizes[0]},
      {"the heads of v", v.sizes[1], "the heads of k", k.sizes[1]},
      {"the heads of o", o.sizes[1], "the heads of q", q.sizes[1]},
      {"the length of v", v.sizes[2], "the length of k", k.sizes[2]},
      {"the length of o", o.sizes[2], "the length of q", q.sizes[2]},
      {"the dim of k", k.sizes[3], "the dim of q", q.sizes[3]},
      {"the dim of o", o.sizes[3], "the dim of v", v.sizes[3]},
  };
  for (const Rule& rule : rules) {
    if (rule.a != rule.b) {
      return Status(Code::invalid_argument,
                    fmt::format("{} is {} but {} is {}", rule.a_name, rule.a, rule.b_name, rule.b));
    }
  }
  Problem p;
  p.dtype = q.dtype;
  p.batch = q.sizes[0];
  p.heads_q = q.sizes[1];
  p.heads_kv = k.sizes[1];
  p.len_q = q.sizes[2];
  p.len_kv = k.sizes[2];
  p.dim_qk = q.sizes[3];
  p.dim_v = v.sizes[3];
  p.pack();
  const auto strides = [](const View& view) {
    return Strides{view.strides[0], view.strides[1], view.strides[2], view.strides[3]};
  };
  p.q = strides(q);
  p.k = strides(k);
  p.v = strides(v);
  p.o = strides(o);
  if (Status status = validate(p); !status.ok()) return status;
  return p;
}

Status attention(const View& q, const View& k, const View& v, const View& o, bool causal) {
  Result<Problem> problem = describe(q, k, v, o);
  if (!problem.ok()) return problem.status();
  problem->causal = causal;
  return attend(problem.value(), {.q = q.data, .k = k.data, .v = v.data, .o = o.data});
}

const char* version() noexcept {
  return SACCADE_VERSION;
}

}  // namespace saccade
