// Laws that attention obeys whatever the numbers: every kernel against itself, in two forms of one question.
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <tuple>

#include "logical_case.h"
#include "verify/bounds.h"

namespace saccade {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Both are results of a correct kernel, so they differ by two kernels' errors at most.
void expect_same(const Problem& p, const LogicalOutputs& a, const LogicalOutputs& b) {
  ASSERT_EQ(a.o.size(), b.o.size());
  ASSERT_EQ(a.lse.size(), b.lse.size());
  double difference = 0, norm = 0, lse = 0, rows = 0;
  for (std::size_t n = 0; n < a.o.size(); ++n) {
    ASSERT_TRUE(std::isfinite(a.o[n]) && std::isfinite(b.o[n])) << "element " << n << " of " << to_string(p);
    difference += (a.o[n] - b.o[n]) * (a.o[n] - b.o[n]);
    norm += b.o[n] * b.o[n];
  }
  const ErrorBounds bounds(p);
  for (std::size_t n = 0; n < a.lse.size(); ++n) {
    if (std::isinf(b.lse[n])) {
      ASSERT_EQ(a.lse[n], b.lse[n]) << "row " << n << " of " << to_string(p);
      continue;
    }
    ASSERT_LE(std::abs(a.lse[n] - b.lse[n]), 2 * bounds.lse(b.lse[n]))
        << "row " << n << " of " << to_string(p);
    lse += std::abs(b.lse[n]);
    rows += 1;
  }
  ASSERT_GT(norm, 0) << "nothing was compared in " << to_string(p);
  const RowSummary summary{.o_norm = std::sqrt(norm),
                           .elements = static_cast<double>(a.o.size()),
                           .mean_abs_key_lse = lse / rows,
                           .deviation = 0.1};
  EXPECT_LE(std::sqrt(difference), 2 * bounds.l2(summary)) << to_string(p);
}

/// A kernel, a dtype, and two sizes: many queries, and few enough for the kernels that want few.
class Properties : public testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  static const std::string& kernel() { return std::get<0>(GetParam()); }

  void SetUp() override {
    if (kernel() != "cpu_amx") return;  // the one kernel that some machines cannot run
    const Result<Plan> plan = make_plan(Problem::dense(1, 1, 64, 64), {.kernel = kernel()});
    if (!plan.ok()) GTEST_SKIP() << plan.status().message();
  }

