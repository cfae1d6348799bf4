#include "core/operands.h"

namespace saccade {
namespace {

std::int64_t saturating_bytes(std::int64_t elements, std::size_t element_bytes) {
  std::int64_t bytes = 0;
  // An overflowing stride saturates, so that bounds() reports the overflow.
  if (__builtin_mul_overflow(elements, static_cast<std::int64_t>(element_bytes), &bytes)) return kUnbounded;
  return bytes;
}

Extent rows(DType dtype, const Strides& s, std::int64_t blocks, std::int64_t heads, std::int64_t len,
            std::int64_t dim) {
  const std::size_t element = size_of(dtype);
  const auto bytes = [&](std::int64_t n) { return saturating_bytes(n, element); };
  return {.axes = {{{blocks, bytes(s.batch)}, {heads, bytes(s.head)}, {len, bytes(s.row)}, {1, 0}}},
          .run = bytes(dim)};
}

Extent query_extent(const Problem& p, const Strides& s, std::int64_t dim) {
  return p.ragged_q ? rows(p.dtype, s, 1, p.heads_q, p.total_q, dim)
                    : rows(p.dtype, s, p.batch, p.heads_q, p.len_q, dim);
}

Extent key_extent(const Problem& p, const Strides& s, std::int64_t dim) {
  switch (p.kv_layout) {
    case KvLayout::ragged:
      return rows(p.dtype, s, 1, p.heads_kv, p.total_kv, dim);
    case KvLayout::paged:
      return rows(p.dtype, s, p.num_pages, p.heads_kv, p.page_size, dim);
    case KvLayout::dense:
      break;
  }
  return rows(p.dtype, s, p.batch, p.heads_kv, p.len_kv, dim);
}

Extent mask_extent(const Problem& p, std::size_t element) {
  const MaskStrides& s = p.mask_strides;
  const auto bytes = [&](std::int64_t n) { return saturating_bytes(n, element); };
  return {.axes = {{{p.batch, bytes(s.batch)},
                    {p.heads_q, bytes(s.head)},
                    {p.len_q, bytes(s.row)},
                    {p.len_kv, bytes(s.key)}}},
          .run = static_cast<std::int64_t>(element)};
}

Extent lse_extent(const Problem& p) {
  const Strides s{p.lse_strides.batch, p.lse_strides.head, p.lse_strides.row, 1};
  return p.ragged_q ? rows(DType::f32, s, 1, p.heads_q, p.total_q, 1)
                    : rows(DType::f32, s, p.batch, p.heads_q, p.len_q, 1);
}

Extent vector_extent(std::int64_t count, std::size_t element) {
  return {.axes = {}, .run = saturating_bytes(count, element)};
}

std::size_t mask_element(const Problem& p) {
  return p.mask == MaskKind::boolean ? 1 : size_of(p.mask_dtype);
}

}  // namespace

Operands outputs(const Problem& p, const Tensors& t) {
  Operands list;
  list.push_back({"o", t.o, size_of(p.dtype), query_extent(p, p.o, p.dim_v)});
  if (p.lse) list.push_back({"lse", t.lse, sizeof(float), lse_extent(p)});
  return list;
}

Operands inputs(const Problem& p, const Tensors& t) {
  Operands list;
  list.push_back({"q", t.q, size_of(p.dtype), query_extent(p, p.q, p.dim_qk)});
  list.push_back({"k", t.k, size_of(p.dtype), key_extent(p, p.k, p.dim_qk)});
  list.push_back({"v", t.v, size_of(p.dtype), key_extent(p, p.v, p.dim_v)});
  if (p.mask != MaskKind::none)
    list.push_back({"mask", t.mask, mask_element(p), mask_extent(p, mask_element(p))});
  const auto add = [&](std::string_view name, const void* data, std::int64_t count) {
    list.push_back({name, data, sizeof(std::int32_t), vector_extent(count, sizeof(std::int32_t))});
  };
  if (p.alibi) {
    list.push_back({"alibi_slopes", t.alibi_slopes, sizeof(float),
                    rows(DType::f32, {p.alibi_batch_stride, 0, 0, 1}, p.batch, 1, 1, p.heads_q)});
  }
  if (p.sinks) add("sinks", t.sinks, p.heads_q);
  if (p.ragged_q) add("cu_seqlens_q", t.cu_seqlens_q, p.batch + 1);
  if (p.kv_layout == KvLayout::ragged) add("cu_seqlens_kv", t.cu_seqlens_kv, p.batch + 1);
  if (p.kv_lengths) add("kv_lengths", t.kv_lengths, p.batch);
  if (p.kv_layout == KvLayout::paged) add("block_table", t.block_table, p.batch * p.pages_per_sequence);
  return list;
}

}  // namespace saccade
