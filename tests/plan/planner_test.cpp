#include <fmt/format.h>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

#include <saccade/plan.h>
#include <saccade/run.h>

#include "one_call.h"
#include "plan/registry.h"

namespace saccade {
namespace {

/// Problems of every kind, so that every kernel both takes and refuses some.
std::vector<Problem> many_problems() {
  std::vector<Problem> problems;
  for (const char* text :
       {"b1 h8 l512 d64 f16", "b1 h8 l512 d64 f32 causal", "b2 h32/8 lq1 lk4096 d128 bf16",
        "b1 h1 l16384 d64 f32", "b2 h4 l33 d7 f16 window=5,3", "b2 h4 l64 d64 f32 mask alibi sinks lse",
        "b3 h2 lq5 lk7 d16 bf16 varlen", "b2 h4/1 lq1 lk100 d64 f16 paged=16 kvlens", "b0 h4 l16 d64 f32",
        "b1 h4 lq16 lk0 d64 f32", "b1 h2 l40 dqk96 dv512 f32 softcap=20 bias32",
        "b1 h64 lq2 lk2048 d64 f32 causal-br"}) {
    const Result<Problem> p = parse_problem(text);
    EXPECT_TRUE(p.ok()) << text;
    problems.push_back(p.value());
  }
  return problems;
}

Machine machine() {
  return {.device = {}, .threads = 2};
}

PlanOptions options() {
  return {.threads = 2};
}

TEST(Registry, NamesAreUniqueAndTheReferenceIsLast) {
  std::set<std::string_view> names;
  for (const KernelInfo& kernel : kernels()) {
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
    EXPECT_FALSE(kernel.summary.empty()) << kernel.name;
  }
  ASSERT_FALSE(kernels().empty());
  EXPECT_EQ(kernels().back().name, "cpu_reference");
}

TEST(Registry, TheReferenceTakesEverything) {
  for (const Problem& p : many_problems()) {
    EXPECT_FALSE(registry().back()->reject(p, machine()).has_value()) << to_string(p);
  }
}

TEST(Planner, TakesTheFirstKernelThatAccepts) {
  for (const Problem& p : many_problems()) {
    const Result<Plan> plan = make_plan(p, options());
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->problem(), p);
    EXPECT_EQ(plan->device(), Device{});
    for (const Kernel* kernel : registry()) {
      if (kernel->device != DeviceKind::cpu) continue;
      if (kernel->name == plan->kernel()) {
        EXPECT_FALSE(kernel->refusal(p, machine(), false).has_value()) << to_string(p);
        break;
      }
      EXPECT_TRUE(kernel->refusal(p, machine(), false).has_value())
          << kernel->name << " was passed over for " << to_string(p);
    }
  }
}

TEST(Planner, ExplainsEveryNoAndTheYes) {
  for (const Problem& p : many_problems()) {
    const Result<Plan> plan = make_plan(p, options());
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const std::string text = plan->explain();
    const auto contains = [&](const std::string& words) { return text.find(words) != std::string::npos; };
    EXPECT_TRUE(contains(to_string(p) + " on cpu")) << text;
    for (const Kernel* kernel : registry()) {
      if (kernel->device != DeviceKind::cpu) continue;
      if (kernel->name == plan->kernel()) break;
      const auto reason = kernel->refusal(p, machine(), false);
      ASSERT_TRUE(reason.has_value());
      EXPECT_TRUE(contains(fmt::format("\n  {} ", kernel->name))) << text;
      EXPECT_TRUE(contains(fmt::format(" no: {}\n", *reason))) << text;
    }
    EXPECT_TRUE(contains(fmt::format("\n  {} ", plan->kernel()))) << text;
    EXPECT_TRUE(contains(" chosen: ")) << text;
    EXPECT_TRUE(contains(plan->config())) << text;
    EXPECT_TRUE(contains(fmt::format("{} bytes", plan->workspace_bytes()))) << text;
  }
}

TEST(Planner, ANamedKernelIsTakenOrItsReasonReturned) {
  for (const Kernel* kernel : registry()) {
    if (kernel->device != DeviceKind::cpu) continue;
    for (const Problem& p : many_problems()) {
      PlanOptions wanted = options();
      wanted.kernel = kernel->name;
      const Result<Plan> plan = make_plan(p, wanted);
      if (const auto reason = kernel->reject(p, machine())) {
        ASSERT_FALSE(plan.ok());
        EXPECT_EQ(plan.status().code(), Code::unsupported);
        EXPECT_NE(plan.status().message().find(*reason), std::string::npos) << plan.status().message();
        EXPECT_NE(plan.status().message().find(kernel->name), std::string::npos) << plan.status().message();
      } else {
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        EXPECT_EQ(plan->kernel(), kernel->name);
        EXPECT_NE(plan->explain().find("chosen by name"), std::string::npos) << plan->explain();
      }
    }
  }
}

TEST(Planner, TrustedPointersAreNotLookedAtButTheWorkspaceIs) {
  const Problem p = Problem::dense(1, 2, 40, 16, DType::f32);
  PlanOptions wanted = options();
  const Result<Plan> careful = make_plan(p, wanted);
  wanted.trusted_pointers = true;
  const Result<Plan> trusting = make_plan(p, wanted);
  ASSERT_TRUE(careful.ok() && trusting.ok());
  OneCall call(careful.value());
  ASSERT_GT(call.bytes, 0U);
  ASSERT_TRUE(run(careful.value(), call.tensors(), call.workspace()).ok());
  const std::vector<float> expected = call.o;
  call.o.assign(call.o.size(), -1.0F);
  ASSERT_TRUE(run(trusting.value(), call.tensors(), call.workspace()).ok());
  EXPECT_EQ(call.o, expected);

  Tensors shared = call.tensors();
  shared.o = call.q.data();  // rows of q may be overwritten before they are read: the caller's business
  EXPECT_EQ(run(careful.value(), shared, call.workspace()).code(), Code::invalid_argument);
  EXPECT_TRUE(run(trusting.value(), shared, call.workspace()).ok());
  EXPECT_EQ(run(trusting.value(), call.tensors(), {nullptr, 0}).code(), Code::workspace_too_small);
}

TEST(Planner, AlignmentsArePowersOfTwo) {
  for (const int alignment : {0, -16, 3, 24}) {
    PlanOptions wanted = options();
    wanted.pointer_alignment = alignment;
    const Result<Plan> plan = make_plan(Problem::dense(1, 1, 8, 64), wanted);
    EXPECT_EQ(plan.status().code(), Code::invalid_argument);
    EXPECT_NE(plan.status().message().find(fmt::format("pointer_alignment is {}", alignment)),
              std::string::npos);
  }
}

TEST(Planner, AMissingGpuIsNamed) {
  const Problem p = Problem::dense(1, 1, 8, 64);
  const Result<Plan> plan = make_plan(p, {.device = {DeviceKind::cuda, 99}});
  EXPECT_EQ(plan.status().code(), Code::device_unavailable);
  EXPECT_NE(plan.status().message().find("device cuda:99 is not available: "), std::string::npos)
      << plan.status().message();
}

TEST(Planner, AnUnknownKernelIsAnError) {
  const Result<Plan> plan = make_plan(Problem::dense(1, 1, 8, 8), {.kernel = "warp_drive"});
  EXPECT_EQ(plan.status().code(), Code::invalid_argument);
  EXPECT_NE(plan.status().message().find("'warp_drive' is not in the registry for device cpu"),
            std::string::npos)
      << plan.status().message();
}

TEST(Planner, ConfigErrorsNameTheKernelAndTheSetting) {
  for (const KernelInfo& kernel : kernels()) {
    for (const Problem& p : many_problems()) {
      if (!make_plan(p, {.kernel = std::string(kernel.name)}).ok()) continue;
      const auto fails = [&](const std::string& config, const std::string& words) {
        const Result<Plan> plan = make_plan(p, {.kernel = std::string(kernel.name), .config = config});
        EXPECT_EQ(plan.status().code(), Code::invalid_argument) << kernel.name << " took " << config;
        EXPECT_NE(plan.status().message().find(kernel.name), std::string::npos) << plan.status().message();
        EXPECT_NE(plan.status().message().find(words), std::string::npos) << plan.status().message();
      };
      fails("no_such_setting=1", "no_such_setting");
      fails("threads", "'threads' is not of the form key=value");
      fails("threads=0", "threads is '0'");
    }
  }
}

TEST(Planner, APlansConfigMakesTheSamePlan) {
  for (const KernelInfo& kernel : kernels()) {
    for (const Problem& p : many_problems()) {
      PlanOptions wanted = options();
      wanted.kernel = kernel.name;
      const Result<Plan> first = make_plan(p, wanted);
      if (!first.ok()) continue;
      wanted.config = first->config();
      const Result<Plan> second = make_plan(p, wanted);
      ASSERT_TRUE(second.ok()) << second.status().message();
      EXPECT_EQ(second->config(), first->config());
      EXPECT_EQ(second->workspace_bytes(), first->workspace_bytes()) << kernel.name << " " << to_string(p);
    }
  }
}

TEST(Planner, NegativeThreadsAreAnError) {
  const Result<Plan> plan = make_plan(Problem::dense(1, 1, 8, 8), {.threads = -2});
  EXPECT_EQ(plan.status().code(), Code::invalid_argument);
  EXPECT_NE(plan.status().message().find("threads is -2"), std::string::npos) << plan.status().message();
}

TEST(Planner, DevicesPrintAsTheyAreNamed) {
  EXPECT_EQ(to_string(Device{}), "cpu");
  EXPECT_EQ(to_string(Device{DeviceKind::cuda, 1}), "cuda:1");
}

}  // namespace
}  // namespace saccade
