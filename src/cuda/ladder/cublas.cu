// Rung 5: the unfused hybrid. Two batched products by cuBLAS, a softmax kernel between them, all scores in
// memory.
//
// Each part is as fast as it gets alone; what it costs is the memory: every score is written, read, written
// as a weight and read again, and three launches wait for each other.
#include "cuda/ladder/products.h"
#include "cuda/ladder/rungs.h"
#include "cuda/ptx/memory.h"
#include "cuda/ptx/warp.h"

namespace saccade::SACCADE_MACHINE::ladder {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / ptx::kWarpThreads;

/// The scores of all heads, [batch * heads][len_q][stride] as f32, and the weights likewise as f16.
struct SoftmaxArguments {
  const float* scores;
  F16* weights;
  std::int64_t stride;
  std::int64_t rows;
  int len_q;
  tile::KeySpan span;
  float scale;
};

/// A warp per row: the maximum, the sum, then the weights; the row is read three times, from the cache.
SACCADE_KERNEL(kThreads, 1)
softmax_rows(SACCADE_ARGUMENT(SoftmaxArguments) a) {
  const std::int64_t row = std::int64_t{ptx::block_index().x} * kWarps + ptx::warp_index();
  if (row >= a.rows) return;
  const int lane = ptx::lane_index();
  const int end = a.span.end(static_cast<int>(row % a.len_q));
  const float* scores = a.scores + row * a.stride;
  tile::RowState state;
  float max = -tile::kInfinity;
  for (int j = lane; j < end; j += ptx::kWarpThreads)
    max = tile::larger(a.scale * ptx::load(scores + j), max);
  (void)state.raise(tile::max_over_lanes(max));
  float sum = 0;
  for (int j = lane; j < end; j += ptx::kWarpThreads) {
    sum += ptx::fast_exp2(a.scale * ptx::load(scores + j) - state.base());
  }
  state.l = tile::sum_over_lanes(sum);
  const float weight = state.weight();
  for (int j = lane; j < a.span.len_kv; j += ptx::kWarpThreads) {
    const float w = j < end ? weight * ptx::fast_exp2(a.scale * ptx::load(scores + j) - state.base()) : 0.0F;
    ptx::store(a.weights + row * a.stride + j, ptx::from_float<F16>(w));
  }
}

/// The answer where there are no keys: cuBLAS multiplies no empty matrices.
SACCADE_KERNEL(kThreads, 1)
zero_rows(SACCADE_ARGUMENT(Arguments) a) {
  const Unit unit = unit_of(a, ptx::block_index().x, 1);
  for (int d = ptx::thread_index(); d < a.dim; d += kThreads)
    ptx::store(unit.o + unit.first_row * a.o.row + d, F16{});
}

/// Where scores and weights lie in the workspace.
struct Layout {
  std::int64_t stride;  ///< of a row: whole 16 bytes of weights
  std::int64_t rows;
  std::size_t scores_bytes, weights_bytes, bytes;  ///< scores, weights, then what cuBLAS needs

  explicit Layout(const Problem& p)
      : stride((p.len_kv + 7) / 8 * 8),
        rows(p.batch * p.heads_q * p.len_q),
        scores_bytes(aligned(static_cast<std::size_t>(rows * stride) * sizeof(float))),
        weights_bytes(aligned(static_cast<std::size_t>(rows * stride) * sizeof(F16))),
        bytes(scores_bytes + weights_bytes + Products::kScratchBytes) {}

