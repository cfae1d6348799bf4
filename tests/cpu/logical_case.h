// A call on tensors that the test writes by index; how they lie in memory is the problem's choice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <saccade/plan.h>
#include <saccade/run.h>

#include "core/dtypes.h"
#include "core/sequence.h"
#include "verify/random.h"

namespace saccade {

/// Inputs by logical index: [batch][head][row][dim], rows up to the problem's len_q and len_kv.
struct LogicalCase {
  Problem problem;
  std::vector<float> q, k, v;
  std::vector<float> bias;         ///< [batch][head][query][key], when the mask is additive
  std::vector<std::uint8_t> seen;  ///< the same, when it is boolean
  std::vector<float> slopes;       ///< [batch][head]
  std::vector<float> sinks;        ///< [head]
  std::vector<std::int32_t> cu_seqlens_q, cu_seqlens_kv, kv_lengths, block_table;

  /// N(0,1) in q, k and v, rounded to the dtype.
  LogicalCase(const Problem& p, std::uint64_t seed) : problem(p) {
    const auto fill = [&](std::vector<float>& x, std::int64_t heads, std::int64_t len, std::int64_t dim,
                          std::uint64_t which) {
      x.resize(static_cast<std::size_t>(p.batch * heads * len * dim));
      for (std::size_t n = 0; n < x.size(); ++n) {
        with_dtype(p.dtype, [&](auto zero) {
          x[n] = to_float(from_float<decltype(zero)>(normal(stream(seed, which), n)));
        });
      }
    };
    fill(q, p.heads_q, p.len_q, p.dim_qk, 0);
    fill(k, p.heads_kv, p.len_kv, p.dim_qk, 1);
    fill(v, p.heads_kv, p.len_kv, p.dim_v, 2);
  }

  [[nodiscard]] std::int64_t pair(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return ((b * problem.heads_q + h) * problem.len_q + i) * problem.len_kv + j;
  }
  [[nodiscard]] std::int64_t pairs() const {
    return problem.batch * problem.heads_q * problem.len_q * problem.len_kv;
  }
  /// Calls f(batch, head, query, key) for every pair.
  void for_each_pair(
      const std::function<void(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>& f) const {
    for (std::int64_t b = 0; b < problem.batch; ++b) {
      for (std::int64_t h = 0; h < problem.heads_q; ++h) {
        for (std::int64_t i = 0; i < problem.len_q; ++i) {
          for (std::int64_t j = 0; j < problem.len_kv; ++j) f(b, h, i, j);
        }
      }
    }
  }
};

/// Outputs by logical index.
struct LogicalOutputs {
  std::vector<double> o;    ///< [batch][head][query][dim]
  std::vector<double> lse;  ///< [batch][head][query]
};

/// The memory of a strided tensor, its logical origin wherever negative strides put it.
class Memory {
 public:
  Memory(DType dtype, const Strides& strides, std::int64_t blocks, std::int64_t heads, std::int64_t rows,
         std::int64_t dim) {
    std::int64_t last = 0;
    for (const auto& [size, stride] :
         {std::pair{blocks, strides.batch}, {heads, strides.head}, {rows, strides.row}}) {
      const std::int64_t reach = (size - 1) * stride;
      (reach < 0 ? first_ : last) += reach;
    }
    first_ *= static_cast<std::int64_t>(size_of(dtype));
    bytes_.resize(static_cast<std::size_t>(last + dim) * size_of(dtype) - static_cast<std::size_t>(first_));
  }
  void* origin() { return bytes_.data() - first_; }

