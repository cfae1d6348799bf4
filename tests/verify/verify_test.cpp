#include "verify/verify.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "core/dtypes.h"
#include "core/sequence.h"
#include "verify/case_data.h"
#include "verify/rows.h"

namespace saccade {
namespace {

Problem shape(std::string_view text) {
  return parse_problem(text).value();
}

Status honest(const Problem& p, const Tensors& t) {
  return attend(p, t, {.kernel = "cpu_reference"});
}

std::vector<Check> caught(const Problem& p, const Runner& runner, const VerifyOptions& options = {}) {
  std::vector<Check> checks;
  for (const Failure& failure : verify(p, runner, options).failures) checks.push_back(failure.check);
  return checks;
}

TEST(Verify, EveryKernelPassesEveryKindOfShape) {
  for (const char* text :
       {"b2 h4/2 lq33 lk70 d40 f16 causal-br lse", "b2 h4 lq1 lk300 d64 bf16 kvlens lse alibi",
        "b3 h2 lq9 lk50 d24 f32 varlen sinks lse", "b2 h4/1 lq2 lk64 d32 bf16 paged=16 kvlens lse",
        "b1 h2 lq5 lk0 d8 f16 lse", "b1 h2 lq5 lk0 d8 f16 lse sinks", "b0 h2 l5 d8 f16", "b1 h0 l5 d8 f16",
        "b1 h2 lq0 lk5 d8 f16 lse", "b1 h2 l5 dqk0 dv8 f16", "b1 h2 l5 dqk8 dv0 f16 lse"}) {
    for (const KernelInfo& kernel : kernels()) {
      const PlanOptions options{.kernel = std::string(kernel.name)};
      if (!make_plan(shape(text), options).ok()) continue;
      for (const std::uint64_t seed : {1, 8}) {
        const Verdict verdict = verify(shape(text), kernel_runner(options), {.seed = seed});
        for (const Failure& failure : verdict.failures) {
          ADD_FAILURE() << repro_line(shape(text), options.kernel, {.seed = seed}) << ": "
                        << to_string(failure.check) << ": " << failure.detail;
        }
      }
    }
  }
}

TEST(Verify, ReportsNumbersOfAnHonestRun) {
  const Verdict verdict = verify(shape("b1 h2 l64 d32 f16"), honest);
  EXPECT_TRUE(verdict.passed());
  EXPECT_EQ(verdict.rows_total, 128);
  EXPECT_EQ(verdict.rows_checked, 128);
  EXPECT_GT(verdict.relative_l2, 0x1p-14);
  EXPECT_LT(verdict.relative_l2, 0x1p-11);
  EXPECT_GT(verdict.plain_relative_l2, verdict.relative_l2);
  EXPECT_GT(verdict.max_error, 0);
}

TEST(Verify, RefusesAnInvalidProblem) {
  Problem p = shape("b1 h2 l8 d8 f16");
  p.heads_kv = 3;
  EXPECT_EQ(caught(p, honest), std::vector{Check::status});
}

TEST(Verify, RefusesKeysWithoutPages) {
  EXPECT_EQ(caught(shape("b1 h1 l8 d8 f16 paged=4,0,2"), honest), std::vector{Check::status});
}

TEST(Verify, WorkspaceOverrunIsAFailure) {
  // The runner's workspace ends at a page that may not be touched, so only the front band can be shown here.
  const GuardedBuffer workspace(100, kWorkspaceAlignment, PastEnd::fault);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(workspace.bytes().data()) % kWorkspaceAlignment, 0U);
  workspace.bytes().data()[100] = std::byte{0};
  EXPECT_FALSE(workspace.bands_intact()) << "the bytes that alignment leaves before the page are watched too";
}

// With four rows allowed, exactly the first and last of both heads are compared with the oracle.
constexpr VerifyOptions kEdgesOnly{.seed = 1, .max_rows = 4};

TEST(Verify, UnsampledRowsMustBeWritten) {
  const Problem p = shape("b1 h2 l64 d8 f16 lse");
  EXPECT_EQ(verify(p, honest, kEdgesOnly).rows_checked, 4);
  const auto forget = [](bool forget_lse) {
    return [forget_lse](const Problem& problem, const Tensors& t) {
      const std::vector<std::uint16_t> o(static_cast<std::uint16_t*>(t.o) + 80,
                                         static_cast<std::uint16_t*>(t.o) + 88);
      const float lse = t.lse[10];
      Status status = honest(problem, t);
      if (forget_lse) {
        t.lse[10] = lse;
      } else {
        std::ranges::copy(o, static_cast<std::uint16_t*>(t.o) + 80);
      }
      return status;
    };
  };
  EXPECT_EQ(caught(p, forget(false), kEdgesOnly), std::vector{Check::written});
  EXPECT_EQ(caught(p, forget(true), kEdgesOnly), std::vector{Check::written});
}

TEST(Verify, UnsampledRowsMustBeFiniteOrEmpty) {
  const Problem p = shape("b1 h1 lq64 lk40 d8 f32 causal-br lse");  // queries 0 to 23 see nothing
  const auto set = [](std::int64_t row, float o, float lse) {
    return [=](const Problem& problem, const Tensors& t) {
      Status status = honest(problem, t);
      static_cast<float*>(t.o)[row * 8] = o;
      t.lse[row] = lse;
      return status;
    };
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr VerifyOptions kTwo{.seed = 1, .max_rows = 2};
  EXPECT_EQ(caught(p, set(10, 0, -kInfinity), kTwo), std::vector<Check>{});
  EXPECT_EQ(caught(p, set(40, 0, 1), kTwo), std::vector<Check>{}) << "only the oracle knows these";
  EXPECT_EQ(caught(p, set(10, 1e-9F, -kInfinity), kTwo), std::vector{Check::positions});
  EXPECT_EQ(caught(p, set(10, 0, 0), kTwo), std::vector{Check::positions});
  EXPECT_EQ(caught(p, set(40, kNan, 1), kTwo), std::vector{Check::positions});
  EXPECT_EQ(caught(p, set(40, 0, -kInfinity), kTwo), std::vector{Check::positions});
}

TEST(Verify, EmptyRowsMustBeExactlyZero) {
  const Problem p = shape("b1 h1 lq64 lk40 d8 f32 causal-br lse");
  EXPECT_EQ(caught(p,
                   [](const Problem& problem, const Tensors& t) {
                     Status status = honest(problem, t);
                     static_cast<float*>(t.o)[8] = 1e-12F;
                     return status;
                   }),
            std::vector{Check::max_error});
}

TEST(Verify, SwallowedNanIsCaught) {
  const auto swallow = [](const Problem& p, const Tensors& t) {
    Status status = honest(p, t);
    for (std::int64_t n = 0; n < p.heads_q * p.len_q * p.dim_v; ++n) {
      if (std::isnan(load(p.dtype, t.o, n))) store(p.dtype, t.o, n, 0);
    }
    return status;
  };
  const Problem p = shape("b1 h2 l16 d8 f16");
  EXPECT_EQ(caught(p, swallow, {.seed = 1}), std::vector<Check>{}) << "there is no NaN at this seed";
  EXPECT_EQ(caught(p, swallow, {.seed = CaseData::kNanEvery}), std::vector{Check::positions});
}

TEST(Verify, SecondRunThatFailsIsCaught) {
  int calls = 0;
  const auto once = [&](const Problem& p, const Tensors& t) -> Status {
    if (++calls == 2) return {Code::internal, "only once"};
    return honest(p, t);
  };
  EXPECT_EQ(caught(shape("b1 h1 l4 d4 f16"), once), std::vector{Check::status});
}

TEST(Verify, ReproLineIsTheCommand) {
  EXPECT_EQ(repro_line(shape("b1 h8 l512 d64 f16 causal"), "cpu_blocked", {.seed = 42}),
            "saccade verify 'b1 h8 l512 d64 f16 causal' --kernel cpu_blocked --seed 42");
  EXPECT_EQ(repro_line(shape("b1 h8 l512 d64 f16"), "", {}), "saccade verify 'b1 h8 l512 d64 f16' --seed 1");
}

TEST(RowSample, TakesEdgesFirstAndExactlyTheLimit) {
  const Problem p = shape("b2 h3 l50 d8 f16");
  const CaseData data(p, 1);
  for (const std::int64_t limit : {1, 5, 12, 13, 100, 299}) {
    const RowSample rows(p, data.tensors(), limit, 1);
    EXPECT_EQ(rows.size(), limit);
    EXPECT_EQ(rows.total(), 300);
    if (limit < 12) continue;
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t h = 0; h < 3; ++h) EXPECT_TRUE(rows.has(b, h, 0) && rows.has(b, h, 49));
    }
  }
  EXPECT_EQ(RowSample(p, data.tensors(), 0, 1).size(), 300);
  EXPECT_EQ(RowSample(p, data.tensors(), 4096, 1).size(), 300);
}

TEST(RowSample, SlotsAreConsecutive) {
  const Problem p = shape("b3 h2 lq20 lk4 d8 f16 varlen");
  const CaseData data(p, 1);
  const RowSample rows(p, data.tensors(), 30, 1);
  std::int64_t next = 0;
  for (std::int64_t b = 0; b < 3; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t i = 0; i < sequence(p, data.tensors(), b).len_q; ++i) {
        if (rows.has(b, h, i)) {
          EXPECT_EQ(rows.slot(b, h, i), next++);
        }
      }
    }
  }
  EXPECT_EQ(next, rows.size());
}

}  // namespace
}  // namespace saccade
