#include "core/validate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <tuple>
#include <utility>

#include "core/extent.h"
#include "core/operands.h"

namespace saccade {
namespace {

template <class... Args>
Status invalid(fmt::format_string<Args...> format, Args&&... args) {
  return {Code::invalid_argument, fmt::format(format, std::forward<Args>(args)...)};
}

/// Forwards an error to the caller; the one control-flow macro of the project.
#define SACCADE_RETURN_IF_ERROR(expression) \
  if (Status status_ = (expression); !status_.ok()) return status_

Status check_sizes(const Problem& p) {
  if (size_of(p.dtype) == 0) {
    return {Code::unsupported,
            fmt::format("dtype {} is not one of f16, bf16, f32", static_cast<int>(p.dtype))};
  }
  const std::pair<std::string_view, std::int64_t> sizes[] = {{"batch", p.batch},
                                                             {"heads_q", p.heads_q},
                                                             {"heads_kv", p.heads_kv},
                                                             {"len_q", p.len_q},
                                                             {"len_kv", p.len_kv},
                                                             {"dim_qk", p.dim_qk},
                                                             {"dim_v", p.dim_v},
                                                             {"total_q", p.total_q},
                                                             {"total_kv", p.total_kv},
                                                             {"num_pages", p.num_pages},
                                                             {"pages_per_sequence", p.pages_per_sequence}};
  for (const auto& [name, size] : sizes) {
    if (size < 0) return invalid("{} is {}; sizes are not negative", name, size);
  }
  for (const auto& [name, dim] : {std::pair{"dim_qk", p.dim_qk}, std::pair{"dim_v", p.dim_v}}) {
    if (dim > kMaxHeadDim) {
      return {Code::unsupported, fmt::format("{} is {}; head dims go up to {}", name, dim, kMaxHeadDim)};
    }
  }
  if (p.heads_q > 0 && (p.heads_kv == 0 || p.heads_q % p.heads_kv != 0)) {
    return invalid("heads_q is {} and heads_kv is {}; heads_q must be a multiple of heads_kv", p.heads_q,
                   p.heads_kv);
  }
  const auto overflows = [](std::initializer_list<std::int64_t> factors) {
    std::int64_t n = 1;
    for (const std::int64_t factor : factors) {
      if (factor == 0) return false;
    }
    for (const std::int64_t factor : factors) {
      if (__builtin_mul_overflow(n, factor, &n)) return true;
    }
    return false;
  };
  if (overflows({p.batch, p.heads_q, p.len_q, std::max(p.dim_qk, p.dim_v), 4}) ||
      overflows({p.batch, p.heads_kv, p.len_kv, std::max(p.dim_qk, p.dim_v), 4}) ||
      overflows({p.batch, p.heads_q, p.len_q, p.len_kv}) || overflows({p.batch, p.pages_per_sequence, 4}) ||
      p.batch == kUnbounded) {
    return invalid("the sizes batch {}, heads {}/{}, len {}/{}, dim {}/{} overflow 64 bits", p.batch,
                   p.heads_q, p.heads_kv, p.len_q, p.len_kv, p.dim_qk, p.dim_v);
  }
  return {};
}

Status check_scores(const Problem& p) {
  if (p.scale && !std::isfinite(*p.scale)) return invalid("scale is {}; it must be finite", *p.scale);
  if (!std::isfinite(p.softcap) || p.softcap < 0) {
    return invalid("softcap is {}; it must be finite and not negative (0: off)", p.softcap);
  }
  if (p.window_left < 0 || p.window_right < 0) {
    return invalid("window is ({}, {}); its sides must not be negative (kUnbounded: no bound)", p.window_left,
                   p.window_right);
  }
  if (p.alignment != Alignment::top_left && p.alignment != Alignment::bottom_right) {
    return invalid("alignment is {}; it must be top_left or bottom_right", static_cast<int>(p.alignment));
  }
  if (p.mask != MaskKind::none && p.mask != MaskKind::boolean && p.mask != MaskKind::additive) {
    return invalid("mask is {}; it must be none, boolean or additive", static_cast<int>(p.mask));
  }
  if (p.mask == MaskKind::additive && p.mask_dtype != p.dtype && p.mask_dtype != DType::f32) {
    return {Code::unsupported,
            fmt::format("mask_dtype is {} while dtype is {}; a bias is f32 or of the same type",
                        to_string(p.mask_dtype), to_string(p.dtype))};
  }
  return {};
}

Status check_layout(const Problem& p) {
  switch (p.kv_layout) {
    case KvLayout::dense:
      return {};
    case KvLayout::ragged:
      if (p.kv_lengths) return invalid("kv_lengths is set with ragged keys; cu_seqlens_kv has the lengths");
      return {};
    case KvLayout::paged:
      break;
    default:
      return invalid("kv_layout is {}; it must be dense, ragged or paged", static_cast<int>(p.kv_layout));
  }
  if (p.page_size <= 0) return invalid("page_size is {}; paged keys need at least 1 row a page", p.page_size);
  // Rounded-up division, so that the product cannot overflow.
  if (p.len_kv / p.page_size + (p.len_kv % p.page_size > 0 ? 1 : 0) > p.pages_per_sequence) {
    return invalid("len_kv is {} but the block table has {} pages of {} rows a sequence", p.len_kv,
                   p.pages_per_sequence, p.page_size);
  }
  return {};
}

Status check_strides(const Problem& p) {
  const std::tuple<std::string_view, const Strides&, std::int64_t> tensors[] = {
      {"q", p.q, p.dim_qk}, {"k", p.k, p.dim_qk}, {"v", p.v, p.dim_v}, {"o", p.o, p.dim_v}};
  for (const auto& [name, strides, dim] : tensors) {
    if (strides.dim != 1 && dim > 1) {
      return invalid("the last stride of {} is {}; the last dimension must be contiguous", name, strides.dim);
    }
  }
  const auto check = [](const Operands& operands) -> Status {
    for (const Operand& operand : operands) {
      if (!bounds(operand.extent)) {
        const auto& axes = operand.extent.axes;
        return invalid(
            "the strides of {} overflow 64 bits: sizes ({}, {}, {}, {}) with byte strides ({}, {}, {}, {})",
            operand.name, axes[0].size, axes[1].size, axes[2].size, axes[3].size, axes[0].stride,
            axes[1].stride, axes[2].stride, axes[3].stride);
      }
    }
    return {};
  };
  SACCADE_RETURN_IF_ERROR(check(inputs(p, {})));
  SACCADE_RETURN_IF_ERROR(check(outputs(p, {})));
  for (const Operand& operand : outputs(p, {})) {
    if (overlaps_itself(operand.extent)) {
      const auto& axes = operand.extent.axes;
      return invalid("{} overlaps itself: sizes ({}, {}, {}) with byte strides ({}, {}, {})", operand.name,
                     axes[0].size, axes[1].size, axes[2].size, axes[0].stride, axes[1].stride,
                     axes[2].stride);
    }
  }
  return {};
}

std::uintptr_t address(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data);
}

Status check_offsets(std::string_view name, const std::int32_t* offsets, std::int64_t batch,
                     std::int64_t total, std::string_view longest_name, std::int64_t longest) {
  if (offsets[0] != 0) return invalid("{}[0] is {}; it must be 0", name, offsets[0]);
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t length = std::int64_t{offsets[b + 1]} - offsets[b];
    if (length < 0) {
      return invalid("{} decreases: entry {} is {} and entry {} is {}", name, b, offsets[b], b + 1,
                     offsets[b + 1]);
    }
    if (length > longest) {
      return invalid("{} gives sequence {} a length of {}, but {} is {}", name, b, length, longest_name,
                     longest);
    }
  }
  if (offsets[batch] > total) {
    return invalid("{}[{}] is {}, past the end of {} rows", name, batch, offsets[batch], total);
  }
  return {};
}

}  // namespace

