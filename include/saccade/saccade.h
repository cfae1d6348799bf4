/* The C interface: the same problems, plans and runs as the C++ headers, with no exception and no C++ type
 * crossing it. Every function returns a saccade_status or cannot fail; on failure saccade_last_error() has
 * the sentence. What the fields mean is written once, in problem.h, plan.h and run.h. */
#ifndef SACCADE_SACCADE_H
#define SACCADE_SACCADE_H

#include <stddef.h>
#include <stdint.h>

#include <saccade/export.h>

/* The version of these headers; saccade_version() has that of the library that was linked. */
#define SACCADE_VERSION_MAJOR 0
#define SACCADE_VERSION_MINOR 1
#define SACCADE_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/** The outcome of a call; the numbers are those of saccade::Code and never change meaning. */
typedef enum saccade_status {
  SACCADE_OK = 0,
  SACCADE_INVALID_ARGUMENT = 1,
  SACCADE_UNSUPPORTED = 2,
  SACCADE_DEVICE_UNAVAILABLE = 3,
  SACCADE_WORKSPACE_TOO_SMALL = 4,
  SACCADE_OUT_OF_MEMORY = 5,
  SACCADE_INTERNAL = 6
} saccade_status;

/** Element types: saccade_problem.dtype and .mask_dtype. */
enum { SACCADE_F16 = 0, SACCADE_BF16 = 1, SACCADE_F32 = 2 };
/** Where the diagonal starts: saccade_problem.alignment. */
enum { SACCADE_TOP_LEFT = 0, SACCADE_BOTTOM_RIGHT = 1 };
/** What the mask means: saccade_problem.mask. */
enum { SACCADE_MASK_NONE = 0, SACCADE_MASK_BOOLEAN = 1, SACCADE_MASK_ADDITIVE = 2 };
/** How keys and values lie in memory: saccade_problem.kv_layout. */
enum { SACCADE_KV_DENSE = 0, SACCADE_KV_RAGGED = 1, SACCADE_KV_PAGED = 2 };
/** Kinds of devices: saccade_options.device_kind. */
enum { SACCADE_CPU = 0, SACCADE_CUDA = 1 };

/** A window without a bound. */
#define SACCADE_UNBOUNDED INT64_MAX
/** The alignment that saccade_run() asks of the workspace, in bytes. */
#define SACCADE_WORKSPACE_ALIGNMENT 256

/** Distances between neighbours in elements; see saccade::Strides. */
typedef struct saccade_strides {
  int64_t batch, head, row, dim;
} saccade_strides;

/** One attention problem; see saccade::Problem. Flags are 0 or 1. Start from saccade_problem_init() or
 * saccade_problem_parse(). */
typedef struct saccade_problem {
  size_t struct_size; /**< sizeof(saccade_problem); any other value is an error */
  int32_t dtype, has_scale;
  int64_t batch, heads_q, heads_kv, len_q, len_kv, dim_qk, dim_v;
  saccade_strides q, k, v, o;
  float scale; /**< used when has_scale is 1; else 1/sqrt(dim_qk) */
  float softcap;
  int32_t causal, alignment;
  int64_t window_left, window_right;
  int32_t mask, mask_dtype;
  int64_t mask_batch_stride, mask_head_stride, mask_row_stride, mask_key_stride;
  int32_t alibi, sinks;
  int64_t alibi_batch_stride;
  int32_t lse, ragged_q;
  int64_t lse_batch_stride, lse_head_stride, lse_row_stride;
  int64_t total_q;
  int32_t kv_layout, kv_lengths;
  int64_t total_kv, page_size, num_pages, pages_per_sequence;
} saccade_problem;

/** The pointers of one call; see saccade::Tensors. What the problem does not name is ignored. */
typedef struct saccade_tensors {
  size_t struct_size; /**< sizeof(saccade_tensors); any other value is an error */
  const void* q;
  const void* k;
  const void* v;
  void* o;
  float* lse;
  const void* mask;
  const float* alibi_slopes;
  const float* sinks;
  const int32_t* cu_seqlens_q;
  const int32_t* cu_seqlens_kv;
  const int32_t* kv_lengths;
  const int32_t* block_table;
} saccade_tensors;

