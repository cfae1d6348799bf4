#include <algorithm>
#include <cstring>
#include <exception>
#include <fmt/format.h>
#include <new>
#include <string>
#include <string_view>

#include <saccade/plan.h>
#include <saccade/problem.h>
#include <saccade/run.h>
#include <saccade/saccade.h>

struct saccade_plan {
  saccade::Plan plan;
  // C strings with the plan's lifetime.
  std::string explanation;
  std::string kernel;
};

namespace {

using saccade::Code;
using saccade::Problem;
using saccade::Result;
using saccade::Status;

static_assert(SACCADE_INVALID_ARGUMENT == static_cast<int>(Code::invalid_argument));
static_assert(SACCADE_UNSUPPORTED == static_cast<int>(Code::unsupported));
static_assert(SACCADE_DEVICE_UNAVAILABLE == static_cast<int>(Code::device_unavailable));
static_assert(SACCADE_WORKSPACE_TOO_SMALL == static_cast<int>(Code::workspace_too_small));
static_assert(SACCADE_OUT_OF_MEMORY == static_cast<int>(Code::out_of_memory));
static_assert(SACCADE_INTERNAL == static_cast<int>(Code::internal));
static_assert(SACCADE_F16 == static_cast<int>(saccade::DType::f16));
static_assert(SACCADE_BF16 == static_cast<int>(saccade::DType::bf16));
static_assert(SACCADE_F32 == static_cast<int>(saccade::DType::f32));
static_assert(SACCADE_BOTTOM_RIGHT == static_cast<int>(saccade::Alignment::bottom_right));
static_assert(SACCADE_MASK_BOOLEAN == static_cast<int>(saccade::MaskKind::boolean));
static_assert(SACCADE_MASK_ADDITIVE == static_cast<int>(saccade::MaskKind::additive));
static_assert(SACCADE_KV_RAGGED == static_cast<int>(saccade::KvLayout::ragged));
static_assert(SACCADE_KV_PAGED == static_cast<int>(saccade::KvLayout::paged));
static_assert(SACCADE_CUDA == static_cast<int>(saccade::DeviceKind::cuda));
static_assert(SACCADE_UNBOUNDED == saccade::kUnbounded);
static_assert(SACCADE_WORKSPACE_ALIGNMENT == saccade::kWorkspaceAlignment);

thread_local std::string last_error;

saccade_status fail(Code code, std::string_view sentence) noexcept {
  try {
    last_error = sentence;
  } catch (...) {  // no memory for the sentence: the code has to do
    last_error.clear();
  }
  return static_cast<saccade_status>(code);
}

/// Runs `body`, which returns a Status, and turns whatever leaves it into a status code.
template <class Body>
saccade_status guarded(Body&& body) noexcept {
  try {
    const Status status = body();
    return status.ok() ? SACCADE_OK : fail(status.code(), status.message());
  } catch (const std::bad_alloc&) {
    return fail(Code::out_of_memory, "an allocation failed");
  } catch (const std::exception& e) {
    return fail(Code::internal, e.what());
  } catch (...) {
    return fail(Code::internal, "an exception of unknown type");
  }
}

template <class Struct>
Status check_struct(std::string_view name, const Struct* data) {
  if (data == nullptr) return {Code::invalid_argument, fmt::format("{} is null", name)};
  if (data->struct_size == sizeof(Struct)) return {};
  return {Code::invalid_argument, fmt::format("{}.struct_size is {}; this library knows {}", name,
                                              data->struct_size, sizeof(Struct))};
}

/// Reads a C enumerator into an enum of one byte; numbers that do not fit become one that validate() rejects.
template <class Enum>
Enum to_enum(int32_t value) {
  return static_cast<Enum>(value < 0 || value > 255 ? 255 : value);
}

saccade::Strides to_cpp(const saccade_strides& s) {
  return {s.batch, s.head, s.row, s.dim};
}

saccade_strides to_c(const saccade::Strides& s) {
  return {s.batch, s.head, s.row, s.dim};
}

Problem to_cpp(const saccade_problem& c) {
  Problem p;
  p.dtype = to_enum<saccade::DType>(c.dtype);
  p.batch = c.batch;
  p.heads_q = c.heads_q;
  p.heads_kv = c.heads_kv;
  p.len_q = c.len_q;
  p.len_kv = c.len_kv;
  p.dim_qk = c.dim_qk;
  p.dim_v = c.dim_v;
  p.q = to_cpp(c.q);
  p.k = to_cpp(c.k);
  p.v = to_cpp(c.v);
  p.o = to_cpp(c.o);
  if (c.has_scale != 0) p.scale = c.scale;
  p.softcap = c.softcap;
  p.causal = c.causal != 0;
  p.alignment = to_enum<saccade::Alignment>(c.alignment);
  p.window_left = c.window_left;
  p.window_right = c.window_right;
  p.mask = to_enum<saccade::MaskKind>(c.mask);
  p.mask_dtype = to_enum<saccade::DType>(c.mask_dtype);
  p.mask_strides = {c.mask_batch_stride, c.mask_head_stride, c.mask_row_stride, c.mask_key_stride};
  p.alibi = c.alibi != 0;
  p.alibi_batch_stride = c.alibi_batch_stride;
  p.sinks = c.sinks != 0;
  p.lse = c.lse != 0;
  p.lse_strides = {c.lse_batch_stride, c.lse_head_stride, c.lse_row_stride};
  p.ragged_q = c.ragged_q != 0;
  p.total_q = c.total_q;
  p.kv_layout = to_enum<saccade::KvLayout>(c.kv_layout);
  p.total_kv = c.total_kv;
  p.kv_lengths = c.kv_lengths != 0;
  p.page_size = c.page_size;
  p.num_pages = c.num_pages;
  p.pages_per_sequence = c.pages_per_sequence;
  return p;
}

saccade_problem to_c(const Problem& p) {
  saccade_problem c{};
  c.struct_size = sizeof(saccade_problem);
  c.dtype = static_cast<int32_t>(p.dtype);
  c.has_scale = p.scale.has_value() ? 1 : 0;
  c.scale = p.effective_scale();
  c.batch = p.batch;
  c.heads_q = p.heads_q;
  c.heads_kv = p.heads_kv;
  c.len_q = p.len_q;
  c.len_kv = p.len_kv;
  c.dim_qk = p.dim_qk;
  c.dim_v = p.dim_v;
  c.q = to_c(p.q);
  c.k = to_c(p.k);
  c.v = to_c(p.v);
  c.o = to_c(p.o);
  c.softcap = p.softcap;
  c.causal = p.causal ? 1 : 0;
  c.alignment = static_cast<int32_t>(p.alignment);
  c.window_left = p.window_left;
  c.window_right = p.window_right;
  c.mask = static_cast<int32_t>(p.mask);
  c.mask_dtype = static_cast<int32_t>(p.mask_dtype);
  c.mask_batch_stride = p.mask_strides.batch;
  c.mask_head_stride = p.mask_strides.head;
  c.mask_row_stride = p.mask_strides.row;
  c.mask_key_stride = p.mask_strides.key;
  c.alibi = p.alibi ? 1 : 0;
  c.alibi_batch_stride = p.alibi_batch_stride;
  c.sinks = p.sinks ? 1 : 0;
  c.lse = p.lse ? 1 : 0;
  c.lse_batch_stride = p.lse_strides.batch;
  c.lse_head_stride = p.lse_strides.head;
  c.lse_row_stride = p.lse_strides.row;
  c.ragged_q = p.ragged_q ? 1 : 0;
  c.total_q = p.total_q;
  c.kv_layout = static_cast<int32_t>(p.kv_layout);
  c.total_kv = p.total_kv;
  c.kv_lengths = p.kv_lengths ? 1 : 0;
  c.page_size = p.page_size;
  c.num_pages = p.num_pages;
  c.pages_per_sequence = p.pages_per_sequence;
  return c;
}

saccade::Tensors to_cpp(const saccade_tensors& c) {
  return {.q = c.q,
          .k = c.k,
          .v = c.v,
          .o = c.o,
          .lse = c.lse,
          .mask = c.mask,
          .alibi_slopes = c.alibi_slopes,
          .sinks = c.sinks,
          .cu_seqlens_q = c.cu_seqlens_q,
          .cu_seqlens_kv = c.cu_seqlens_kv,
          .kv_lengths = c.kv_lengths,
          .block_table = c.block_table};
}

Result<saccade::PlanOptions> to_cpp(const saccade_options* c) {
  saccade::PlanOptions options;
  if (c == nullptr) return options;
  if (Status status = check_struct("options", c); !status.ok()) return status;
  if (c->device_kind != SACCADE_CPU && c->device_kind != SACCADE_CUDA) {
    return Status(
        Code::invalid_argument,
        fmt::format("options.device_kind is {}; it must be SACCADE_CPU or SACCADE_CUDA", c->device_kind));
  }
  options.device = {static_cast<saccade::DeviceKind>(c->device_kind), c->device_index};
  if (c->kernel != nullptr) options.kernel = c->kernel;
  if (c->config != nullptr) options.config = c->config;
  options.threads = c->threads;
  if (c->pointer_alignment != 0) options.pointer_alignment = c->pointer_alignment;
  options.trusted_pointers = c->trusted_pointers != 0;
  return options;
}

Status null_argument(std::string_view name) {
  return {Code::invalid_argument, fmt::format("{} is null", name)};
}

}  // namespace