Status validate(const Problem& problem) {
  SACCADE_RETURN_IF_ERROR(check_sizes(problem));
  SACCADE_RETURN_IF_ERROR(check_scores(problem));
  SACCADE_RETURN_IF_ERROR(check_layout(problem));
  return check_strides(problem);
}

Status validate_workspace(Workspace workspace, std::size_t workspace_bytes) {
  if (workspace_bytes == 0) return {};
  const auto bad = [](std::string text) { return Status(Code::workspace_too_small, std::move(text)); };
  if (workspace.data == nullptr) {
    return bad(fmt::format("workspace is null; the plan needs {} bytes", workspace_bytes));
  }
  if (workspace.bytes < workspace_bytes) {
    return bad(fmt::format("workspace has {} bytes; the plan needs {}", workspace.bytes, workspace_bytes));
  }
  if (address(workspace.data) % kWorkspaceAlignment != 0) {
    return bad(
        fmt::format("workspace is at {}, not aligned to {} bytes", workspace.data, kWorkspaceAlignment));
  }
  return {};
}

Status validate_pointers(const Problem& problem, const Tensors& tensors, Workspace workspace,
                         std::size_t workspace_bytes) {
  const Operands out = outputs(problem, tensors);
  Operands in = inputs(problem, tensors);
  for (const Operands* list : {&std::as_const(in), &out}) {
    for (const Operand& operand : *list) {
      if (operand.extent.empty()) continue;
      if (operand.data == nullptr) return invalid("{} is null", operand.name);
      if (address(operand.data) % operand.element_bytes != 0) {
        return invalid("{} is at {}, not aligned to its element of {} bytes", operand.name, operand.data,
                       operand.element_bytes);
      }
    }
  }
  SACCADE_RETURN_IF_ERROR(validate_workspace(workspace, workspace_bytes));
  if (workspace_bytes > 0) {
    in.push_back({"workspace", workspace.data, 1,
                  Extent{.axes = {}, .run = static_cast<std::int64_t>(workspace_bytes)}});
  }
  const auto overlapping = [](const Operand& a, const Operand& b) -> Status {
    if (!overlap(a.extent, address(a.data), b.extent, address(b.data))) return {};
    return invalid("{} at {} overlaps {} at {}", a.name, a.data, b.name, b.data);
  };
  for (const Operand* written = out.begin(); written != out.end(); ++written) {
    for (const Operand& read : in) SACCADE_RETURN_IF_ERROR(overlapping(*written, read));
    for (const Operand* other = out.begin(); other != written; ++other) {
      SACCADE_RETURN_IF_ERROR(overlapping(*written, *other));
    }
  }
  if (workspace_bytes > 0) {  // it is written to as well, so it may not share memory with an input either
    for (const Operand* read = in.begin(); read != &in.back(); ++read) {
      SACCADE_RETURN_IF_ERROR(overlapping(in.back(), *read));
    }
  }
  return {};
}