  /// Calls f(case) for each size that the kernel takes; `words` are added to the shape.
  template <class F>
  void for_each_size(std::string_view words, const F& f) const {
    int cases = 0;
    for (const std::string_view sizes :
         {"b3 h6/2 lq37 lk70 d40", "b3 h6/2 lq1 lk150 d64", "b2 h2 lq4 lk90 d24"}) {
      const std::string text = fmt::format("{} {} {}", sizes, to_string(std::get<1>(GetParam())), words);
      const Problem p = parse_problem(text).value();
      if (!takes(kernel(), p)) continue;
      ++cases;
      f(LogicalCase(p, 17));
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(cases, 0) << kernel() << " takes no size with '" << words << "'";
  }

  static LogicalOutputs run(const LogicalCase& c) { return run_case(kernel(), c); }
};

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const KernelInfo& row : kernels()) {
    if (row.device == DeviceKind::cpu) names.emplace_back(row.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Kernels, Properties,
                         testing::Combine(testing::ValuesIn(kernel_names()),
                                          testing::Values(DType::f16, DType::bf16, DType::f32)),
                         [](const auto& test) {
                           return fmt::format("{}_{}", std::get<0>(test.param),
                                              to_string(std::get<1>(test.param)));
                         });

/// Copies rows of `run` numbers: row n of the result is row from(n) of x.
template <class T>
std::vector<T> gathered(const std::vector<T>& x, std::int64_t rows, std::int64_t run,
                        const std::function<std::int64_t(std::int64_t)>& from) {
  std::vector<T> result;
  for (std::int64_t n = 0; n < rows; ++n) {
    const auto first = x.begin() + from(n) * run;
    result.insert(result.end(), first, first + run);
  }
  return result;
}

TEST_P(Properties, GroupedHeadsEqualRepeatedHeads) {
  for_each_size("causal-br", [&](const LogicalCase& grouped) {
    const Problem& p = grouped.problem;
    LogicalCase repeated = grouped;
    repeated.problem.heads_kv = p.heads_q;
    repeated.problem.pack();
    const auto from = [&](std::int64_t n) { return n / p.heads_q * p.heads_kv + n % p.heads_q / p.group(); };
    repeated.k = gathered(grouped.k, p.batch * p.heads_q, p.len_kv * p.dim_qk, from);
    repeated.v = gathered(grouped.v, p.batch * p.heads_q, p.len_kv * p.dim_v, from);
    if (takes(kernel(), repeated.problem)) expect_same(p, run(grouped), run(repeated));
  });
}

/// The case with what `visible` says as a boolean mask, in place of its causal mask and window.
LogicalCase with_explicit_mask(const LogicalCase& c,
                               const std::function<bool(std::int64_t i, std::int64_t j)>& visible) {
  LogicalCase masked = c;
  Problem& p = masked.problem;
  p.causal = false;
  p.window_left = p.window_right = kUnbounded;
  p.mask = MaskKind::boolean;
  p.pack();
  masked.seen.resize(static_cast<std::size_t>(c.pairs()));
  c.for_each_pair([&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    masked.seen[static_cast<std::size_t>(c.pair(b, h, i, j))] = visible(i, j) ? 1 : 0;
  });
  return masked;
}

TEST_P(Properties, CausalEqualsItsMask) {
  for (const std::string_view words : {"causal", "causal-br"}) {
    for_each_size(words, [&](const LogicalCase& c) {
      const std::int64_t diagonal = words == "causal" ? 0 : c.problem.len_kv - c.problem.len_q;
      const auto visible = [=](std::int64_t i, std::int64_t j) { return j <= i + diagonal; };
      expect_same(c.problem, run(c), run(with_explicit_mask(c, visible)));
    });
  }
}

TEST_P(Properties, WindowEqualsItsMask) {
  for (const std::string_view words :
       {"window=11,5", "window=11,5 br", "window=0,inf", "window=8,3 causal br"}) {
    for_each_size(words, [&](const LogicalCase& c) {
      const Problem& p = c.problem;
      const std::int64_t diagonal = p.alignment == Alignment::bottom_right ? p.len_kv - p.len_q : 0;
      const std::int64_t right = p.causal ? 0 : p.window_right;
      const auto visible = [=, left = p.window_left](std::int64_t i, std::int64_t j) {
        return j >= i + diagonal - left && (right == kUnbounded || j <= i + diagonal + right);
      };
      expect_same(p, run(c), run(with_explicit_mask(c, visible)));
    });
  }
}

TEST_P(Properties, BooleanMaskEqualsInfiniteBias) {
  for_each_size("mask", [&](LogicalCase c) {
    LogicalCase biased = c;
    biased.problem.mask = MaskKind::additive;
    biased.problem.mask_dtype = DType::f32;
    c.for_each_pair([&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
      // The last row sees nothing.
      const bool seen = (3 * i + 5 * j + h + b) % 7 < 4 && (c.problem.len_q == 1 || i < c.problem.len_q - 1);
      c.seen.push_back(seen ? 1 : 0);
      biased.bias.push_back(seen ? 0.0F : -kInfinity);
    });
    expect_same(c.problem, run(c), run(biased));
  });
}

TEST_P(Properties, AlibiEqualsItsBias) {
  for (const std::string_view words : {"alibi", "alibi br causal"}) {
    for_each_size(words, [&](LogicalCase c) {
      const Problem& p = c.problem;
      for (std::int64_t h = 0; h < p.heads_q; ++h) c.slopes.push_back(0.5F / static_cast<float>(h + 1));
      LogicalCase biased = c;
      biased.problem.alibi = false;
      biased.problem.mask = MaskKind::additive;
      biased.problem.mask_dtype = DType::f32;
      const std::int64_t diagonal = p.alignment == Alignment::bottom_right ? p.len_kv - p.len_q : 0;
      c.for_each_pair([&](std::int64_t, std::int64_t h, std::int64_t i, std::int64_t j) {
        biased.bias.push_back(-c.slopes[static_cast<std::size_t>(h)] *
                              static_cast<float>(std::abs(i + diagonal - j)));
      });
      expect_same(p, run(c), run(biased));
    });
  }
}

TEST_P(Properties, PartsOfTheKeysMergeByLse) {
  for_each_size("", [&](const LogicalCase& whole) {
    const Problem& p = whole.problem;
    const std::int64_t cut = p.len_kv / 3;
    const auto part = [&](std::int64_t first, std::int64_t count) {
      LogicalCase c = whole;
      c.problem.len_kv = count;
      c.problem.pack();
      const auto from = [&](std::int64_t n) { return n / count * p.len_kv + first + n % count; };
      c.k = gathered(whole.k, p.batch * p.heads_kv * count, p.dim_qk, from);
      c.v = gathered(whole.v, p.batch * p.heads_kv * count, p.dim_v, from);
      return run(c);
    };
    const LogicalOutputs a = part(0, cut);
    const LogicalOutputs b = part(cut, p.len_kv - cut);
    LogicalOutputs merged = a;
    for (std::size_t row = 0; row < a.lse.size(); ++row) {
      merged.lse[row] = std::log(std::exp(a.lse[row]) + std::exp(b.lse[row]));
      for (std::size_t n = 0; n < static_cast<std::size_t>(p.dim_v); ++n) {
        const std::size_t at = row * static_cast<std::size_t>(p.dim_v) + n;
        merged.o[at] = a.o[at] * std::exp(a.lse[row] - merged.lse[row]) +
                       b.o[at] * std::exp(b.lse[row] - merged.lse[row]);
      }
    }
    expect_same(p, merged, run(whole));
  });
}

TEST_P(Properties, PermutingBatchesPermutesTheResult) {
  for_each_size("causal-br", [&](const LogicalCase& c) {
    const Problem& p = c.problem;
    const auto from = [&](std::int64_t b) { return (b + 1) % p.batch; };
    LogicalCase moved = c;
    moved.q = gathered(c.q, p.batch, p.heads_q * p.len_q * p.dim_qk, from);
    moved.k = gathered(c.k, p.batch, p.heads_kv * p.len_kv * p.dim_qk, from);
    moved.v = gathered(c.v, p.batch, p.heads_kv * p.len_kv * p.dim_v, from);
    const LogicalOutputs out = run(c);
    expect_same(p, run(moved),
                {gathered(out.o, p.batch, p.heads_q * p.len_q * p.dim_v, from),
                 gathered(out.lse, p.batch, p.heads_q * p.len_q, from)});
  });
}

TEST_P(Properties, PermutingHeadsPermutesTheResult) {
  for_each_size("causal-br", [&](const LogicalCase& c) {
    const Problem& p = c.problem;
    // Key heads turn by one, and the query heads that share them with them.
    const auto from_kv = [&](std::int64_t n) {
      return n / p.heads_kv * p.heads_kv + (n % p.heads_kv + 1) % p.heads_kv;
    };
    const auto from_q = [&](std::int64_t n) {
      return n / p.heads_q * p.heads_q + (n % p.heads_q + p.group()) % p.heads_q;
    };
    LogicalCase moved = c;
    moved.q = gathered(c.q, p.batch * p.heads_q, p.len_q * p.dim_qk, from_q);
    moved.k = gathered(c.k, p.batch * p.heads_kv, p.len_kv * p.dim_qk, from_kv);
    moved.v = gathered(c.v, p.batch * p.heads_kv, p.len_kv * p.dim_v, from_kv);
    const LogicalOutputs out = run(c);
    expect_same(p, run(moved),
                {gathered(out.o, p.batch * p.heads_q, p.len_q * p.dim_v, from_q),
                 gathered(out.lse, p.batch * p.heads_q, p.len_q, from_q)});
  });
}

TEST_P(Properties, PermutingKeysChangesNothing) {
  for_each_size("", [&](const LogicalCase& c) {
    const Problem& p = c.problem;
    const auto from = [&](std::int64_t n) { return n / p.len_kv * p.len_kv + p.len_kv - 1 - n % p.len_kv; };
    LogicalCase moved = c;
    moved.k = gathered(c.k, p.batch * p.heads_kv * p.len_kv, p.dim_qk, from);
    moved.v = gathered(c.v, p.batch * p.heads_kv * p.len_kv, p.dim_v, from);
    expect_same(p, run(moved), run(c));
  });
}

TEST_P(Properties, ScalingVScalesTheOutput) {
  for_each_size("", [&](const LogicalCase& c) {
    LogicalCase scaled = c;
    for (float& x : scaled.v) x *= -4;
    LogicalOutputs expected = run(c);
    for (double& x : expected.o) x *= -4;
    expect_same(c.problem, run(scaled), expected);
  });
}

TEST_P(Properties, AConstantBiasShiftsTheLseOnly) {
  for_each_size("bias32=-", [&](LogicalCase c) {
    c.bias = {3.25F};
    LogicalCase plain = c;
    plain.problem.mask = MaskKind::none;
    LogicalOutputs expected = run(plain);
    for (double& x : expected.lse) x += 3.25;
    expect_same(c.problem, run(c), expected);
  });
}

// Which many use to mask: a row that has nothing else attends to all keys alike, as PyTorch's does.
TEST_P(Properties, TheLowestBiasHidesNothing) {
  for_each_size("bias32=-", [&](LogicalCase c) {
    c.bias = {std::numeric_limits<float>::lowest()};
    const LogicalOutputs ours = run(c), oracle = run_case("cpu_reference", c);
    double largest = 0;
    for (std::size_t n = 0; n < oracle.o.size(); ++n) {
      ASSERT_NEAR(ours.o[n], oracle.o[n], 0.01) << n;
      largest = std::max(largest, std::abs(double{oracle.o[n]}));
    }
    EXPECT_GT(largest, 0.05);
  });
}

TEST_P(Properties, ScalingQIsScalingTheScale) {
  for_each_size("scale=0.25", [&](const LogicalCase& c) {
    LogicalCase scaled = c;
    for (float& x : scaled.q) x *= -2;
    scaled.problem.scale = -0.125F;
    expect_same(c.problem, run(scaled), run(c));
  });
}

TEST_P(Properties, AHugeSoftcapIsNone) {
  for_each_size("softcap=100000", [&](const LogicalCase& c) {
    LogicalCase plain = c;
    plain.problem.softcap = 0;
    expect_same(c.problem, run(c), run(plain));
  });
}

TEST_P(Properties, ASinkIsAKeyWithoutValue) {
  for_each_size("sinks", [&](LogicalCase c) {
    const Problem& p = c.problem;
    for (std::int64_t h = 0; h < p.heads_q; ++h)
      c.sinks.push_back(normal(3, static_cast<std::uint64_t>(h)) + 2);
    LogicalCase longer = c;
    longer.problem.sinks = false;
    longer.problem.mask = MaskKind::additive;
    longer.problem.mask_dtype = DType::f32;
    ++longer.problem.len_kv;
    longer.problem.pack();
    // The new key of zeros scores 0, to which the bias adds the sink's logit.
    const auto extended = [&](const std::vector<float>& x, std::int64_t dim) {
      std::vector<float> result;
      for (auto row = x.begin(); row != x.end(); row += p.len_kv * dim) {
        result.insert(result.end(), row, row + p.len_kv * dim);
        result.insert(result.end(), static_cast<std::size_t>(dim), 0.0F);
      }
      return result;
    };
    longer.k = extended(c.k, p.dim_qk);
    longer.v = extended(c.v, p.dim_v);
    longer.for_each_pair([&](std::int64_t, std::int64_t h, std::int64_t, std::int64_t j) {
      longer.bias.push_back(j == p.len_kv ? c.sinks[static_cast<std::size_t>(h)] : 0.0F);
    });
    expect_same(p, run(c), run(longer));
  });
}

/// Batch entry b of the case as a dense problem of its own.
LogicalCase alone(const LogicalCase& c, std::int64_t b, std::int64_t len_q, std::int64_t len_kv) {
  const Problem& p = c.problem;
  Problem one = Problem::dense(1, p.heads_q, len_q, p.dim_qk, p.dtype);
  one.heads_kv = p.heads_kv;
  one.len_kv = len_kv;
  one.causal = p.causal;
  one.alignment = p.alignment;
  LogicalCase result(one.pack(), 0);
  const auto rows = [&](const std::vector<float>& x, std::int64_t heads, std::int64_t len, std::int64_t part,
                        std::int64_t dim) {
    return gathered(x, heads * part, dim,
                    [&](std::int64_t n) { return (b * heads + n / part) * len + n % part; });
  };
  result.q = rows(c.q, p.heads_q, p.len_q, len_q, p.dim_qk);
  result.k = rows(c.k, p.heads_kv, p.len_kv, len_kv, p.dim_qk);
  result.v = rows(c.v, p.heads_kv, p.len_kv, len_kv, p.dim_v);
  return result;
}

/// Expects batch entry b of `out` to be what its sequence gives alone.
void expect_sequence(const std::string& kernel, const LogicalCase& c, const LogicalOutputs& out,
                     std::int64_t b, std::int64_t len_q, std::int64_t len_kv) {
  const Problem& p = c.problem;
  const LogicalCase single = alone(c, b, len_q, len_kv);
  const auto from = [&](std::int64_t n) { return (b * p.heads_q + n / len_q) * p.len_q + n % len_q; };
  if (len_q == 0 || len_kv == 0 || !takes(kernel, single.problem)) return;
  expect_same(
      single.problem,
      {gathered(out.o, p.heads_q * len_q, p.dim_v, from), gathered(out.lse, p.heads_q * len_q, 1, from)},
      run_case(kernel, single));
}

TEST_P(Properties, VarlenEqualsSeparateCalls) {
  for_each_size("varlen causal-br lse", [&](LogicalCase c) {
    const Problem& p = c.problem;
    // Sequence 0 is the longest, the next has half the queries and a third of the keys, the last is empty.
    c.cu_seqlens_q = {0};
    c.cu_seqlens_kv = {0};
    for (std::int64_t b = 0; b < p.batch; ++b) {
      c.cu_seqlens_q.push_back(c.cu_seqlens_q.back() + static_cast<std::int32_t>(b == 0   ? p.len_q
                                                                                 : b == 1 ? (p.len_q + 1) / 2
                                                                                          : 0));
      c.cu_seqlens_kv.push_back(c.cu_seqlens_kv.back() + static_cast<std::int32_t>(b == 0   ? p.len_kv
                                                                                   : b == 1 ? p.len_kv / 3
                                                                                            : 0));
    }
    const LogicalOutputs out = run(c);
    expect_sequence(kernel(), c, out, 0, p.len_q, p.len_kv);
    expect_sequence(kernel(), c, out, 1, (p.len_q + 1) / 2, p.len_kv / 3);
  });
}

TEST_P(Properties, LengthsEqualShorterCalls) {
  for_each_size("kvlens causal-br", [&](LogicalCase c) {
    const Problem& p = c.problem;
    c.kv_lengths.assign(static_cast<std::size_t>(p.batch), 0);
    c.kv_lengths[0] = static_cast<std::int32_t>(p.len_kv);
    c.kv_lengths[1] = static_cast<std::int32_t>(p.len_kv - 13);
    const LogicalOutputs out = run(c);
    for (std::int64_t b = 0; b < p.batch; ++b) {
      expect_sequence(kernel(), c, out, b, p.len_q, c.kv_lengths[static_cast<std::size_t>(b)]);
    }
  });
}

TEST_P(Properties, PagedEqualsDense) {
  for (const std::string_view words : {"paged=16 causal-br", "paged=7 kvlens"}) {
    for_each_size(words, [&](LogicalCase c) {
      const Problem& p = c.problem;
      c.kv_lengths.assign(static_cast<std::size_t>(p.batch), static_cast<std::int32_t>(p.len_kv - 5));
      // Pages in reverse order, so that neighbours in the sequence are never neighbours in memory.
      for (std::int64_t n = p.num_pages; n > 0; --n)
        c.block_table.push_back(static_cast<std::int32_t>(n - 1));
      LogicalCase dense = c;
      dense.problem.kv_layout = KvLayout::dense;
      dense.problem.page_size = dense.problem.num_pages = dense.problem.pages_per_sequence = 0;
      dense.problem.pack();
      expect_same(p, run(c), run(dense));
    });
  }
}

TEST_P(Properties, StridesChangeNothing) {
  for_each_size("causal lse", [&](const LogicalCase& packed) {
    LogicalCase strided = packed;
    Problem& p = strided.problem;
    p.pack(Order::blhd);
    p.q.row += 3;  // a gap after each row's heads
    p.q.batch += 3 * p.len_q + 5;
    p.k = {-p.k.batch, -p.k.head, p.k.row, 1};
    p.v.head = p.dim_v + 1;
    p.v.row = p.heads_kv * (p.dim_v + 1);
    p.v.batch = p.len_kv * p.v.row;
    p.o = {-p.o.batch, p.o.head, -p.o.row, 1};
    p.lse_strides = {1, p.batch, -p.batch * p.heads_q};
    ASSERT_TRUE(validate(p).ok()) << validate(p).message();
    expect_same(p, run(strided), run(packed));
  });
}

TEST_P(Properties, BroadcastInputsEqualCopies) {
  for_each_size("", [&](const LogicalCase& c) {
    // Every batch reads the keys and values of batch 0.
    LogicalCase copied = c;
    const Problem& p = c.problem;
    const auto first = [](std::int64_t) { return std::int64_t{0}; };
    copied.k = gathered(c.k, p.batch, p.heads_kv * p.len_kv * p.dim_qk, first);
    copied.v = gathered(c.v, p.batch, p.heads_kv * p.len_kv * p.dim_v, first);
    LogicalCase broadcast = copied;
    broadcast.problem.k.batch = broadcast.problem.v.batch = 0;
    expect_same(p, run(broadcast), run(copied));
  });
}

}  // namespace
}  // namespace saccade
