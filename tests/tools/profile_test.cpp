// profile and sanitize: the emulator's numbers, what is said without a GPU, and reading Nsight's tables.
#include <algorithm>
#include <gtest/gtest.h>

#include "../../tools/saccade/ncu_metrics.h"
#include "run_command.h"

namespace saccade {
namespace {

constexpr char kShape[] = "'b1 h1 l128 d64 f16'";

nlohmann::json emulated(const std::string& kernel, const std::string& more = "") {
  return run_saccade("profile " + std::string(kShape) + " --emulate --json --kernel " + kernel + " " + more)
      .json();
}

TEST(Profile, CountsWhatTheEmulatedKernelDoes) {
  const nlohmann::json json = emulated("ladder_cp_async");
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json.at("schema"), "saccade.profile/1");
  EXPECT_EQ(json.at("source"), "emulator");
  const nlohmann::json& counted = json.at("counted");
  EXPECT_EQ(counted.at("matrix_flops"), 4 * 128 * 128 * 64);
  EXPECT_EQ(counted.at("problem_flops"), 4 * 128 * 128 * 64);
  EXPECT_GE(counted.at("mufu"), 128 * 128);  // an exp2 for every score
  EXPECT_EQ(counted.at("bank_conflicts"), 0);
  EXPECT_EQ(json.at("bank_conflict_lines").size(), 0U);
  EXPECT_EQ(counted.at("min_bytes"), 4 * 128 * 64 * 2);
}

TEST(Profile, NamesTheLinesThatWaste) {
  const nlohmann::json json = emulated("ladder_minimal", "--top 1");
  ASSERT_EQ(json.at("uncoalesced_lines").size(), 1U);
  const nlohmann::json& line = json.at("uncoalesced_lines")[0];
  EXPECT_TRUE(line.at("line").get<std::string>().starts_with("src/cuda/")) << line;
  EXPECT_GT(line.at("transactions"), line.at("ideal"));
  EXPECT_EQ(json.at("counted").at("matrix_flops"), 0);
  EXPECT_GT(json.at("modelled").at("busy_us").at("scalar"), 0);
  EXPECT_EQ(emulated("ladder_minimal", "--top 0").at("uncoalesced_lines").size(), 0U);
}

TEST(Profile, ModelsTheChipThatIsNamed) {
  const nlohmann::json l4 = emulated("ladder_cp_async", "--chip l4").at("modelled");
  const nlohmann::json h100 = emulated("ladder_cp_async", "--chip h100").at("modelled");
  const nlohmann::json h200 = emulated("ladder_cp_async").at("modelled");
  EXPECT_EQ(l4.at("chip"), "l4");
  EXPECT_EQ(h200.at("chip"), "h200");
  EXPECT_GT(l4.at("floor_us"), h100.at("floor_us"));
  EXPECT_GT(h100.at("floor_us"), h200.at("floor_us"));
  for (const nlohmann::json& chip : {l4, h100, h200}) {
    EXPECT_LE(chip.at("floor_us"), chip.at("overlapped_us"));
    EXPECT_LE(chip.at("overlapped_us"), chip.at("serial_us"));
  }
}

TEST(Profile, SaysThatItModels) {
  const CommandResult result =
      run_saccade("profile " + std::string(kShape) + " --emulate --kernel ladder_wmma --chip l4");
  EXPECT_EQ(result.exit_code, 0);
  for (const char* words :
       {"Modelled on NVIDIA L4", "not measured", "bank conflicts", "roofline floor", "MUFU"}) {
    EXPECT_NE(result.out.find(words), std::string::npos) << words;
  }
}

TEST(Profile, RefusesWhatItDoesNotKnow) {
  const auto refused = [](const std::string& arguments, const std::string& words) {
    const CommandResult result = run_saccade("profile " + arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
  };
  const std::string shape = kShape;
  refused(shape + " --emulate --kernel no_such_kernel", "ladder_cp_async");
  refused(shape + " --emulate --kernel ladder_cp_async --chip gtx", "l4, a100, h100, h200");
  refused(shape + " --kernel ladder_cp_async --chip l4", "--emulate");
  refused(shape + " --emulate", "--kernel");
  refused("--emulate --kernel ladder_cp_async", "SHAPE");
  refused("'l16 d64 f16' 'l32 d64 f16' --emulate --kernel ladder_cp_async", "one shape");
  refused("'l16 d64 f32' --emulate --kernel ladder_cp_async", "f16 only");
  refused(shape + " --emulate --kernel 'ladder_cp_async:no_such=1'", "no_such");
}

/// Whether a GPU could be used here, by the tool's own word.
bool has_gpu() {
  return run_saccade("info --json").json().at("devices").size() > 1;
}

TEST(Profile, WithoutAGpuExitsWithThree) {
  if (has_gpu()) GTEST_SKIP() << "there is a GPU";
  const CommandResult result = run_saccade("profile " + std::string(kShape) + " --kernel ladder_cp_async");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("no GPU: "), std::string::npos) << result.err;
  EXPECT_EQ(result.out, "");
}

TEST(Sanitize, WithoutAGpuExitsWithThree) {
  if (has_gpu()) GTEST_SKIP() << "there is a GPU";
  const CommandResult result = run_saccade("sanitize --tool memcheck");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("no GPU: "), std::string::npos) << result.err;
}

