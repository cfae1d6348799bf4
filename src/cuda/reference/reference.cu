// One plain kernel that supports every feature: a warp per query row, no shared memory but for the query.
//
// A chunk of 32 keys at a time: lane j scores key j, the warp's online softmax turns scores into weights, and
// then each lane adds the weighted values of its own columns (lane, lane + 32, ...), weights coming by
// shuffles.
#include "core/config.h"
#include "core/sequence.h"
#include "cuda/launch/bind.h"
#include "cuda/ptx/memory.h"
#include "cuda/ptx/numbers.h"
#include "cuda/ptx/warp.h"
#include "cuda/reference/reference.h"
#include "cuda/tile/softmax.h"

namespace saccade::SACCADE_MACHINE {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * ptx::kWarpThreads;
constexpr int kColumnsPerLane = static_cast<int>(kMaxHeadDim) / ptx::kWarpThreads;

struct Arguments {
  Problem p;
  Tensors t;
  float scale;  ///< of the dot product
  std::int64_t rows;
};

/// The score of one visible pair in base 2, -inf when a mask hides it.
template <class T>
SACCADE_DEVICE float score(const Arguments& a, const Sequence& s, std::int64_t head, std::int64_t i,
                           std::int64_t j, const float* q) {
  const Problem& p = a.p;
  float bias = 0;
  if (p.mask == MaskKind::boolean) {
    if (ptx::load_constant(static_cast<const std::uint8_t*>(a.t.mask) + mask_offset(p, s, head, i, j)) == 0) {
      return -tile::kInfinity;
    }
  } else if (p.mask == MaskKind::additive) {
    const std::int64_t at = mask_offset(p, s, head, i, j);
    bias = p.mask_dtype == DType::f32
               ? ptx::load_constant(static_cast<const float*>(a.t.mask) + at)
               : ptx::to_float(ptx::load_constant(static_cast<const T*>(a.t.mask) + at));
    if (bias == -tile::kInfinity) return bias;  // hidden, whatever the score
  }
  const T* key = static_cast<const T*>(a.t.k) + key_offset(p, a.t, p.k, s, head / p.group(), j);
  float dot = 0;
  for (std::int64_t d = 0; d < p.dim_qk; ++d) {
    dot = ptx::fma(ptx::load(q + d), ptx::to_float(ptx::load_constant(key + d)), dot);
  }
  float x = dot * a.scale;
  if (p.softcap > 0) x = p.softcap * ptx::accurate_tanh(x / p.softcap);
  x += bias;
  if (p.alibi) {
    const std::int64_t distance = i + s.diagonal - j;
    const float slope = ptx::load_constant(a.t.alibi_slopes + s.batch * p.alibi_batch_stride + head);
    x -= slope * static_cast<float>(distance < 0 ? -distance : distance);
  }
  // What was not hidden stays finite in base 2; in this order NaN stays NaN.
  return tile::larger(-tile::kLargest, x * tile::kLog2e);
}

template <class T>
SACCADE_DEVICE void attend_row(const Arguments& a, std::int64_t row, float* q) {
  const Problem& p = a.p;
  const int lane = ptx::lane_index();
  const std::int64_t i = row % p.len_q;
  const std::int64_t head = row / p.len_q % p.heads_q;
  const Sequence s = sequence(p, a.t, row / p.len_q / p.heads_q);
  if (i >= s.len_q) return;

  const T* query = static_cast<const T*>(a.t.q) + query_offset(p, p.q, s, head, i);
  ptx::sync_warp();  // the row before is done with q
  for (std::int64_t d = lane; d < p.dim_qk; d += ptx::kWarpThreads) {
    ptx::store(q + d, ptx::to_float(ptx::load_constant(query + d)));
  }
  ptx::sync_warp();

  float m = -tile::kInfinity;
  float l = 0;
  float o[kColumnsPerLane] = {};
  const KeyRange keys = visible_keys(p, s, i);
  for (std::int64_t first = keys.begin; first < keys.end; first += ptx::kWarpThreads) {
    const std::int64_t j = first + lane;
    const float x = j < keys.end ? score<T>(a, s, head, i, j, q) : -tile::kInfinity;
    const float chunk = tile::max_over_lanes(x);
    const float old = m;
    m = chunk > m ? chunk : m;
    const float base = m == -tile::kInfinity ? 0.0F : m;  // nothing seen yet: any finite number will do
    const float weight = ptx::accurate_exp2(x - base);
    const float keep = ptx::accurate_exp2(old - base);
    l = l * keep + tile::sum_over_lanes(weight);
    SACCADE_UNROLL
    for (int c = 0; c < kColumnsPerLane; ++c) o[c] *= keep;
    const int count =
        static_cast<int>(keys.end - first < ptx::kWarpThreads ? keys.end - first : ptx::kWarpThreads);
    for (int n = 0; n < count; ++n) {
      const float w = ptx::shuffle(weight, n);
      if (w == 0) continue;
      const T* value = static_cast<const T*>(a.t.v) + key_offset(p, a.t, p.v, s, head / p.group(), first + n);
      SACCADE_UNROLL
      for (int c = 0; c < kColumnsPerLane; ++c) {
        const int d = c * ptx::kWarpThreads + lane;
        if (d < p.dim_v) o[c] = ptx::fma(w, ptx::to_float(ptx::load_constant(value + d)), o[c]);
      }
    }
  }

  if (p.sinks) {
    const float sink = tile::kLog2e * ptx::load_constant(a.t.sinks + head);
    const float top = sink > m ? sink : m;
    const float keep = ptx::accurate_exp2(m - top);
    l = l * keep + ptx::accurate_exp2(sink - top);
    SACCADE_UNROLL
    for (int c = 0; c < kColumnsPerLane; ++c) o[c] *= keep;
    m = top;
  }
  const float weight = l == 0 ? 0.0F : 1 / l;
  T* to = static_cast<T*>(a.t.o) + query_offset(p, p.o, s, head, i);
  SACCADE_UNROLL
  for (int c = 0; c < kColumnsPerLane; ++c) {
    const int d = c * ptx::kWarpThreads + lane;
    if (d < p.dim_v) ptx::store(to + d, ptx::from_float<T>(o[c] * weight));
  }
  if (p.lse && lane == 0) {
    const float lse = l == 0 ? -tile::kInfinity : tile::kLn2 * (m + ptx::accurate_log2(l));
    ptx::store(a.t.lse + lse_offset(p, s, head, i), lse);
  }
}

template <class T>
SACCADE_KERNEL(kThreads, 1)
reference_kernel(SACCADE_ARGUMENT(Arguments) a) {
  float* q = reinterpret_cast<float*>(ptx::shared_memory()) + ptx::warp_index() * a.p.dim_qk;
  const std::int64_t step = std::int64_t{ptx::grid_size().x} * kWarps;
  for (std::int64_t row = std::int64_t{ptx::block_index().x} * kWarps + ptx::warp_index(); row < a.rows;
       row += step) {
    attend_row<T>(a, row, q);
  }
}

Result<Prepared> prepare(const Problem& p, const Machine&, std::string_view text) {
  const Config config(text);
  if (Status status = config.finish("cuda_reference"); !status.ok()) return status;
  return bind("", 0, p, [p](const Tensors& t, std::byte*, const Target& target) -> Status {
    const std::int64_t rows = p.batch * p.heads_q * p.len_q;
    if (rows == 0) return {};
    const Arguments arguments{p, t, p.effective_scale(), rows};
    constexpr std::int64_t kMostBlocks = 1 << 20;
    const std::int64_t blocks = (rows + kWarps - 1) / kWarps;
    const Grid grid{.blocks = {static_cast<int>(blocks < kMostBlocks ? blocks : kMostBlocks), 1, 1},
                    .threads = kThreads,
                    .cluster = 1,
                    .shared_bytes = static_cast<std::size_t>(kWarps * p.dim_qk) * sizeof(float)};
    switch (p.dtype) {
      case DType::f16:
        return launch("cuda_reference", reference_kernel<F16>, grid, target, arguments);
      case DType::bf16:
        return launch("cuda_reference", reference_kernel<BF16>, grid, target, arguments);
      case DType::f32:
        break;
    }
    return launch("cuda_reference", reference_kernel<float>, grid, target, arguments);
  });
}

}  // namespace

const Kernel& cuda_reference() {
  static const Kernel kRow{
      .name = "cuda_reference",
      .summary = "a warp per row, every feature",
      .device = DeviceKind::cuda,
      .reject = [](const Problem&, const Machine&) -> std::optional<std::string> { return std::nullopt; },
      .prepare = prepare};
  return kRow;
}

}  // namespace saccade::SACCADE_MACHINE