const char* saccade_version(void) {
  return saccade::version();
}

const char* saccade_last_error(void) {
  return last_error.c_str();
}

saccade_status saccade_problem_init(saccade_problem* problem, int32_t dtype, int64_t batch, int64_t heads_q,
                                    int64_t heads_kv, int64_t len_q, int64_t len_kv, int64_t dim_qk,
                                    int64_t dim_v) {
  return guarded([&]() -> Status {
    if (problem == nullptr) return null_argument("problem");
    Problem p;
    p.dtype = to_enum<saccade::DType>(dtype);
    p.batch = batch;
    p.heads_q = heads_q;
    p.heads_kv = heads_kv;
    p.len_q = len_q;
    p.len_kv = len_kv;
    p.dim_qk = dim_qk;
    p.dim_v = dim_v;
    *problem = to_c(p.pack());
    return saccade::validate(p);
  });
}

saccade_status saccade_problem_pack(saccade_problem* problem) {
  return guarded([&]() -> Status {
    if (Status status = check_struct("problem", problem); !status.ok()) return status;
    Problem p = to_cpp(*problem);
    *problem = to_c(p.pack());
    return {};
  });
}

saccade_status saccade_problem_parse(const char* text, saccade_problem* problem) {
  return guarded([&]() -> Status {
    if (text == nullptr) return null_argument("text");
    if (problem == nullptr) return null_argument("problem");
    const Result<Problem> parsed = saccade::parse_problem(text);
    if (!parsed.ok()) return parsed.status();
    *problem = to_c(parsed.value());
    return {};
  });
}

