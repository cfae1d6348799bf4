#include <cmath>
#include <initializer_list>

#include <saccade/problem.h>

namespace saccade {
namespace {

/// Products of sizes that validate() has not seen yet: they wrap instead of being undefined.
std::int64_t product(std::initializer_list<std::int64_t> factors) {
  std::uint64_t result = 1;
  for (const std::int64_t factor : factors) result *= static_cast<std::uint64_t>(factor);
  return static_cast<std::int64_t>(result);
}

Strides packed(Order order, std::int64_t heads, std::int64_t len, std::int64_t dim) {
  if (order == Order::blhd) return {product({len, heads, dim}), dim, product({heads, dim}), 1};
  return {product({heads, len, dim}), product({len, dim}), dim, 1};
}

}  // namespace

const char* to_string(Code code) noexcept {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::invalid_argument:
      return "invalid_argument";
    case Code::unsupported:
      return "unsupported";
    case Code::device_unavailable:
      return "device_unavailable";
    case Code::workspace_too_small:
      return "workspace_too_small";
    case Code::out_of_memory:
      return "out_of_memory";
    case Code::internal:
      return "internal";
  }
  return "unknown";
}

std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::f32:
      return 4;
  }
  return 0;
}

std::string_view to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f32:
      return "f32";
  }
  return "unknown";
}

Problem Problem::dense(std::int64_t batch, std::int64_t heads, std::int64_t len, std::int64_t dim,
                       DType dtype) {
  Problem p;
  p.dtype = dtype;
  p.batch = batch;
  p.heads_q = p.heads_kv = heads;
  p.len_q = p.len_kv = len;
  p.dim_qk = p.dim_v = dim;
  return p.pack();
}

Problem& Problem::pack(Order order) {
  const auto query = [&](std::int64_t dim) {
    if (!ragged_q) return packed(order, heads_q, len_q, dim);
    return Strides{0, dim, product({heads_q, dim}), 1};
  };
  const auto key = [&](std::int64_t dim) {
    switch (kv_layout) {
      case KvLayout::paged:
        return packed(Order::blhd, heads_kv, page_size, dim);
      case KvLayout::ragged:
        return Strides{0, dim, product({heads_kv, dim}), 1};
      case KvLayout::dense:
        break;
    }
    return packed(order, heads_kv, len_kv, dim);
  };
  q = query(dim_qk);
  o = query(dim_v);
  k = key(dim_qk);
  v = key(dim_v);
  mask_strides = {product({heads_q, len_q, len_kv}), product({len_q, len_kv}), len_kv, 1};
  lse_strides = ragged_q ? LseStrides{0, total_q, 1} : LseStrides{product({heads_q, len_q}), len_q, 1};
  return *this;
}

float Problem::effective_scale() const noexcept {
  if (scale) return *scale;
  return dim_qk > 0 ? 1.0F / std::sqrt(static_cast<float>(dim_qk)) : 1.0F;
}

double flops(const Problem& p) noexcept {
  const double pairs = static_cast<double>(p.batch) * static_cast<double>(p.heads_q) *
                       static_cast<double>(p.len_q) * static_cast<double>(p.len_kv);
  const double all = 2.0 * pairs * static_cast<double>(p.dim_qk + p.dim_v);
  return p.causal && p.len_q == p.len_kv ? all / 2 : all;
}

double min_bytes(const Problem& p) noexcept {
  const auto n = [](std::int64_t x) { return static_cast<double>(x); };
  const double queries = n(p.heads_q) * (p.ragged_q ? n(p.total_q) : n(p.batch) * n(p.len_q));
  const double keys =
      n(p.heads_kv) * (p.kv_layout == KvLayout::ragged ? n(p.total_kv) : n(p.batch) * n(p.len_kv));
  return (queries + keys) * n(p.dim_qk + p.dim_v) * static_cast<double>(size_of(p.dtype)) +
         (p.lse ? 4 * queries : 0);
}

std::size_t hash(const Problem& p) noexcept {
  std::uint64_t h = 0x9e3779b97f4a7c15U;
  const auto mix = [&h](std::uint64_t x) {  // splitmix64's finaliser over a running sum
    h += x + 0x9e3779b97f4a7c15U;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9U;
    h = (h ^ h >> 27) * 0x94d049bb133111ebU;
    h ^= h >> 31;
  };
  const auto mix_all = [&mix](std::initializer_list<std::int64_t> xs) {
    for (const std::int64_t x : xs) mix(static_cast<std::uint64_t>(x));
  };
  const auto number = [](float x) -> std::int64_t {  // -0.0f == 0.0f, so both must hash alike
    return x == 0 ? 0 : static_cast<std::int64_t>(std::hash<float>{}(x));
  };
  mix_all({static_cast<int>(p.dtype), p.batch, p.heads_q, p.heads_kv, p.len_q, p.len_kv, p.dim_qk, p.dim_v});
  for (const Strides& s : {p.q, p.k, p.v, p.o}) mix_all({s.batch, s.head, s.row, s.dim});
  mix_all({p.scale.has_value(), p.scale ? number(*p.scale) : 0, number(p.softcap)});
  mix_all({p.causal, static_cast<int>(p.alignment), p.window_left, p.window_right});
  mix_all({static_cast<int>(p.mask), static_cast<int>(p.mask_dtype), p.mask_strides.batch,
           p.mask_strides.head, p.mask_strides.row, p.mask_strides.key});
  mix_all({p.alibi, p.alibi_batch_stride, p.sinks});
  mix_all({p.lse, p.lse_strides.batch, p.lse_strides.head, p.lse_strides.row});
  mix_all({p.ragged_q, p.total_q, static_cast<int>(p.kv_layout), p.total_kv, p.kv_lengths});
  mix_all({p.page_size, p.num_pages, p.pages_per_sequence});
  return h;
}

}  // namespace saccade
