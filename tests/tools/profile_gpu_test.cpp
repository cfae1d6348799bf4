// profile and sanitize on a machine whose driver and tools are scripts: what they are asked, and how their
// answers are summed up. What a GPU answers is for machines that have one.
#include <filesystem>
#include <gtest/gtest.h>

#include "run_command.h"

namespace saccade {
namespace {

constexpr char kShape[] = "'b1 h1 l128 d64 f16'";

class FakeGpu : public testing::Test {
 protected:
  /// A program that prints what it is asked into `name`.args and goes on with `script`.
  void install(const std::string& name, const std::string& script) const {
    const std::string file =
        folder_.write(name, "#!/bin/sh\necho \"$@\" >> '" + folder_.file(name + ".args") + "'\n" + script);
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
  [[nodiscard]] std::string asked(const std::string& name) const {
    return read_file(folder_ / (name + ".args"));
  }
  [[nodiscard]] CommandResult run(const std::string& arguments) const {
    return run_saccade(arguments, "LD_LIBRARY_PATH='" SACCADE_FAKE_DRIVER "' PATH='" +
                                      folder_.path().string() + "':/usr/bin:/bin");
  }

  TemporaryFolder folder_;
};

#if !SACCADE_HAS_GPU_KERNELS
TEST_F(FakeGpu, ABuildWithoutGpuKernelsSaysSo) {
  for (const std::string& arguments :
       {"profile " + std::string(kShape) + " --kernel ladder_cp_async", std::string("sanitize")}) {
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_NE(result.err.find("no GPU kernels"), std::string::npos) << result.err;
  }
}
#else

constexpr char kTable[] =
    "cat <<'END'\n"
    "==PROF== Connected to process 7\n"
    "\"ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"gpu__time_duration.sum\",\"dram__bytes.sum\","
    "\"smsp__average_warps_issue_stalled_wait_per_issue_active.ratio\"\n"
    "\"\",\"\",\"\",\"\",\"ns\",\"byte\",\"inst\"\n"
    "\"0\",\"f\",\"(128, 1, 1)\",\"(2, 1, 1)\",\"99,000\",\"9\",\"9\"\n"
    "\"1\",\"f\",\"(128, 1, 1)\",\"(2, 1, 1)\",\"2,000\",\"65,536\",\"0.75\"\n"
    "END\n";

TEST_F(FakeGpu, ProfileShowsTheLastCall) {
  install("ncu", kTable);
  const std::string arguments = "profile " + std::string(kShape) + " --kernel ladder_cp_async";
  const CommandResult text = run(arguments);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  for (const char* words :
       {"on NVIDIA H200", "2.00 us", "64.0 KiB", "0.75", "Roofline: 2.10 TFLOP/s at 64.0"}) {
    EXPECT_NE(text.out.find(words), std::string::npos) << words << "\n" << text.out;
  }
  for (const char* words : {"--clock-control none", "launch b1 h1 l128 d64 f16 --kernel ladder_cp_async"}) {
    EXPECT_NE(asked("ncu").find(words), std::string::npos) << words << "\n" << asked("ncu");
  }
  const nlohmann::json json = run(arguments + " --json").json();
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json.at("nsight_us"), 2.0);
  EXPECT_EQ(json.at("kernels").size(), 1U);
  EXPECT_TRUE(json.contains("cupti_us") || json.contains("why_no_cupti"));
}

TEST_F(FakeGpu, ProfileGoesOnWithoutAMetricThatTheChipDoesNotHave) {
  install("ncu",
          "case \"$*\" in *stalled_gmma*)\n"
          "echo '==ERROR== Failed to find metric regex:^smsp__average_warps_issue_stalled_gmma_per_issue"
          "_active(\\..*)?$'; exit 1;; esac\n" +
              std::string(kTable));
  const CommandResult result = run("profile " + std::string(kShape) + " --kernel ladder_cp_async");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("2.00 us"), std::string::npos) << result.out;
}

TEST_F(FakeGpu, ProfileSaysWhenTheDriverKeepsTheCounters) {
  install("ncu", "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'; exit 1\n");
  const CommandResult result = run("profile " + std::string(kShape) + " --kernel ladder_cp_async");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("administrator"), std::string::npos) << result.err;
}

