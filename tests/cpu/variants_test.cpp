// The CPU kernels in the variants that planning on this machine would never pick: every instruction set it
// can run, and configurations at random.
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>

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
                                   {{.kernel = "cpu_decode", .config = "zen=0"},
                                    {.kernel = "cpu_decode", .config = "zen=1"},
                                    {.kernel = "cpu_decode", .config = "zen=2"},
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
    return fmt::format("threads={} splits={} zen={}", pick({1, 2, 3}), pick({1, 2, 5, 33}), pick({0, 1, 2}));
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

}  // namespace
}  // namespace saccade
