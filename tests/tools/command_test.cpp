// Usage, exit codes, info, explain and the case files.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include <saccade/plan.h>
#include <saccade/problem.h>
#include <saccade/run.h>

#include "run_command.h"

namespace saccade {
namespace {

using testing::TestWithParam;
using testing::Values;

TEST(Command, HelpListsSubcommandsAndExitCodes) {
  const CommandResult result = run_saccade("--help");
  EXPECT_EQ(result.exit_code, 0);
  for (const char* word : {"info", "explain", "verify", "bench", "report", "Exit codes", "internal error"}) {
    EXPECT_NE(result.out.find(word), std::string::npos) << word;
  }
}

TEST(Command, VersionIsTheLibrarys) {
  const CommandResult result = run_saccade("--version");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, std::string(version()) + "\n");
}

struct BadCall {
  const char* arguments;
  const char* sentence;  ///< part of what stderr must say
};

class BadUsage : public TestWithParam<BadCall> {};

TEST_P(BadUsage, ExitsWithTwoAndSaysWhy) {
  const CommandResult result = run_saccade(GetParam().arguments);
  EXPECT_EQ(result.exit_code, 2) << result.out;
  EXPECT_NE(result.err.find(GetParam().sentence), std::string::npos) << result.err;
  EXPECT_EQ(result.out, "");
}

INSTANTIATE_TEST_SUITE_P(
    Command, BadUsage,
    Values(BadCall{"nonsense", "nonsense"}, BadCall{"bench --no-such-option", "no-such-option"},
           BadCall{"explain", "SHAPE"}, BadCall{"explain 'b1 h8 l512 d64 f17'", "shape token 'f17'"},
           BadCall{"explain 'b1 h8 d64 f16'", "names no number of queries"},
           BadCall{"explain 'b1 h8/3 l16 d64 f16'", "heads_q"},
           BadCall{"explain --cases no-such-file", "no-such-file"},
           BadCall{"explain 'l16' --kernel no_such_kernel", "no_such_kernel"},
           BadCall{"verify 'l16' --kernel no_such_kernel", "cpu_reference"},
           BadCall{"verify 'l16 d32' --seeds 0", "--seeds"}, BadCall{"verify 'l16' --fuzz 3", "--fuzz"},
           BadCall{"bench 'l16' --config 'rows=3'", "--config needs --kernel"},
           BadCall{"bench 'l16' --kernel cpu_reference --config 'no_such_setting=3'", "no_such_setting"},
           BadCall{"bench 'l16' --threads -1", "--threads"},
           BadCall{"report no-such-file.json", "cannot be read"}));

TEST(Info, NamesMachineDevicesAndKernels) {
  const CommandResult text = run_saccade("info");
  EXPECT_EQ(text.exit_code, 0);
  const nlohmann::json json = run_saccade("info --json").json();
  ASSERT_TRUE(json.is_object());
  const std::vector<KernelInfo> expected = kernels();
  ASSERT_EQ(json.at("kernels").size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(json.at("kernels")[i].at("name"), expected[i].name);
    EXPECT_NE(text.out.find(expected[i].name), std::string::npos);
  }
  EXPECT_EQ(json.at("devices")[0].at("device"), "cpu");
  EXPECT_TRUE(json.at("devices").size() > 1 || json.contains("why_no_cuda_device"));
}

TEST(Explain, PrintsThePlan) {
  const Result<Plan> plan = make_plan(parse_problem("b1 h2 l16 d16 f32").value());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(run_saccade("explain 'b1 h2 l16 d16 f32'").out, plan->explain());
  const nlohmann::json json = run_saccade("explain 'b1 h2 l16 d16 f32' --json").json();
  EXPECT_EQ(json.at("plans")[0].at("kernel"), plan->kernel());
  EXPECT_EQ(json.at("plans")[0].at("config"), plan->config());
}

TEST(Explain, TakesWordsWithoutQuotesAsOneShapeAndWholeShapesApart) {
  EXPECT_EQ(run_saccade("explain b1 h2 l16 d16 f32").out, run_saccade("explain 'b1 h2 l16 d16 f32'").out);
  EXPECT_EQ(run_saccade("explain l16 l32 --json").json().at("plans").size(), 2U);
  EXPECT_EQ(run_saccade("explain 'l16 d8' 'l32 d8' --json").json().at("plans").size(), 2U);
}

TEST(Explain, InsistsOnAKernel) {
  const nlohmann::json json = run_saccade("explain l16 --kernel cpu_reference --json").json();
  EXPECT_EQ(json.at("plans")[0].at("kernel"), "cpu_reference");
}

TEST(Cases, EveryFileHoldsValidShapesThatPrintAndReadBack) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SACCADE_CASES_FOLDER)) {
    if (entry.path().extension() != ".txt") continue;
    ++files;
    std::ifstream stream(entry.path());
    std::size_t shapes = 0;
    for (std::string line; std::getline(stream, line);) {
      const std::string shape = line.substr(0, line.find('#'));
      if (shape.find_first_not_of(" \t") == std::string::npos) continue;
      ++shapes;
      const Result<Problem> problem = parse_problem(shape);
      ASSERT_TRUE(problem.ok()) << entry.path() << ": " << problem.status().message();
      const Status status = validate(problem.value());
      EXPECT_TRUE(status.ok()) << entry.path() << ": " << status.message();
      const Result<Problem> again = parse_problem(to_string(problem.value()));
      ASSERT_TRUE(again.ok()) << to_string(problem.value());
      EXPECT_EQ(again.value(), problem.value()) << shape;
    }
    const nlohmann::json json = run_saccade("explain --json --cases " + entry.path().stem().string()).json();
    ASSERT_TRUE(json.is_object()) << entry.path();
    EXPECT_EQ(json.at("plans").size(), shapes) << entry.path();
  }
  EXPECT_GE(files, 7);
}

TEST(Cases, ErrorsNameFileAndLine) {
  const TemporaryFolder folder;
  const std::string file = folder.write("mine.txt", "# fine\nl16 d8\n\nl16 d8 f99\n");
  const CommandResult result = run_saccade("explain --cases '" + file + "'");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("mine.txt:4: "), std::string::npos) << result.err;
  EXPECT_EQ(run_saccade("explain --cases '" + folder.write("empty.txt", "# nothing\n") + "'").exit_code, 2);
  EXPECT_EQ(
      run_saccade("explain --cases '" + folder.write("bar.txt", "l16 # bar: fma > 7\n") + "'").exit_code, 2);
}

TEST(Cases, AreFoundInTheFolderOfTheEnvironment) {
  const TemporaryFolder folder;
  const std::string file = folder.write("mission.txt", "b1 h1 l3 d3 f32\n");
  setenv("SACCADE_CASES", std::filesystem::path(file).parent_path().c_str(), 1);
  const nlohmann::json json = run_saccade("explain --json --cases mission").json();
  unsetenv("SACCADE_CASES");
  ASSERT_EQ(json.at("plans").size(), 1U);
  EXPECT_EQ(json.at("plans")[0].at("shape"), "b1 h1 l3 d3 f32");
}

}  // namespace
}  // namespace saccade