 private:
  static std::size_t aligned(std::size_t n) { return (n + 255) / 256 * 256; }
};

/// Runs one product for every batch and, when query heads share key heads, for every key head.
template <class Make>
Status for_each_product(const Problem& p, const Products& products, std::byte* scratch, const Target& target,
                        const Make& make) {
  for (std::int64_t batch = 0; batch < p.batch; ++batch) {
    const bool grouped = p.group() > 1;
    for (std::int64_t head = 0; head < (grouped ? p.heads_kv : 1); ++head) {
      const auto count = static_cast<int>(grouped ? p.group() : p.heads_q);
      Product product = make(batch, head * p.group(), head);
      product.count = count;
      if (Status status = products.multiply(product, scratch, target); !status.ok()) return status;
    }
  }
  return {};
}

Status run_unfused(const Problem& p, const Tensors& t, std::byte* workspace, const Products& products,
                   const Target& target) {
  const Layout layout(p);
  const Arguments a = arguments(p, t, 1);
  if (a.units == 0) return {};
  if (Status status = check_alignment(t, "ladder_cublas"); !status.ok()) return status;
  if (p.len_kv == 0) {
    return launch("ladder_cublas", zero_rows, {.blocks = {a.units, 1, 1}, .threads = kThreads}, target, a);
  }
  auto* scores = reinterpret_cast<float*>(workspace);
  auto* weights = reinterpret_cast<F16*>(workspace + layout.scores_bytes);
  std::byte* scratch = workspace + layout.scores_bytes + layout.weights_bytes;
  const std::int64_t per_head = p.len_q * layout.stride;
  const auto dim = static_cast<int>(p.dim_qk);
  const bool shared_keys = p.group() > 1;
  const auto score = [&](std::int64_t b, std::int64_t head, std::int64_t head_kv) {
    return Product{.a = a.q.rows(b, head),
                   .b = a.k.rows(b, head_kv),
                   .c = scores + (b * p.heads_q + head) * per_head,
                   .rows = a.len_q,
                   .columns = a.span.len_kv,
                   .depth = dim,
                   .a_row = a.q.row,
                   .b_row = a.k.row,
                   .c_row = layout.stride,
                   .a_next = a.q.head,
                   .b_next = shared_keys ? 0 : a.k.head,
                   .c_next = per_head,
                   .count = 0,
                   .b_transposed = true,
                   .f32_result = true};
  };
  if (Status scored = for_each_product(p, products, scratch, target, score); !scored.ok()) return scored;
  const SoftmaxArguments softmax{scores, weights, layout.stride, layout.rows, a.len_q, a.span, a.scale};
  const Grid grid{.blocks = {static_cast<int>((layout.rows + kWarps - 1) / kWarps), 1, 1},
                  .threads = kThreads};
  if (Status weighed = launch("ladder_cublas", softmax_rows, grid, target, softmax); !weighed.ok())
    return weighed;
  return for_each_product(p, products, scratch, target,
                          [&](std::int64_t b, std::int64_t head, std::int64_t head_kv) {
                            return Product{.a = weights + (b * p.heads_q + head) * per_head,
                                           .b = a.v.rows(b, head_kv),
                                           .c = a.o.rows(b, head),
                                           .rows = a.len_q,
                                           .columns = dim,
                                           .depth = a.span.len_kv,
                                           .a_row = layout.stride,
                                           .b_row = a.v.row,
                                           .c_row = a.o.row,
                                           .a_next = per_head,
                                           .b_next = shared_keys ? 0 : a.v.head,
                                           .c_next = a.o.head,
                                           .count = 0,
                                           .b_transposed = false,
                                           .f32_result = false};
                          });
}

std::optional<std::string> reject_cublas(const Problem& p, const Machine& machine) {
  if (auto reason = reject(p, machine)) return reason;
  for (const Strides* s : {&p.q, &p.k, &p.v, &p.o}) {
    if (s->row < p.dim_qk || s->row > std::numeric_limits<int>::max() || s->head < 0) {
      return "cuBLAS takes rows that follow each other";
    }
  }
  return std::nullopt;
}

Result<Prepared> prepare_cublas(const Problem& p, const Machine&, std::string_view text) {
  const Config config(text);
  if (Status status = config.finish("ladder_cublas"); !status.ok()) return status;
  auto products = std::make_shared<Products>();
  if (Status status = products->status(); !status.ok()) return status;
  return bind("", Layout(p).bytes, p,
              [p, products](const Tensors& t, std::byte* workspace, const Target& target) -> Status {
                return run_unfused(p, t, workspace, *products, target);
              });
}

}  // namespace

const Kernel& ladder_cublas() {
  static const Kernel kRow{.name = "ladder_cublas",
                           .summary = "rung 5: cuBLAS for both products, a softmax kernel between",
                           .device = DeviceKind::cuda,
                           .reject = reject_cublas,
                           .prepare = prepare_cublas};
  return kRow;
}

}  // namespace saccade::SACCADE_MACHINE::ladder