 private:
  std::int64_t first_ = 0;
  std::vector<std::byte> bytes_;
};

/// Whether the kernel takes the problem.
inline bool takes(const std::string& kernel, const Problem& p) {
  return make_plan(p, {.kernel = kernel}).ok();
}

/// Runs the kernel on the case, laid out as its problem says. The lse is always asked for.
inline LogicalOutputs run_case(const std::string& kernel, const LogicalCase& c) {
  Problem p = c.problem;
  if (!p.lse) {
    p.lse = true;
    p.lse_strides = Problem(p).pack().lse_strides;
  }
  Tensors t{.cu_seqlens_q = c.cu_seqlens_q.data(),
            .cu_seqlens_kv = c.cu_seqlens_kv.data(),
            .kv_lengths = c.kv_lengths.data(),
            .block_table = c.block_table.data()};
  t.alibi_slopes = c.slopes.data();
  t.sinks = c.sinks.data();
  t.mask = p.mask == MaskKind::boolean ? static_cast<const void*>(c.seen.data()) : c.bias.data();

  const std::int64_t blocks_q = p.ragged_q ? 1 : p.batch;
  const std::int64_t rows_q = p.ragged_q ? p.total_q : p.len_q;
  const bool ragged = p.kv_layout == KvLayout::ragged;
  const bool paged = p.kv_layout == KvLayout::paged;
  const std::int64_t blocks_kv = ragged ? 1 : paged ? p.num_pages : p.batch;
  const std::int64_t rows_kv = ragged ? p.total_kv : paged ? p.page_size : p.len_kv;
  Memory q(p.dtype, p.q, blocks_q, p.heads_q, rows_q, p.dim_qk);
  Memory k(p.dtype, p.k, blocks_kv, p.heads_kv, rows_kv, p.dim_qk);
  Memory v(p.dtype, p.v, blocks_kv, p.heads_kv, rows_kv, p.dim_v);
  Memory o(p.dtype, p.o, blocks_q, p.heads_q, rows_q, p.dim_v);
  const LseStrides& l = p.lse_strides;
  Memory lse(DType::f32, {l.batch, l.head, l.row}, blocks_q, p.heads_q, rows_q, 1);
  t.q = q.origin();
  t.k = k.origin();
  t.v = v.origin();
  t.o = o.origin();
  t.lse = static_cast<float*>(lse.origin());

  const auto queries = [&](const auto& f) {
    for (std::int64_t b = 0; b < p.batch; ++b) {
      const Sequence s = sequence(p, t, b);
      for (std::int64_t h = 0; h < p.heads_q; ++h) {
        for (std::int64_t i = 0; i < s.len_q; ++i) f(s, h, i, (b * p.heads_q + h) * p.len_q + i);
      }
    }
  };
  const auto keys = [&](const auto& f) {
    for (std::int64_t b = 0; b < p.batch; ++b) {
      const Sequence s = sequence(p, t, b);
      for (std::int64_t g = 0; g < p.heads_kv; ++g) {
        for (std::int64_t j = 0; j < s.len_kv; ++j) f(s, g, j, (b * p.heads_kv + g) * p.len_kv + j);
      }
    }
  };
  const auto put = [&](void* data, std::int64_t offset, const std::vector<float>& from, std::int64_t row,
                       std::int64_t dim) {
    for (std::int64_t d = 0; d < dim; ++d) {
      store(p.dtype, data, offset + d, from[static_cast<std::size_t>(row * dim + d)]);
    }
  };
  queries([&](const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t row) {
    put(q.origin(), query_offset(p, p.q, s, h, i), c.q, row, p.dim_qk);
  });
  keys([&](const Sequence& s, std::int64_t g, std::int64_t j, std::int64_t row) {
    put(k.origin(), key_offset(p, t, p.k, s, g, j), c.k, row, p.dim_qk);
    put(v.origin(), key_offset(p, t, p.v, s, g, j), c.v, row, p.dim_v);
  });
  const Status status = attend(p, t, {.kernel = kernel});
  EXPECT_TRUE(status.ok()) << to_string(p) << ": " << status.message();

  LogicalOutputs out;
  out.o.resize(static_cast<std::size_t>(p.batch * p.heads_q * p.len_q * p.dim_v));
  out.lse.resize(static_cast<std::size_t>(p.batch * p.heads_q * p.len_q));
  queries([&](const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t row) {
    for (std::int64_t d = 0; d < p.dim_v; ++d) {
      out.o[static_cast<std::size_t>(row * p.dim_v + d)] =
          load(p.dtype, t.o, query_offset(p, p.o, s, h, i) + d);
    }
    out.lse[static_cast<std::size_t>(row)] = t.lse[lse_offset(p, s, h, i)];
  });
  return out;
}

}  // namespace saccade
