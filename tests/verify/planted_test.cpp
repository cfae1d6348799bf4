#include "verify/planted.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <set>

namespace saccade {
namespace {

constexpr Check kChecks[] = {Check::status,      Check::written,   Check::guards, Check::positions,
                             Check::relative_l2, Check::max_error, Check::plain,  Check::lse,
                             Check::determinism, Check::load};

class Planted : public testing::TestWithParam<DType> {};

TEST_P(Planted, EveryBugIsCaught) {
  for (const std::uint64_t seed : {1, 2}) {
    for (const SelfTestResult& result : self_test(GetParam(), seed)) {
      EXPECT_TRUE(result.caught()) << result.name << ": " << result.description << " on "
                                   << to_string(result.problem) << ", seed " << seed;
    }
  }
}

TEST_P(Planted, HonestKernelsPassTheSameProblems) {
  std::set<std::string_view> shapes;
  for (const PlantedBug& bug : planted_bugs()) {
    if (!shapes.insert(bug.shape).second) continue;
    const Problem problem = bug.problem(GetParam());
    std::vector<NamedRunner> runners;
    for (const KernelInfo& kernel : kernels()) {
      const PlanOptions options{.kernel = std::string(kernel.name)};
      if (make_plan(problem, options).ok()) runners.push_back({options.kernel, kernel_runner(options)});
    }
    ASSERT_FALSE(runners.empty());
    const std::vector<Verdict> verdicts = verify_each(problem, runners, self_test_options());
    for (std::size_t n = 0; n < runners.size(); ++n) {
      for (const Failure& failure : verdicts[n].failures) {
        ADD_FAILURE() << repro_line(problem, runners[n].name, self_test_options()) << ": "
                      << to_string(failure.check) << ": " << failure.detail;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Planted, testing::Values(DType::f16, DType::bf16, DType::f32),
                         [](const auto& dtype) { return std::string(to_string(dtype.param)); });

// A check that no bug needs could be deleted without a test noticing.
TEST(PlantedBugs, EveryCheckAloneCatchesSomething) {
  std::set<Check> alone;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    for (const SelfTestResult& result : self_test(dtype)) {
      if (result.caught_by.size() == 1) alone.insert(result.caught_by.front());
    }
  }
  for (const Check check : kChecks) EXPECT_TRUE(alone.contains(check)) << to_string(check);
}

TEST(PlantedBugs, HaveValidProblemsAndDistinctNames) {
  std::set<std::string_view> names;
  for (const PlantedBug& bug : planted_bugs()) {
    EXPECT_TRUE(names.insert(bug.name).second) << bug.name;
    EXPECT_TRUE(validate(bug.problem(DType::f16)).ok()) << bug.name;
  }
}

}  // namespace
}  // namespace saccade
