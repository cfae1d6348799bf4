// Every rung of the ladder in the emulator: odd shapes, several seeds, and the counters that its idea is
// about.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>

#include "cuda/kernels.h"
#include "emu/session.h"
#include "support/from_environment.h"
#include "verify/case_data.h"
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

TEST_P(Ladder, IsRightForRandomLengths) {
  std::mt19937 random(5);
  const auto up_to = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const std::string shape = fmt::format(
        "b{} h{} lq{} lk{} d{} f16{}{}", 1 + up_to(2), up_to(2) == 0 ? "1" : "4/2", 1 + up_to(140),
        1 + up_to(300), up_to(2) == 0 ? 64 : 128, up_to(2) == 0 ? "" : " causal", up_to(2) == 0 ? "" : " br");
    expect_right(*GetParam(), shape.c_str(), seed);
  }
}

TEST_P(Ladder, FitsTheSharedMemoryOfAda) {
  constexpr std::size_t kAda = std::size_t{99} << 10;  // of a block on 8.6 and 8.9; 8.0 and 9.0 have more
  for (const char* shape : {"b1 h1 l64 d64 f16", "b1 h1 l64 d128 f16"}) {
    const Problem problem = parse_problem(shape).value();
    const emu::Session session({.seed = 1});
    const CaseData data(problem, 1);
    const Result<Prepared> prepared = GetParam()->prepare(problem, emulated_machine(), "");
    ASSERT_TRUE(prepared.ok());
    const GuardedBuffer workspace(prepared->workspace_bytes, kWorkspaceAlignment, PastEnd::band);
    ASSERT_TRUE(prepared->launch(data.tensors(), workspace.bytes().data(), nullptr).ok());
    ASSERT_FALSE(session.launches().empty());
    for (const emu::Launched& launched : session.launches())
      EXPECT_LE(launched.shape.shared_bytes, kAda) << shape;
  }
}

TEST(Swizzle, LeavesNoBankConflicts) {
  for (const char* name : {"ladder_cp_async", "ladder_warp_specialized", "ladder_persistent"}) {
    for (const char* shape : {"b1 h1 l130 d64 f16", "b1 h1 l130 d128 f16 causal"}) {
      const Problem problem = parse_problem(shape).value();
      const CaseData data(problem, 1);
      const emu::Session session({.seed = 1, .count = true});
      const Result<Prepared> prepared = find_emulated(name)->prepare(problem, emulated_machine(), "");
      ASSERT_TRUE(prepared.ok() && prepared->launch(data.tensors(), nullptr, nullptr).ok());
      EXPECT_GT(session.counters().total(emu::Traffic::shared_load).instructions, 0U);
      EXPECT_EQ(session.counters().bank_conflicts(), 0U) << name << " on " << shape;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rungs, Ladder, testing::ValuesIn(rungs()),
                         [](const auto& rung) { return std::string(rung.param->name.substr(7)); });

}  // namespace
}  // namespace saccade