Status validate_indices(const Problem& p, const Tensors& t) {
  if (p.ragged_q) {
    SACCADE_RETURN_IF_ERROR(
        check_offsets("cu_seqlens_q", t.cu_seqlens_q, p.batch, p.total_q, "len_q", p.len_q));
  }
  if (p.kv_layout == KvLayout::ragged) {
    SACCADE_RETURN_IF_ERROR(
        check_offsets("cu_seqlens_kv", t.cu_seqlens_kv, p.batch, p.total_kv, "len_kv", p.len_kv));
  }
  for (std::int64_t b = 0; b < p.batch; ++b) {
    std::int64_t keys = p.len_kv;
    if (p.kv_lengths) {
      keys = t.kv_lengths[b];
      if (keys < 0 || keys > p.len_kv) {
        return invalid("kv_lengths[{}] is {}; it must be from 0 to len_kv, {}", b, keys, p.len_kv);
      }
    }
    if (p.kv_layout != KvLayout::paged) continue;
    for (std::int64_t page = 0; page * p.page_size < keys; ++page) {
      const std::int32_t entry = t.block_table[b * p.pages_per_sequence + page];
      if (entry < 0 || entry >= p.num_pages) {
        return invalid("block_table[{}][{}] is {}; there are {} pages", b, page, entry, p.num_pages);
      }
    }
  }
  return {};
}

}  // namespace saccade
