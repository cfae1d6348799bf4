#include <algorithm>
#include <gtest/gtest.h>

#include <saccade/plan.h>

#include "run_command.h"

namespace saccade {
namespace {

TEST(VerifyCommand, JudgesEveryKernelThatTakesTheShape) {
  const CommandResult result =
      run_saccade("verify 'b1 h2 l20 d16 f16 causal' 'b1 h1 l5 d5 f32' --device cpu --json");
  EXPECT_EQ(result.exit_code, 0) << result.out;
  const nlohmann::json json = result.json();
  EXPECT_EQ(json.at("failed"), 0);
  const auto all = kernels();
  const auto of_the_cpu = std::ranges::count(all, DeviceKind::cpu, &KernelInfo::device);
  EXPECT_EQ(json.at("passed").get<std::ptrdiff_t>() + json.at("rejected").get<std::ptrdiff_t>(),
            2 * of_the_cpu);
  for (const nlohmann::json& each : json.at("results")) {
    EXPECT_TRUE(each.contains("rejected") || each.at("passed").get<bool>()) << each;
  }
}

TEST(VerifyCommand, DevicesAreCheckedBeforeAnythingRuns) {
  const CommandResult unknown = run_saccade("verify 'b1 h1 l5 d5 f32' --device tpu");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.err.find("--device is 'tpu'"), std::string::npos) << unknown.err;
  const CommandResult other = run_saccade("verify 'b1 h1 l5 d5 f32' --device cuda --kernel cpu_blocked");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("'cpu_blocked' does not run on cuda"), std::string::npos) << other.err;
  EXPECT_EQ(run_saccade("verify 'b1 h1 l5 d5 f32' --device cuda:99").exit_code, 3);
}

TEST(VerifyCommand, CountsSeedsUp) {
  const nlohmann::json json =
      run_saccade("verify 'b1 h1 l9 d8 f32' --kernel cpu_reference --seed 5 --seeds 3 --json").json();
  ASSERT_EQ(json.at("results").size(), 3U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(json.at("results")[i].at("seed"), 5 + i);
}

TEST(VerifyCommand, DataDependOnTheSeed) {
  const std::string line = "verify 'b1 h1 l9 d8 f16' --kernel cpu_reference --json --seed ";
  const auto error = [&](const char* seed) {
    return run_saccade(line + seed).json().at("results")[0].at("relative_l2").get<double>();
  };
  EXPECT_EQ(error("3"), error("3"));
  EXPECT_NE(error("3"), error("4"));
}

TEST(VerifyCommand, LimitsTheRowsOnRequest) {
  const std::string line = "verify 'b1 h4 l200 d8 f32' --kernel cpu_reference --json --max-rows ";
  const auto rows = [&](const char* limit) {
    return run_saccade(line + limit).json().at("results")[0].at("rows_checked");
  };
  EXPECT_LT(rows("20").get<int>(), 800);
  EXPECT_EQ(rows("0").get<int>(), 800);
}

TEST(VerifyCommand, SaysWhenANamedKernelRejects) {
  for (const KernelInfo& kernel : kernels()) {
    if (kernel.device != DeviceKind::cpu) continue;
    PlanOptions options;
    options.kernel = kernel.name;
    const Problem problem = parse_problem("b1 h2 l300 d64 f16").value();
    if (make_plan(problem, options).ok()) continue;
    const CommandResult result = run_saccade("verify 'b1 h2 l300 d64 f16' --kernel " + options.kernel);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.out.find("rejects: "), std::string::npos) << result.out;
    return;
  }
  GTEST_SKIP() << "every kernel of this build takes the shape";
}

TEST(VerifyCommand, SelfTestCatchesEveryPlantedBug) {
  const CommandResult result = run_saccade("verify --self-test --json");
  EXPECT_EQ(result.exit_code, 0);
  const nlohmann::json json = result.json();
  EXPECT_EQ(json.at("missed"), 0);
  EXPECT_GE(json.at("results").size(), 3U * 8U);
}

TEST(VerifyCommand, FuzzesByCountAndSeed) {
  const CommandResult result = run_saccade("verify --fuzz 25 --seed 3 --json");
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_EQ(result.json().at("problems"), 25);
  EXPECT_EQ(result.json().at("runs").at("cpu_reference"), 25);
  const nlohmann::json one = run_saccade("verify --fuzz 5 --kernel cpu_reference --json").json();
  EXPECT_EQ(one.at("runs").size(), 1U);
}

TEST(VerifyCommand, ProgressStaysOffWhenNotOnATerminal) {
  EXPECT_EQ(run_saccade("verify 'b1 h1 l9 d8 f32'").err, "");
}

}  // namespace
}  // namespace saccade