TEST(Sanitize, RefusesAToolThatIsNone) {
  const CommandResult result = run_saccade("sanitize --tool leakcheck");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("racecheck"), std::string::npos) << result.err;
}

TEST(NcuTable, IsReadByItsHeader) {
  const std::vector<cli::NcuKernel> kernels = cli::parse_ncu_csv(
      "==PROF== Connected to process 7\n"
      "2 calls\n"
      "\"ID\",\"Process ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"CC\",\"gpu__time_duration.sum\","
      "\"dram__bytes.sum\",\"launch__registers_per_thread\",\"lts__t_sector_hit_rate.pct\"\n"
      "\"\",\"\",\"\",\"\",\"\",\"\",\"ns\",\"byte\",\"register/thread\",\"%\"\n"
      "\"0\",\"7\",\"void f<64, \"\"x\"\">(int)\",\"(128, 1, 1)\",\"(2, 1, "
      "1)\",\"9.0\",\"12,345\",\"1,048,576\","
      "\"168\",\"n/a\"\n"
      "\"1\",\"7\",\"g\",\"(32, 1, 1)\",\"(1, 1, 1)\",\"9.0\",\"99.5\",\"0\",\"32\",\"87.25\"\r\n"
      "\"broken\",\"line\"\n"
      "==PROF== Disconnected from process 7\n");
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(kernels[0].name, "void f<64, \"x\">(int)");
  EXPECT_EQ(kernels[0].grid, "(2, 1, 1)");
  EXPECT_EQ(kernels[0].block, "(128, 1, 1)");
  EXPECT_EQ(kernels[0].values.size(), 3U);  // n/a is no number
  EXPECT_EQ(kernels[0].values.at("gpu__time_duration.sum"), 12345);
  EXPECT_EQ(kernels[0].values.at("dram__bytes.sum"), 1048576);
  EXPECT_EQ(kernels[1].values.at("gpu__time_duration.sum"), 99.5);
  EXPECT_EQ(kernels[1].values.at("lts__t_sector_hit_rate.pct"), 87.25);
  EXPECT_TRUE(cli::parse_ncu_csv("==ERROR== ERR_NVGPUCTRPERM\n").empty());
}

TEST(NcuTable, UnknownMetricsAreFoundInTheLog) {
  const std::vector<std::string> names = {"gpu__time_duration.sum",
                                          "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio"};
  const std::string log =
      "==PROF== Connected\n==ERROR== Failed to find metric "
      "regex:^smsp__average_warps_issue_stalled_gmma_per_issue_active(\\..*)?$\n";
  EXPECT_EQ(cli::unknown_metrics(log, names), std::vector<std::string>{names[1]});
  EXPECT_TRUE(cli::unknown_metrics("==ERROR== another\n", names).empty());
}

TEST(NcuTable, EveryMetricHasAMeaningAndANameOfItsOwn) {
  std::vector<std::string_view> names;
  for (const auto metrics : {cli::ncu_metrics(), cli::ncu_stalls()}) {
    for (const cli::NcuMetric& metric : metrics) {
      EXPECT_FALSE(metric.title.empty() || metric.meaning.empty()) << metric.name;
      EXPECT_EQ(std::count(names.begin(), names.end(), metric.name), 0) << metric.name;
      names.push_back(metric.name);
    }
  }
  EXPECT_GT(names.size(), 20U);
}

}  // namespace
}  // namespace saccade
