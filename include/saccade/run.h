// Running a plan on the caller's memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <saccade/export.h>
#include <saccade/plan.h>
#include <saccade/status.h>

namespace saccade {

/// The pointers of one call, all in the plan's device memory. What the problem does not name is ignored.
struct Tensors {
  const void* q = nullptr;  ///< [batch, heads_q, len_q, dim_qk], or [total_q, heads_q, dim_qk] when ragged
  const void* k = nullptr;  ///< [batch, heads_kv, len_kv, dim_qk], or ragged, or paged (see KvLayout)
  const void* v = nullptr;  ///< like k, with dim_v
  void* o = nullptr;        ///< like q, with dim_v
  float* lse = nullptr;     ///< [batch, heads_q, len_q], or [heads_q, total_q] when ragged

  const void* mask = nullptr;           ///< [batch, heads_q, len_q, len_kv] by mask_strides
  const float* alibi_slopes = nullptr;  ///< [batch or 1, heads_q]
  const float* sinks = nullptr;         ///< [heads_q]

  const std::int32_t* cu_seqlens_q = nullptr;   ///< [batch + 1], from 0, not decreasing, at most total_q
  const std::int32_t* cu_seqlens_kv = nullptr;  ///< [batch + 1], from 0, not decreasing, at most total_kv
  const std::int32_t* kv_lengths = nullptr;     ///< [batch], each from 0 to len_kv
  const std::int32_t* block_table =
      nullptr;  ///< [batch, pages_per_sequence], each used entry in [0, num_pages)
};

/// Caller-owned scratch memory on the plan's device, aligned to kWorkspaceAlignment. Its contents mean
/// nothing between calls; calls that run at the same time need one each.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// An opaque queue: a cudaStream_t on CUDA, ignored on the CPU.
using Stream = void*;

/// Computes the plan's problem on these tensors. On the CPU it returns when done; on CUDA it enqueues on
/// `stream`. Allocates nothing, synchronises nothing. Every check is made before the first write: on error
/// the outputs and the workspace are untouched.
[[nodiscard]] SACCADE_API Status run(const Plan& plan, const Tensors& tensors, Workspace workspace = {},
                                     Stream stream = nullptr);

/// Plans, allocates the workspace, runs and waits: the convenience for single calls.
[[nodiscard]] SACCADE_API Status attend(const Problem& problem, const Tensors& tensors,
                                        const PlanOptions& options = {});

/// The library's version, "major.minor.patch".
[[nodiscard]] SACCADE_API const char* version() noexcept;

}  // namespace saccade
