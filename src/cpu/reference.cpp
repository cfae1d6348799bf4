#include "cpu/reference.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <omp.h>

#include "core/config.h"
#include "core/dtypes.h"
#include "core/sequence.h"
#include "cpu/kernels.h"

namespace saccade {
namespace {

template <class Real>
constexpr Real kInfinity = std::numeric_limits<Real>::infinity();

/// Keys of one head as Reals, [len_kv][dim], wherever they came from.
template <class Real>
void gather(const Problem& p, const Tensors& t, const Sequence& s, std::int64_t head, Real* keys,
            Real* values) {
#pragma omp for
  for (std::int64_t j = 0; j < s.len_kv; ++j) {
    const std::int64_t key = key_offset(p, t, p.k, s, head, j);
    const std::int64_t value = key_offset(p, t, p.v, s, head, j);
    for (std::int64_t d = 0; d < p.dim_qk; ++d) keys[j * p.dim_qk + d] = load(p.dtype, t.k, key + d);
    for (std::int64_t d = 0; d < p.dim_v; ++d) values[j * p.dim_v + d] = load(p.dtype, t.v, value + d);
  }
}

/// Whether the definition lets query i see key j. Written from the definition, not shared with the kernels.
bool sees(const Problem& p, const Tensors& t, const Sequence& s, std::int64_t head, std::int64_t i,
          std::int64_t j) {
  const std::int64_t distance = j - (i + s.diagonal);
  if (p.causal && distance > 0) return false;
  if (distance > 0 && distance > p.window_right) return false;
  if (distance < 0 && -distance > p.window_left) return false;
  if (p.mask == MaskKind::boolean) {
    return static_cast<const std::uint8_t*>(t.mask)[mask_offset(p, s, head, i, j)] != 0;
  }
  return true;
}

template <class Real>
Real score(const Problem& p, const Tensors& t, const Sequence& s, std::int64_t head, std::int64_t i,
           std::int64_t j, const Real* q, const Real* key) {
  if (!sees(p, t, s, head, i, j)) return -kInfinity<Real>;
  const Real bias =
      p.mask == MaskKind::additive ? load(p.mask_dtype, t.mask, mask_offset(p, s, head, i, j)) : 0.0F;
  if (bias == -kInfinity<Real>) return bias;  // hidden, whatever the score
  Real dot = 0;
#pragma omp simd reduction(+ : dot)
  for (std::int64_t d = 0; d < p.dim_qk; ++d) dot += q[d] * key[d];
  Real x = dot * static_cast<Real>(p.effective_scale());
  if (p.softcap > 0) x = p.softcap * std::tanh(x / p.softcap);
  x += bias;
  if (p.alibi) {
    const Real slope = t.alibi_slopes[s.batch * p.alibi_batch_stride + head];
    x -= slope * static_cast<Real>(std::abs(i + s.diagonal - j));
  }
  return x;
}

/// Real storage of one thread: a query, the scores of a row, an output row in Real and in double.
template <class Real>
struct RowScratch {
  Real* q;
  Real* scores;
  Real* sum;
  double* o;