TEST_F(FakeGpu, MissingToolsAreNamed) {
  if (std::filesystem::exists("/usr/local/cuda/bin/ncu")) GTEST_SKIP() << "the tools are installed";
  const CommandResult profile = run("profile " + std::string(kShape) + " --kernel ladder_cp_async");
  EXPECT_EQ(profile.exit_code, 3);
  EXPECT_NE(profile.err.find("ncu is not installed"), std::string::npos) << profile.err;
  const CommandResult sanitize = run("sanitize");
  EXPECT_EQ(sanitize.exit_code, 3);
  EXPECT_NE(sanitize.err.find("compute-sanitizer is not installed"), std::string::npos) << sanitize.err;
}

constexpr char kClean[] = "echo '========= ERROR SUMMARY: 0 errors'\n";

TEST_F(FakeGpu, SanitizeRunsEveryToolOverTheVerification) {
  install("compute-sanitizer", kClean);
  const CommandResult result = run("sanitize --cases small,features --kernel ladder_wmma");
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const std::string asked_for = asked("compute-sanitizer");
  for (const char* words :
       {"--tool memcheck", "--tool racecheck", "--tool synccheck", "--tool initcheck", "--error-exitcode 99",
        "verify --device cuda", "--cases small,features", "--kernel ladder_wmma"}) {
    EXPECT_NE(asked_for.find(words), std::string::npos) << words << "\n" << asked_for;
  }
}

TEST_F(FakeGpu, SanitizeReportsWhatAToolFound) {
  install("compute-sanitizer",
          "case \"$*\" in *racecheck*)\necho '========= Error: Race reported at f+0x10'\n"
          "echo '========= RACECHECK SUMMARY: 1 hazard displayed'; exit 99;; *initcheck*) exit 139;; esac\n" +
              std::string(kClean));
  const CommandResult all = run("sanitize");
  EXPECT_EQ(all.exit_code, 1) << all.err;
  EXPECT_NE(all.out.find("Race reported at f+0x10"), std::string::npos) << all.out;
  EXPECT_NE(all.out.find("1 hazard displayed"), std::string::npos) << all.out;
  const nlohmann::json json = run("sanitize --json --tool racecheck").json();
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json.at("clean"), false);
  EXPECT_EQ(json.at("tools").size(), 1U);
  EXPECT_EQ(run("sanitize --tool memcheck").exit_code, 0);
  EXPECT_EQ(run("sanitize --tool initcheck").exit_code, 3);
}

TEST_F(FakeGpu, SanitizeIsNotCleanWhenNothingWasWatched) {
  install("compute-sanitizer", "exit 0\n");
  EXPECT_EQ(run("sanitize --tool memcheck").exit_code, 3);
  install("compute-sanitizer", std::string("echo '========= Device not supported'\n") + kClean);
  EXPECT_EQ(run("sanitize --tool memcheck").exit_code, 3);
}

TEST_F(FakeGpu, SanitizeTellsWrongResultsFromWrongUse) {
  install("compute-sanitizer", std::string(kClean) + "exit 1\n");
  const CommandResult wrong = run("sanitize --tool memcheck");
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_NE(wrong.out.find("WRONG RESULTS"), std::string::npos) << wrong.out;
  install("compute-sanitizer", "echo 'saccade: there is no such case' >&2; exit 2\n");
  const CommandResult misuse = run("sanitize --tool memcheck");
  EXPECT_EQ(misuse.exit_code, 2);
  EXPECT_NE(misuse.out.find("no such case"), std::string::npos) << misuse.out;
}
#endif

}  // namespace
}  // namespace saccade
