// From torch's tensors to Saccade's problem: shapes, broadcasting, strides, and every check torch would make.
#pragma once

#include <cstdint>
#include <optional>

#include <saccade/saccade.h>

#include "plan_cache.h"
#include "tensor.h"

namespace saccade_torch {

/// The arguments of one call.
struct Call {
  Tensor q, k, v;
  Tensor mask, alibi_slopes, sinks, cu_seqlens_q, cu_seqlens_kv, kv_lengths, block_table;
  bool causal = false;
  bool bottom_right = false;
  bool lse = false;
  bool share_heads = true;         ///< GQA: fewer heads in k and v. Without it heads broadcast as in torch.
  std::int64_t window_left = -1;   ///< -1: no bound
  std::int64_t window_right = -1;  ///< -1: no bound
  std::int64_t max_len_q = 0;      ///< of ragged queries
  std::int64_t max_len_kv = 0;     ///< of ragged or paged keys
  std::optional<double> scale;
  double softcap = 0;
  bool only_fast = false;  ///< to be refused where PyTorch is faster
};

/// Sizes and strides of a tensor to be made.
struct Shape {
  std::int64_t dim = 0;
  std::int64_t sizes[4] = {};
  std::int64_t strides[4] = {};

  void add(std::int64_t size, std::int64_t stride) {
    sizes[dim] = size;
    strides[dim++] = stride;
  }
};

/// o [batch, heads, len, dim_v] and lse [batch, heads, len]; of ragged queries [total, heads, dim_v] and
/// [heads, total].
struct Outputs {
  Shape o, lse;
};

/// Fills `key` and `outputs`; throws std::runtime_error with a sentence that names the argument and its
/// value. Copies tensors whose rows are not contiguous. The output lies in memory as q does: [b, l, h, d]
/// where q's rows are further apart than its heads, else [b, h, l, d].
void describe(Call& call, PlanKey& key, Outputs& outputs);

}  // namespace saccade_torch