  static std::size_t bytes(const Problem& p) {
    const std::int64_t count = p.dim_qk + p.len_kv + p.dim_v;
    const std::size_t reals = (static_cast<std::size_t>(count) * sizeof(Real) + 7) / 8 * 8;
    return reals + static_cast<std::size_t>(p.dim_v) * sizeof(double);
  }
  RowScratch(const Problem& p, std::byte* at) {
    q = reinterpret_cast<Real*>(at);
    scores = q + p.dim_qk;
    sum = scores + p.len_kv;
    o = reinterpret_cast<double*>(at + bytes(p) - static_cast<std::size_t>(p.dim_v) * sizeof(double));
  }
};

template <class Real>
double attend_row(const Problem& p, const Tensors& t, const Sequence& s, std::int64_t head, std::int64_t i,
                  const Real* keys, const Real* values, const RowScratch<Real>& row, Precision precision) {
  const std::int64_t q = query_offset(p, p.q, s, head, i);
  for (std::int64_t d = 0; d < p.dim_qk; ++d) row.q[d] = load(p.dtype, t.q, q + d);

  const Real sink = p.sinks ? static_cast<Real>(t.sinks[head]) : -kInfinity<Real>;
  Real max = sink;
  for (std::int64_t j = 0; j < s.len_kv; ++j) {
    row.scores[j] = score(p, t, s, head, i, j, row.q, keys + j * p.dim_qk);
    max = std::isnan(row.scores[j]) || row.scores[j] > max ? row.scores[j] : max;
  }
  std::fill_n(row.o, p.dim_v, 0.0);
  if (max == -kInfinity<Real>) return -kInfinity<double>;

  Real total = std::exp(sink - max);
  for (std::int64_t j = 0; j < s.len_kv; ++j) total += row.scores[j] = std::exp(row.scores[j] - max);
  std::fill_n(row.sum, p.dim_v, Real{0});
  for (std::int64_t j = 0; j < s.len_kv; ++j) {
    Real weight = row.scores[j] / total;
    if (weight == 0) continue;
    if (precision == Precision::plain) {
      with_dtype(p.dtype, [&](auto zero) {
        weight = to_float(from_float<decltype(zero)>(static_cast<float>(weight)));
      });
    }
    const Real* value = values + j * p.dim_v;
    for (std::int64_t d = 0; d < p.dim_v; ++d) row.sum[d] += weight * value[d];
  }
  std::copy_n(row.sum, p.dim_v, row.o);
  return static_cast<double>(max + std::log(total));
}

template <class Real>
std::size_t scratch_bytes(const Problem& p, int threads) {
  const auto head = static_cast<std::size_t>(p.len_kv * (p.dim_qk + p.dim_v)) * sizeof(Real);
  return (head + 7) / 8 * 8 + static_cast<std::size_t>(threads) * RowScratch<Real>::bytes(p);
}

template <class Real>
void run_reference(const Problem& p, const Tensors& t, Precision precision, int threads, std::byte* scratch,
                   const RowFilter& filter, const RowSink& sink) {
  auto* keys = reinterpret_cast<Real*>(scratch);
  Real* values = keys + p.len_kv * p.dim_qk;
  std::byte* rows = scratch + scratch_bytes<Real>(p, 0);
#pragma omp parallel num_threads(threads)
  {
    const RowScratch<Real> row(
        p, rows + static_cast<std::size_t>(omp_get_thread_num()) * RowScratch<Real>::bytes(p));
    for (std::int64_t b = 0; b < p.batch; ++b) {
      const Sequence s = sequence(p, t, b);
      for (std::int64_t head_kv = 0; head_kv < p.heads_kv; ++head_kv) {
        gather(p, t, s, head_kv, keys, values);
        const std::int64_t group = p.group();
#pragma omp for schedule(dynamic, 4)
        for (std::int64_t r = 0; r < group * s.len_q; ++r) {
          const std::int64_t head = head_kv * group + r / s.len_q;
          const std::int64_t i = r % s.len_q;
          if (filter && !filter(b, head, i)) continue;
          const double lse = attend_row(p, t, s, head, i, keys, values, row, precision);
          sink({b, head, i, {row.o, static_cast<std::size_t>(p.dim_v)}, lse});
        }
      }
    }
  }
}

}  // namespace

std::size_t reference_scratch_bytes(const Problem& problem, int threads) {
  return scratch_bytes<double>(problem, threads);
}

void reference(const Problem& problem, const Tensors& tensors, Precision precision, int threads,
               std::span<std::byte> scratch, const RowFilter& filter, const RowSink& sink) {
  if (precision == Precision::oracle) {
    run_reference<double>(problem, tensors, precision, threads, scratch.data(), filter, sink);
  } else {
    run_reference<float>(problem, tensors, precision, threads, scratch.data(), filter, sink);
  }
}

const Kernel& cpu_reference() {
  static const Kernel kRow{
      .name = "cpu_reference",
      .summary = "the float64 oracle, row by row",
      .device = DeviceKind::cpu,
      .reject = [](const Problem&, const Machine&) -> std::optional<std::string> { return std::nullopt; },
      .prepare = [](const Problem& p, const Machine& machine, std::string_view text) -> Result<Prepared> {
        Config config(text);
        const int threads = config.take("threads", machine.threads, 1, machine.threads);
        if (Status status = config.finish("cpu_reference"); !status.ok()) return status;
        const std::size_t bytes = reference_scratch_bytes(p, threads);
        const auto launch = [p, threads, bytes](const Tensors& t, std::byte* workspace, Stream) -> Status {
          reference(p, t, Precision::oracle, threads, {workspace, bytes}, {}, [&](const ReferenceRow& row) {
            const Sequence s = sequence(p, t, row.batch);
            const std::int64_t o = query_offset(p, p.o, s, row.head, row.query);
            for (std::int64_t d = 0; d < p.dim_v; ++d) {
              store(p.dtype, t.o, o + d, static_cast<float>(row.o[static_cast<std::size_t>(d)]));
            }
            if (p.lse) t.lse[lse_offset(p, s, row.head, row.query)] = static_cast<float>(row.lse);
          });
          return {};
        };
        return Prepared{fmt::format("threads={}", threads), bytes, launch};
      }};
  return kRow;
}

}  // namespace saccade
