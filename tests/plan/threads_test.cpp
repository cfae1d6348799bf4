#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "one_call.h"

namespace saccade {
namespace {

class SharedPlans : public testing::TestWithParam<const char*> {};

TEST_P(SharedPlans, RunFromSeveralThreadsAtOnce) {
  const Problem p = parse_problem(GetParam()).value();
  for (const KernelInfo& kernel : kernels()) {
    const Result<Plan> plan = make_plan(p, {.kernel = std::string(kernel.name), .threads = 2});
    if (!plan.ok()) continue;
    OneCall alone(plan.value());
    ASSERT_TRUE(run(plan.value(), alone.tensors(), alone.workspace()).ok());

    constexpr int kThreads = 4;
    std::vector<OneCall> calls;
    for (int n = 0; n < kThreads; ++n) calls.emplace_back(plan.value());
    std::vector<std::thread> threads;
    for (OneCall& call : calls) {
      threads.emplace_back([&call, copy = plan.value()] {
        for (int repeat = 0; repeat < 3; ++repeat) {
          EXPECT_TRUE(run(copy, call.tensors(), call.workspace()).ok());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const OneCall& call : calls) EXPECT_EQ(call.o, alone.o) << kernel.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, SharedPlans,
                         testing::Values("b1 h4 l48 d16 f32 causal", "b1 h2 lq1 lk600 d32 f32"));

TEST(Plans, OutliveTheirOriginals) {
  Plan copy = [] {
    const Plan original = make_plan(Problem::dense(1, 2, 8, 4, DType::f32)).value();
    return original;
  }();
  const Plan moved = std::move(copy);
  OneCall call(moved);
  EXPECT_TRUE(run(moved, call.tensors(), call.workspace()).ok());
  for (const float x : call.o) EXPECT_GT(x, -1.0F);
}

}  // namespace
}  // namespace saccade
