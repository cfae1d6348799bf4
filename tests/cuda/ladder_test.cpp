// Every rung of the ladder in the emulator: odd shapes, several seeds, and the counters that its idea is
// about.
#include <gtest/gtest.h>

#include "cuda/kernels.h"
#include "emu/session.h"
#include "verify/emulated.h"
#include "verify/fuzz.h"

namespace saccade {
namespace {

std::vector<const Kernel*> rungs() {
  std::vector<const Kernel*> list;
  for (const Kernel* kernel : emulated::kernels()) {
    if (kernel->name.starts_with("ladder_")) list.push_back(kernel);
  }
  return list;
}

std::uint64_t from_environment(const char* name, std::uint64_t standard) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : standard;
}

class Ladder : public testing::TestWithParam<const Kernel*> {};

void expect_right(const Kernel& kernel, const char* shape, std::uint64_t seed) {
  const Problem problem = parse_problem(shape).value();
  const Verdict verdict = verify(problem, emulated_runner(kernel, "", {.seed = seed}), {.seed = seed});
  ASSERT_TRUE(verdict.passed()) << kernel.name << ", " << shape << ", seed " << seed << ": "
                                << verdict.failures.front().detail;
}

TEST_P(Ladder, IsRightForEveryShapeItTakes) {
  std::uint64_t seed = 11;
  for (const char* shape :
       {"b1 h1 l64 d64 f16", "b1 h1 l64 d128 f16", "b1 h2 l100 d64 f16 causal",
        "b2 h4/2 lq33 lk130 d64 f16 causal", "b1 h1 lq130 lk33 d128 f16 causal br",
        "b1 h1 lq33 lk130 d128 f16 causal br", "b1 h3 lq1 lk70 d64 f16", "b1 h1 lq65 lk1 d128 f16",
        "b2 h1 lq5 lk0 d64 f16", "b1 h1 lq0 lk5 d64 f16", "b1 h2 l96 d64 f16 scale=-0.3"}) {
    expect_right(*GetParam(), shape, seed++);
  }
}

TEST_P(Ladder, IsRightWhateverTheOrder) {
  const std::uint64_t seeds = from_environment("SACCADE_EMULATOR_SEEDS", 12);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    expect_right(*GetParam(),
                 seed % 2 == 0 ? "b1 h1 lq70 lk200 d64 f16 causal br" : "b1 h1 lq40 lk150 d128 f16", seed);
  }
}

INSTANTIATE_TEST_SUITE_P(Rungs, Ladder, testing::ValuesIn(rungs()),
                         [](const auto& rung) { return std::string(rung.param->name.substr(7)); });

}  // namespace
}  // namespace saccade