/** What the caller may decide instead of the planner; see saccade::PlanOptions. All zero means "decide". */
typedef struct saccade_options {
  size_t struct_size; /**< sizeof(saccade_options); any other value is an error */
  int32_t device_kind, device_index;
  const char* kernel;        /**< a registry name to insist on, or null */
  const char* config;        /**< kernel settings as "key=value ...", or null */
  int32_t threads;           /**< CPU threads at most; 0: all */
  int32_t pointer_alignment; /**< of q, k, v and o in bytes; 0 means 16; see saccade::PlanOptions */
  /** 1: the caller vouches for the pointers of every run; see saccade::PlanOptions */
  int32_t trusted_pointers;
} saccade_options;

/** A decision, ready to run any number of times, from any number of threads. */
typedef struct saccade_plan saccade_plan;

/** The linked library's version, "major.minor.patch". */
SACCADE_API const char* saccade_version(void);

/** The sentence of this thread's latest failed call; empty before the first. Valid until the next one fails.
 */
SACCADE_API const char* saccade_last_error(void);

/** Fills `problem` with these sizes, packed [batch, head, length, dim] tensors and the defaults of
 * saccade::Problem: the default scale, no window, no mask, not causal. Fails when the sizes are not legal. */
SACCADE_API saccade_status saccade_problem_init(saccade_problem* problem, int32_t dtype, int64_t batch,
                                                int64_t heads_q, int64_t heads_kv, int64_t len_q,
                                                int64_t len_kv, int64_t dim_qk, int64_t dim_v);

/** Sets all strides, mask and lse included, to packed memory for the present sizes and layouts. */
SACCADE_API saccade_status saccade_problem_pack(saccade_problem* problem);

/** Reads the shape syntax, e.g. "b1 h8 l512 d64 f16 causal", into `problem`. */
SACCADE_API saccade_status saccade_problem_parse(const char* text, saccade_problem* problem);

/** Writes the problem in the shape syntax to `text`, which holds `capacity` bytes, cut short if need be and
 * always terminated when capacity > 0. `*length` (when not null) becomes the whole length without the
 * terminator, so that a call with capacity 0 measures. */
SACCADE_API saccade_status saccade_problem_print(const saccade_problem* problem, char* text, size_t capacity,
                                                 size_t* length);

/** Checks everything that can be checked without pointers. */
SACCADE_API saccade_status saccade_problem_validate(const saccade_problem* problem);

/** Validates the problem and chooses a kernel; `options` may be null. The caller owns `*plan` and gives it to
 * saccade_plan_destroy(); on failure it becomes null. */
SACCADE_API saccade_status saccade_plan_create(const saccade_problem* problem, const saccade_options* options,
                                               saccade_plan** plan);

/** Releases a plan; null is fine. No run of it may be in progress. */
SACCADE_API void saccade_plan_destroy(saccade_plan* plan);

/** Which kernel, with which configuration, and why every faster one said no. Lives as long as the plan; null
 * for a null plan. */
SACCADE_API const char* saccade_plan_explain(const saccade_plan* plan);

/** The chosen kernel's registry name. Lives as long as the plan; null for a null plan. */
SACCADE_API const char* saccade_plan_kernel(const saccade_plan* plan);

/** The chosen configuration as "key=value ..."; saccade_options.config takes it back. Lives as long as the
 * plan; null for a null plan. */
SACCADE_API const char* saccade_plan_config(const saccade_plan* plan);

/** Bytes of scratch memory that saccade_run() needs; may be 0. 0 for a null plan. */
SACCADE_API size_t saccade_plan_workspace_bytes(const saccade_plan* plan);

/** Computes the plan's problem on these tensors; see saccade::run. The workspace is the caller's, aligned to
 * SACCADE_WORKSPACE_ALIGNMENT; `stream` is a cudaStream_t on CUDA and ignored on the CPU. Allocates nothing.
 * On failure the outputs are untouched. */
SACCADE_API saccade_status saccade_run(const saccade_plan* plan, const saccade_tensors* tensors,
                                       void* workspace, size_t workspace_bytes, void* stream);

/** Plans, allocates the workspace, runs and waits: the convenience for single calls. `options` may be null.
 */
SACCADE_API saccade_status saccade_attend(const saccade_problem* problem, const saccade_tensors* tensors,
                                          const saccade_options* options);

#ifdef __cplusplus
}
#endif

#endif
