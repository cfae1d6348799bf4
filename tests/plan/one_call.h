// Tensors and a workspace for one dense f32 problem, filled with numbers that differ everywhere.
#pragma once

#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include <saccade/plan.h>
#include <saccade/run.h>

namespace saccade {

struct FreeMemory {
  void operator()(void* data) const { std::free(data); }
};

/// Everything that run() needs from its caller, for one problem at a time.
struct OneCall {
  std::vector<float> q, k, v, o;
  std::unique_ptr<void, FreeMemory> memory;
  std::size_t bytes;

  explicit OneCall(const Plan& plan) : bytes(plan.workspace_bytes()) {
    const Problem& p = plan.problem();
    const auto fill = [](std::int64_t count, double phase) {
      std::vector<float> data(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < data.size(); ++i) {
        data[i] = static_cast<float>(std::sin(static_cast<double>(i) * 0.7 + phase));
      }
      return data;
    };
    q = fill(p.batch * p.heads_q * p.len_q * p.dim_qk, 0);
    k = fill(p.batch * p.heads_kv * p.len_kv * p.dim_qk, 1);
    v = fill(p.batch * p.heads_kv * p.len_kv * p.dim_v, 2);
    o.assign(static_cast<std::size_t>(p.batch * p.heads_q * p.len_q * p.dim_v), -1.0F);
    const std::size_t rounded = (bytes / kWorkspaceAlignment + 1) * kWorkspaceAlignment;
    memory.reset(std::aligned_alloc(kWorkspaceAlignment, rounded));
  }

  [[nodiscard]] Tensors tensors() { return {.q = q.data(), .k = k.data(), .v = v.data(), .o = o.data()}; }
  [[nodiscard]] Workspace workspace() const { return {memory.get(), bytes}; }
};

}  // namespace saccade