saccade_status saccade_problem_print(const saccade_problem* problem, char* text, size_t capacity,
                                     size_t* length) {
  return guarded([&]() -> Status {
    if (Status status = check_struct("problem", problem); !status.ok()) return status;
    if (text == nullptr && capacity > 0) return null_argument("text");
    const std::string printed = saccade::to_string(to_cpp(*problem));
    if (capacity > 0) {
      const size_t kept = std::min(printed.size(), capacity - 1);
      std::memcpy(text, printed.data(), kept);
      text[kept] = '\0';
    }
    if (length != nullptr) *length = printed.size();
    return {};
  });
}

saccade_status saccade_problem_validate(const saccade_problem* problem) {
  return guarded([&]() -> Status {
    if (Status status = check_struct("problem", problem); !status.ok()) return status;
    return saccade::validate(to_cpp(*problem));
  });
}

saccade_status saccade_plan_create(const saccade_problem* problem, const saccade_options* options,
                                   saccade_plan** plan) {
  return guarded([&]() -> Status {
    if (plan == nullptr) return null_argument("plan");
    *plan = nullptr;
    if (Status status = check_struct("problem", problem); !status.ok()) return status;
    const Result<saccade::PlanOptions> wanted = to_cpp(options);
    if (!wanted.ok()) return wanted.status();
    const Result<saccade::Plan> made = saccade::make_plan(to_cpp(*problem), wanted.value());
    if (!made.ok()) return made.status();
    const saccade::Plan& chosen = made.value();
    *plan = new saccade_plan{chosen, chosen.explain(), std::string(chosen.kernel())};
    return {};
  });
}

void saccade_plan_destroy(saccade_plan* plan) {
  delete plan;
}

const char* saccade_plan_explain(const saccade_plan* plan) {
  return plan != nullptr ? plan->explanation.c_str() : nullptr;
}

const char* saccade_plan_kernel(const saccade_plan* plan) {
  return plan != nullptr ? plan->kernel.c_str() : nullptr;
}

const char* saccade_plan_config(const saccade_plan* plan) {
  return plan != nullptr ? plan->plan.config().c_str() : nullptr;
}

size_t saccade_plan_workspace_bytes(const saccade_plan* plan) {
  return plan != nullptr ? plan->plan.workspace_bytes() : 0;
}

saccade_status saccade_run(const saccade_plan* plan, const saccade_tensors* tensors, void* workspace,
                           size_t workspace_bytes, void* stream) {
  return guarded([&]() -> Status {
    if (plan == nullptr) return null_argument("plan");
    if (Status status = check_struct("tensors", tensors); !status.ok()) return status;
    return saccade::run(plan->plan, to_cpp(*tensors), {workspace, workspace_bytes}, stream);
  });
}

saccade_status saccade_attend(const saccade_problem* problem, const saccade_tensors* tensors,
                              const saccade_options* options) {
  return guarded([&]() -> Status {
    if (Status status = check_struct("problem", problem); !status.ok()) return status;
    if (Status status = check_struct("tensors", tensors); !status.ok()) return status;
    const Result<saccade::PlanOptions> wanted = to_cpp(options);
    if (!wanted.ok()) return wanted.status();
    return saccade::attend(to_cpp(*problem), to_cpp(*tensors), wanted.value());
  });
}
