#include "describe.h"

#include <cstring>
#include <initializer_list>
#include <sstream>
#include <stdexcept>
#include <torch/csrc/stable/ops.h>

namespace saccade_torch {
namespace {

template <class... Parts>
[[noreturn]] [[gnu::cold]] void fail(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw std::runtime_error(text.str());
}

std::int32_t to_dtype(const char* name, std::int32_t code) {
  const Codes& c = codes();
  if (code == c.f16) return SACCADE_F16;
  if (code == c.bf16) return SACCADE_BF16;
  if (code == c.f32) return SACCADE_F32;
  fail(name, " is not float16, bfloat16 or float32");
}

void check_dim(const char* name, const Tensor& x, std::int64_t wanted) {
  if (x.dim() != wanted) fail(name, " has ", x.dim(), " dimensions; it must have ", wanted);
}

std::int64_t broadcast(const char* what, std::initializer_list<std::int64_t> sizes) {
  std::int64_t common = 1;
  for (const std::int64_t size : sizes) {
    if (size == 1 || size == common) continue;
    if (common != 1) fail("the ", what, " of q, k and v do not broadcast: ", common, " and ", size);
    common = size;
  }
  return common;
}

void check_same(const char* a_name, std::int64_t a, const char* b_name, std::int64_t b) {
  if (a != b) fail(a_name, " is ", a, " but ", b_name, " is ", b);
}

void describe_heads(const Call& c, std::int64_t q_heads, std::int64_t k_heads, std::int64_t v_heads,
                    saccade_problem& p) {
  if (!c.share_heads) {
    p.heads_q = broadcast("heads", {q_heads, k_heads, v_heads});
    p.heads_kv = k_heads == 1 && v_heads == 1 && p.heads_q > 0 ? 1 : p.heads_q;
    return;
  }
  check_same("the number of heads of v", v_heads, "that of k", k_heads);
  if (q_heads > 0 && (k_heads == 0 || q_heads % k_heads != 0)) {
    fail("q has ", q_heads, " heads and k has ", k_heads, "; the first must be a multiple of the second");
  }
  p.heads_q = q_heads;
  p.heads_kv = k_heads;
}

/// [batch, heads, len, dim] with broadcasting, or with ragged queries [total, heads, dim].
void describe_tensors(Call& c, saccade_problem& p) {
  const bool ragged_q = static_cast<bool>(c.cu_seqlens_q);
  const bool ragged_kv = static_cast<bool>(c.cu_seqlens_kv);
  const bool paged = static_cast<bool>(c.block_table);
  if (ragged_kv && paged) fail("cu_seqlens_kv and block_table exclude each other");
  if (paged) check_dim("block_table", c.block_table, 2);
  check_dim("q", c.q, ragged_q ? 3 : 4);
  check_dim("k", c.k, ragged_kv ? 3 : 4);
  check_dim("v", c.v, ragged_kv ? 3 : 4);
  p.dtype = to_dtype("q", c.q.dtype());
  if (c.k.dtype() != c.q.dtype() || c.v.dtype() != c.q.dtype()) fail("q, k and v do not have one dtype");
  c.q.make_rows_contiguous();
  c.k.make_rows_contiguous();
  c.v.make_rows_contiguous();

  // Axes of heads and of rows: ragged and paged tensors have the heads behind the rows.
  const std::int64_t q_head = 1, q_row = ragged_q ? 0 : 2;
  const std::int64_t k_head = paged ? 2 : 1, k_row = paged ? 1 : ragged_kv ? 0 : 2;
  p.dim_qk = c.q.size(c.q.dim() - 1);
  p.dim_v = c.v.size(c.v.dim() - 1);
  check_same("the last dimension of k", c.k.size(c.k.dim() - 1), "that of q", p.dim_qk);
  check_same("the number of rows of v", c.v.size(k_row), "that of k", c.k.size(k_row));
  describe_heads(c, c.q.size(q_head), c.k.size(k_head), c.v.size(k_head), p);

  if (ragged_q) {
    p.batch = c.cu_seqlens_q.size(0) - 1;
  } else if (ragged_kv || paged) {
    p.batch = c.q.size(0);
  } else {
    p.batch = broadcast("batches", {c.q.size(0), c.k.size(0), c.v.size(0)});
  }
  p.q = {ragged_q ? 0 : c.q.stride(0, p.batch), c.q.stride(q_head, p.heads_q), c.q.stride(q_row), 1};
  const auto kv_strides = [&](const Tensor& x) -> saccade_strides {
    const std::int64_t outer = ragged_kv ? 0 : paged ? x.stride(0) : x.stride(0, p.batch);
    return {outer, x.stride(k_head, p.heads_kv), x.stride(k_row), 1};
  };
  p.k = kv_strides(c.k);
  p.v = kv_strides(c.v);

  p.ragged_q = ragged_q ? 1 : 0;
  p.total_q = ragged_q ? c.q.size(0) : 0;
  p.len_q = ragged_q ? c.max_len_q : c.q.size(2);
  p.kv_layout = paged ? SACCADE_KV_PAGED : ragged_kv ? SACCADE_KV_RAGGED : SACCADE_KV_DENSE;
  p.total_kv = ragged_kv ? c.k.size(0) : 0;
  p.len_kv = ragged_kv || paged ? c.max_len_kv : c.k.size(2);
  if (!ragged_q && ragged_kv)
    check_same("the number of sequences in cu_seqlens_kv", c.cu_seqlens_kv.size(0) - 1, "the batch of q",
               p.batch);
  if (ragged_q && ragged_kv)
    check_same("the size of cu_seqlens_kv", c.cu_seqlens_kv.size(0), "that of cu_seqlens_q",
               c.cu_seqlens_q.size(0));
  if (ragged_q && !ragged_kv && !paged) {
    if (c.k.size(0) != p.batch || c.v.size(0) != p.batch) {
      fail("k and v have batches of ", c.k.size(0), " and ", c.v.size(0), " but cu_seqlens_q names ", p.batch,
           " sequences");
    }
  }
  if (!ragged_q && !ragged_kv && !paged && (c.q.empty() || c.k.empty() || c.v.empty()) &&
      (p.batch != c.q.size(0) || p.heads_q != c.q.size(1))) {
    fail("empty tensors are not broadcast");  // torch gives q's shape then
  }
  if (paged) {
    check_same("the number of pages of v", c.v.size(0), "that of k", c.k.size(0));
    check_same("the number of rows of block_table", c.block_table.size(0), "the batch", p.batch);
    p.num_pages = c.k.size(0);
    p.page_size = c.k.size(1);
    p.pages_per_sequence = c.block_table.size(1);
  }
}

void describe_mask(const Call& c, saccade_problem& p) {
  if (!c.mask) return;
  if (c.mask.dtype() == codes().boolean) {
    p.mask = SACCADE_MASK_BOOLEAN;
  } else if (c.mask.dtype() == c.q.dtype() || c.mask.dtype() == codes().f32) {
    p.mask = SACCADE_MASK_ADDITIVE;
    p.mask_dtype = c.mask.dtype() == codes().f32 ? SACCADE_F32 : p.dtype;
  } else {
    fail("the mask is neither bool nor float32 nor of the dtype of q");
  }
  const std::int64_t dim = c.mask.dim();
  if (dim > 4) fail("the mask has ", dim, " dimensions; it may have up to 4");
  const std::int64_t wanted[4] = {p.batch, p.heads_q, p.len_q, p.len_kv};
  std::int64_t* const strides[4] = {&p.mask_batch_stride, &p.mask_head_stride, &p.mask_row_stride,
                                    &p.mask_key_stride};
  for (std::int64_t axis = 0; axis < dim; ++axis) {
    const std::int64_t at = 4 - dim + axis;
    const std::int64_t size = c.mask.size(axis);
    if (size != 1 && size != wanted[at]) {
      fail("the mask has size ", size, " where the scores have ", wanted[at]);
    }
    *strides[at] = size == 1 ? 0 : c.mask.stride(axis);
  }
}

void check_vector(const char* name, Tensor& x, std::int32_t dtype, const char* dtype_name,
                  std::int64_t count) {
  if (!x) return;
  if (x.dtype() != dtype) fail(name, " must be ", dtype_name);
  check_dim(name, x, 1);
  if (x.size(0) != count) fail(name, " has ", x.size(0), " elements; it must have ", count);
  x.make_contiguous();
}

void describe_extras(Call& c, saccade_problem& p) {
  if (c.alibi_slopes) {
    if (c.alibi_slopes.dtype() != codes().f32) fail("alibi_slopes must be float32");
    const std::int64_t dim = c.alibi_slopes.dim();
    if (dim != 1 && dim != 2) fail("alibi_slopes has ", dim, " dimensions; it must have 1 or 2");
    check_same("the last dimension of alibi_slopes", c.alibi_slopes.size(dim - 1), "the number of heads of q",
               p.heads_q);
    if (dim == 2) check_same("the batch of alibi_slopes", c.alibi_slopes.size(0), "that of q", p.batch);
    c.alibi_slopes.make_contiguous();
    p.alibi = 1;
    p.alibi_batch_stride = dim == 2 ? p.heads_q : 0;
  }
  check_vector("sinks", c.sinks, codes().f32, "float32", p.heads_q);
  check_vector("cu_seqlens_q", c.cu_seqlens_q, codes().i32, "int32", p.batch + 1);
  check_vector("cu_seqlens_kv", c.cu_seqlens_kv, codes().i32, "int32", p.batch + 1);
  check_vector("kv_lengths", c.kv_lengths, codes().i32, "int32", p.batch);
  if (c.block_table) {
    if (c.block_table.dtype() != codes().i32) fail("block_table must be int32");
    c.block_table.make_contiguous();
    if (!c.kv_lengths) fail("block_table needs kv_lengths");
  }
  p.sinks = c.sinks ? 1 : 0;
  p.kv_lengths = c.kv_lengths ? 1 : 0;
}

void describe_outputs(const Call& c, saccade_problem& p, Outputs& out) {
  const std::int64_t heads = p.heads_q;
  const std::int64_t dim = p.dim_v;
  p.lse = c.lse ? 1 : 0;
  p.lse_row_stride = 1;
  if (p.ragged_q != 0) {
    const std::int64_t rows = p.total_q;
    p.o = {0, dim, heads * dim, 1};
    p.lse_head_stride = rows;
    out.o.add(rows, p.o.row);
    out.o.add(heads, p.o.head);
    out.o.add(dim, 1);
    out.lse.add(heads, p.lse_head_stride);
    out.lse.add(rows, 1);
    return;
  }
  const std::int64_t rows = p.len_q;
  const bool rows_first = c.q.stride(2) > c.q.stride(1);
  p.o = {heads * rows * dim, rows_first ? dim : rows * dim, rows_first ? heads * dim : dim, 1};
  p.lse_batch_stride = heads * rows;
  p.lse_head_stride = rows;
  out.o.add(p.batch, p.o.batch);
  out.o.add(heads, p.o.head);
  out.o.add(rows, p.o.row);
  out.o.add(dim, 1);
  out.lse.add(p.batch, p.lse_batch_stride);
  out.lse.add(heads, p.lse_head_stride);
  out.lse.add(rows, 1);
}

void describe_device(const Call& c, PlanKey& key) {
  const std::int32_t type = c.q.device_type();
  const std::int32_t index = c.q.device_index();
  for (const Tensor* x : {&c.k, &c.v, &c.mask, &c.alibi_slopes, &c.sinks, &c.cu_seqlens_q, &c.cu_seqlens_kv,
                          &c.kv_lengths, &c.block_table}) {
    if (*x && (x->device_type() != type || x->device_index() != index)) {
      fail("the tensors lie on different devices");
    }
  }
  if (type == codes().cpu) {
    std::uint32_t threads = 0;
    STABLE_TORCH_ERROR_CODE_CHECK(torch_get_num_threads(&threads));
    key.device_kind = SACCADE_CPU;
    key.threads = static_cast<std::int32_t>(threads);
  } else if (type == codes().cuda) {
    key.device_kind = SACCADE_CUDA;
    key.device_index = index;
    std::uintptr_t addresses = 16;  // more does not matter to any kernel
    for (const Tensor* x : {&c.q, &c.k, &c.v}) addresses |= reinterpret_cast<std::uintptr_t>(x->data());
    key.pointer_alignment = static_cast<std::int32_t>(addresses & (~addresses + 1));  // the lowest bit
  } else {
    fail("the tensors lie neither on the CPU nor on a CUDA device");
  }
}

std::int64_t window_side(const char* name, std::int64_t side) {
  if (side < -1) fail(name, " is ", side, "; it must be -1 (no bound) or more");
  return side == -1 ? SACCADE_UNBOUNDED : side;
}

}  // namespace

void Tensor::make_contiguous() {
  bool contiguous = false;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_is_contiguous(handle_.get(), &contiguous));
  if (contiguous) return;
  StableIValue stack[2] = {torch::stable::detail::from(handle_.release()),
                           torch::stable::detail::from(torch::headeronly::MemoryFormat::Contiguous)};
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::contiguous", "", stack, TORCH_ABI_VERSION));
  *this = Tensor(torch::stable::detail::to<AtenTensorHandle>(stack[0]));
  read();
}

void describe(Call& call, PlanKey& key, Outputs& outputs) {
  std::memset(&key, 0, sizeof key);
  saccade_problem& p = key.problem;
  p.struct_size = sizeof p;
  for (Tensor* x : {&call.q, &call.k, &call.v, &call.mask, &call.alibi_slopes, &call.sinks,
                    &call.cu_seqlens_q, &call.cu_seqlens_kv, &call.kv_lengths, &call.block_table}) {
    if (*x) x->read();
  }
  describe_device(call, key);
  describe_tensors(call, p);
  describe_mask(call, p);
  describe_extras(call, p);
  if (call.scale) {
    p.has_scale = 1;
    p.scale = static_cast<float>(*call.scale);
  }
  p.softcap = static_cast<float>(call.softcap);
  p.causal = call.causal ? 1 : 0;
  p.alignment = call.bottom_right ? SACCADE_BOTTOM_RIGHT : SACCADE_TOP_LEFT;
  p.window_left = window_side("the window's left side", call.window_left);
  p.window_right = window_side("the window's right side", call.window_right);
  describe_outputs(call, p, outputs);
}

}  // namespace saccade_torch
