// The CPU kernels in the variants that planning on this machine would never pick: every instruction set it
// can run, and configurations at random.
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>

#include "cpu/decode_pairs.h"
#include "cpu_machine.h"
#include "verify/fuzz.h"
#include "verify/verify.h"

namespace saccade {
namespace {

std::string describe_failures(const FuzzResult& result) {
  std::string text;
  for (const FuzzFailure& failure : result.failures) {
    text += fmt::format("{}: {}\n", failure.repro, failure.verdict.failures.front().detail);
  }
  return text;
}

TEST(CpuKernels, AreRightOnEveryInstructionSet) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const OnlyTarget only(target);
    const FuzzResult result = fuzz(150, 11,
                                   {{.kernel = "cpu_decode", .config = "reading=0"},
                                    {.kernel = "cpu_decode", .config = "reading=1"},
                                    {.kernel = "cpu_decode", .config = "reading=2"},
                                    {.kernel = "cpu_decode", .config = "reading=4"},
                                    {.kernel = "cpu_decode", .config = "pairs=1"},
                                    {.kernel = "cpu_amx"},
                                    {.kernel = "cpu_blocked"}});
    EXPECT_TRUE(result.failures.empty()) << describe_failures(result);
    EXPECT_EQ(result.problems, 150);
  }
}

/// A configuration that `kernel` accepts for this problem, odd ones preferred.
std::string random_config(const std::string& kernel, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::initializer_list<int> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(random() % choices.size()));
  };
  if (kernel == "cpu_decode") {
    return fmt::format("threads={} splits={} reading={}{}", pick({1, 2, 3}), pick({1, 2, 5, 33}),
                       pick({0, 1, 2, 3, 4}), pick({0, 0, 1}) != 0 ? " pairs=0" : "");
  }
  return fmt::format("threads={} rows={} key_tile={} splits={}", pick({1, 2, 3}), pick({1, 7, 32, 33, 64}),
                     pick({1, 5, 8, 64, 129}), pick({1, 2, 3, 17}));
}

// A sanitizer makes each of them ten times as slow.
#ifdef SACCADE_SANITIZED
constexpr std::uint64_t kConfigurations = 60;
#else
constexpr std::uint64_t kConfigurations = 200;
#endif

TEST(CpuKernels, AreRightInEveryConfiguration) {
  for (const char* kernel : {"cpu_decode", "cpu_amx", "cpu_blocked"}) {
    if (kernel == std::string_view("cpu_amx") && !amx_here()) continue;
    int runs = 0;
    for (std::uint64_t seed = 1; seed <= kConfigurations; ++seed) {
      const Problem problem = random_problem(seed);
      PlanOptions options{.kernel = kernel, .config = random_config(kernel, seed), .threads = 3};
      if (!make_plan(problem, options).ok()) continue;
      const Verdict verdict = verify(problem, kernel_runner(options), {.seed = seed});
      ASSERT_TRUE(verdict.passed()) << kernel << " with " << options.config << " on " << to_string(problem)
                                    << ", seed " << seed << ": " << verdict.failures.front().detail;
      ++runs;
    }
    EXPECT_GT(runs, static_cast<int>(kConfigurations / 10)) << kernel;
  }
}

/// Random problems have 300 keys at most, which is less than the longest tile: these have several, whole ones
/// and ends, with everything that hides or moves keys.
TEST(CpuKernels, DecodeOverManyTiles) {
  for (const char* shape :
       {"b1 h2 lq1 lk4200 d40 f16", "b1 h1 lq1 lk70001 d32 bf16 causal br lse sinks",
        "b2 h8/2 lq1 lk2048 d64 bf16", "b1 h8/2 lq2 lk3001 d72 f32 causal br lse",
        "b1 h8/2 lq2 lk1203 d200 bf16 window=900,0 br lse", "b1 h12/2 lq1 lk900 d136 bf16 sinks softcap=30",
        "b1 h2 lq1 lk5000 d32 f16 window=2200,0 br", "b1 h4/2 lq1 lk2600 d24 f32 mask=k",
        "b1 h4/2 lq2 lk2600 d24 bf16 bias alibi br",
        "b2 h4/2 lq1 lk2600 d16 f16 paged=16 kvlens softcap=20 sinks", "b2 h3 lq1 lk2300 d1 f32 varlen"}) {
    const Problem problem = parse_problem(shape).value();
    for (const char* config :
         {"reading=0", "reading=1 pairs=0", "reading=2", "reading=3", "reading=4", "pairs=1"}) {
      const PlanOptions options{.kernel = "cpu_decode", .config = fmt::format("splits=1 {}", config)};
      if (config == std::string_view("pairs=1") && !make_plan(problem, options).ok()) continue;
      const Verdict verdict = verify(problem, kernel_runner(options), {.seed = 5});
      EXPECT_TRUE(verdict.passed()) << options.config << " on " << shape << ": "
                                    << (verdict.failures.empty() ? "" : verdict.failures.front().detail);
    }
  }
}

/// Pairs of bf16 numbers are for bf16 and machines that multiply them, and whoever asks for them elsewhere
/// hears so.
TEST(CpuKernels, PairsAreForBf16) {
  const auto plan = [](const char* shape, const char* config) {
    return make_plan(parse_problem(shape).value(), {.kernel = "cpu_decode", .config = config});
  };
  const Result<Plan> halves = plan("b1 h8/2 lq1 lk64 d64 f16", "pairs=1");
  ASSERT_FALSE(halves.ok());
  EXPECT_NE(halves.status().message().find("pairs is 1, but the problem is f16, not bf16"), std::string::npos)
      << halves.status().message();
  EXPECT_TRUE(plan("b1 h8/2 lq1 lk64 d64 f16", "pairs=0").ok());
  const bool here = decode::has_pairs();
  EXPECT_EQ(plan("b1 h8/2 lq1 lk64 d64 bf16", "pairs=1").ok(), here);
  const auto chosen = [&](const char* shape, const char* config) {
    return plan(shape, config).value().explain();
  };
  EXPECT_EQ(chosen("b1 h8/2 lq1 lk64 d64 bf16", "reading=1").find("pairs=1") != std::string::npos, here);
  EXPECT_EQ(chosen("b1 h2 lq1 lk64 d64 bf16", "reading=1").find("pairs=1"), std::string::npos);
  EXPECT_EQ(chosen("b1 h8/2 lq1 lk64 d64 bf16", "reading=0").find("pairs=1"), std::string::npos);
}

}  // namespace
}  // namespace saccade
