// Runs that are kept: bench writes them, history, compare and evidence find them again.
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "run_command.h"

namespace saccade {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kShapes[] = "'b1 h2 l64 d32 f32' 'b1 h2 lq1 lk64 d32 f16'";

class StoredRuns : public testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string store_ = " --store '" + folder_.file("deep/store.db") + "' ";

  /// Measures and returns the run's document.
  json bench(const std::string& arguments = kShapes) {
    const CommandResult result = run_saccade("bench --json --budget 0.05 " + arguments + store_);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.json();
  }
  CommandResult run(const std::string& arguments) { return run_saccade(arguments + store_); }
};

TEST_F(StoredRuns, HistoryShowsAKernelOverRuns) {
  const json first = bench(), second = bench();
  const json runs = run("history --json").json().at("runs");
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].at("run"), first.at("run"));
  EXPECT_EQ(runs[1].at("finished"), second.at("finished"));
  const json entries = run("history b1 h2 l64 d32 f32 --kernel cpu_blocked --json").json().at("entries");
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[1].at("run"), second.at("run"));
  for (const json& kernel : second.at("results")[0].at("kernels")) {
    if (kernel.at("kernel") != "cpu_blocked") continue;
    EXPECT_EQ(entries[1].at("median_us"), kernel.at("time").at("median_us"));
  }
  EXPECT_THAT(run("history 'b1 h2 l64 d32 f32'").out, HasSubstr("cpu_blocked"));
  EXPECT_THAT(run("history 'b1 h9 l64 d32 f32'").out, HasSubstr("nothing stored"));
  EXPECT_EQ(run("history 'b1 h2 l64 d32 q99'").exit_code, 2);
}

/// What a document says of the shape and kernel of a row of `compare`.
json time_of(const json& document, const json& row) {
  for (const json& result : document.at("results")) {
    if (result.at("shape") != row.at("shape")) continue;
    for (const json& kernel : result.at("kernels")) {
      if (kernel.at("kernel") == row.at("kernel")) return kernel.at("time");
    }
  }
  return {};
}

TEST_F(StoredRuns, CompareTakesRunsPrefixesAndFiles) {
  const json first = bench(), second = bench();
  const std::string before = first.at("run"), file = folder_.file("before.json");
  const CommandResult compared = run("compare --json " + before.substr(0, 12) + " latest");
  ASSERT_EQ(compared.exit_code, 0) << compared.err;
  const json result = compared.json();
  EXPECT_EQ(result.at("after"), second.at("run"));
  ASSERT_GE(result.at("results").size(), 4U);
  for (const json& row : result.at("results")) {
    EXPECT_LE(row.at("low"), row.at("speedup"));
    EXPECT_LE(row.at("speedup"), row.at("high"));
  }
  // A file keeps no samples, so both medians' intervals make the ratio's.
  ASSERT_EQ(run("evidence export " + before + " '" + file + "'").exit_code, 0);
  const json by_file = run("compare --json '" + file + "' latest").json();
  ASSERT_EQ(by_file.at("results").size(), result.at("results").size());
  for (std::size_t i = 0; i < by_file.at("results").size(); ++i) {
    const json& row = by_file.at("results")[i];
    const json a = time_of(first, row), b = time_of(second, row);
    const auto quotient = [](const json& x, const json& y) { return x.get<double>() / y.get<double>(); };
    EXPECT_NEAR(row.at("low"), quotient(a.at("low_us"), b.at("high_us")), 1e-4 * row.at("low").get<double>());
    EXPECT_NEAR(row.at("high"), quotient(a.at("high_us"), b.at("low_us")),
                1e-4 * row.at("high").get<double>());
    EXPECT_EQ(row.at("after_us"), result.at("results")[i].at("after_us"));
  }
  EXPECT_EQ(run("compare zz latest").exit_code, 2);
  const json other = bench("'b1 h1 l16 d16 f32'");
  EXPECT_EQ(run("compare " + before + " latest").exit_code, 2);
}

TEST_F(StoredRuns, ReportShowsTheLatestRunAndAnyOther) {
  const json first = bench("'b1 h2 l64 d32 f32'");
  (void)bench("'b1 h1 l16 d16 f16'");
  EXPECT_THAT(run("report").out, HasSubstr("`b1 h1 l16 d16 f16`"));
  const std::string id = first.at("run");
  EXPECT_THAT(run("report " + id).out, HasSubstr("`b1 h2 l64 d32 f32`"));
  EXPECT_THAT(run("report " + id + " latest").out, HasSubstr("`b1 h1 l16 d16 f16`"));
  EXPECT_EQ(run_saccade("report --store '" + folder_.file("none.db") + "'").exit_code, 2);
}

TEST_F(StoredRuns, EvidenceGoesOutAndComesBackTheSame) {
  const json document = bench();
  const std::string file = folder_.file("evidence/run.json"), again = folder_.file("again.json");
  ASSERT_EQ(run("evidence export latest '" + file + "'").exit_code, 0);
  EXPECT_EQ(json::parse(read_file(file)), document);
  EXPECT_THAT(run("evidence import '" + file + "'").out, HasSubstr("was there already"));
  const std::string other = " --store '" + folder_.file("other.db") + "'";
  EXPECT_THAT(run_saccade("evidence import '" + file + "'" + other).out, HasSubstr("added"));
  EXPECT_THAT(run_saccade("evidence import '" + file + "'" + other).out, HasSubstr("was there already"));
  ASSERT_EQ(run_saccade("evidence export latest '" + again + "'" + other).exit_code, 0);
  EXPECT_EQ(read_file(again), read_file(file));
  // Raw samples stay in the store: a file is to be read in a review.
  EXPECT_LT(std::filesystem::file_size(file), 20'000U);
}

TEST_F(StoredRuns, ImportNamesTheFieldThatIsWrongAndChangesNothing) {
  const json document = bench();
  const std::string other = " --store '" + folder_.file("other.db") + "'";
  const auto import = [&](const json& changed) {
    return run_saccade("evidence import '" + folder_.write("bad.json", changed.dump()) + "'" + other);
  };
  const auto timed = [](json& root) -> json& {
    for (json& kernel : root.at("results")[1].at("kernels")) {
      if (kernel.contains("time")) return kernel;
    }
    return root;
  };
  std::vector<std::pair<json, std::string>> wrong;
  const auto damage = [&](const std::string& expected, const auto& change) {
    json copy = document;
    change(copy);
    wrong.emplace_back(copy, expected);
  };
  damage("schema", [](json& root) { root["schema"] = "saccade.bench/99"; });
  damage("run is missing", [](json& root) { root.erase("run"); });
  damage("ceilings.fma_gflops is not a number", [](json& root) { root["ceilings"]["fma_gflops"] = "fast"; });
  damage("caches is 'hot'", [](json& root) { root["caches"] = "hot"; });
  damage("results is not a list", [](json& root) { root["results"] = 7; });
  damage("commit", [](json& root) { root["provenance"].erase("commit"); });
  damage("time.median_us is missing", [&](json& root) { timed(root)["time"].erase("median_us"); });
  damage("time.samples is not a natural number", [&](json& root) { timed(root)["time"]["samples"] = -1; });
  damage("verified.passed is neither", [&](json& root) { timed(root)["verified"]["passed"] = "yes"; });
  for (const auto& [changed, expected] : wrong) {
    const CommandResult result = import(changed);
    EXPECT_EQ(result.exit_code, 2) << expected;
    EXPECT_THAT(result.err, HasSubstr(expected));
    EXPECT_THAT(result.err, HasSubstr("bad.json"));
  }
  EXPECT_EQ(run_saccade("history" + other).exit_code, 2) << "a store came to be";
}

TEST_F(StoredRuns, AChangedRunOfTheSameIdIsRefused) {
  json document = bench();
  document["results"][0]["flops"] = 1.0;
  const std::string file = folder_.write("changed.json", document.dump());
  const CommandResult result = run("evidence import '" + file + "'");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("has another run of the id"));
}

TEST(Recording, GoesToTheUsersOwnStoreUnlessToldOtherwise) {
  const std::string quick = "bench 'b1 h1 l16 d16 f32' --budget 0.02";
  EXPECT_THAT(run_saccade(quick).out, HasSubstr("saccade/store.db"));
  EXPECT_EQ(run_saccade(quick + " --no-store").out.find("stored:"), std::string::npos);
  EXPECT_EQ(run_saccade(quick + " --no-store --store x").exit_code, 2);
}

TEST(Recording, ANamedStoreMustWorkAndIsTriedBeforeAnythingIsMeasured) {
  const TemporaryFolder folder;
  const std::string file = folder.write("store.db", "this is no database, it is a letter");
  const CommandResult result = run_saccade("bench 'b1 h1 l16 d16 f32' --store '" + file + "'");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("is not a store"));
  EXPECT_EQ(result.out.find("cpu_blocked"), std::string::npos);
  EXPECT_EQ(read_file(file), "this is no database, it is a letter");
}

TEST(Recording, AUsersOwnStoreThatCannotBeWrittenOnlyWarns) {
  const TemporaryFolder folder;
  const std::string file = folder.write("data", "a file where a folder should be");
  const CommandResult result =
      run_saccade("bench 'b1 h1 l16 d16 f32' --budget 0.02", "XDG_DATA_HOME='" + file + "'");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("this run is not stored: "));
  EXPECT_THAT(result.out, HasSubstr("cpu_blocked"));
  EXPECT_EQ(result.out.find("stored:"), std::string::npos);
  EXPECT_EQ(read_file(file), "a file where a folder should be");
}

/// Starts `saccade ARGUMENTS...` with stdout in a file, kills it after `milliseconds`, and returns what it
/// printed.
std::string run_and_kill(std::vector<std::string> arguments, const std::string& out, int milliseconds) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  EXPECT_EQ(posix_spawn(&child, SACCADE_BINARY, &files, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&files);
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return read_file(out);
}

// Every shape that bench has shown must be in the store afterwards, whenever the process died.
TEST(Recording, AKillLosesNoShapeThatWasShown) {
  const char* const asked = std::getenv("SACCADE_KILLS");
  const int kills = asked == nullptr ? 8 : std::atoi(asked);
  const TemporaryFolder folder;
  const std::string store = folder.file("store.db");
  std::vector<std::string> command = {"saccade",  "bench", "--store",    store,
                                      "--budget", "0.02",  "--no-verify"};
  constexpr int kShapeCount = 40;
  for (int n = 1; n <= kShapeCount; ++n) command.push_back("b1 h1 l" + std::to_string(n) + " d8 f32");
  std::mt19937 random(std::random_device{}());
  std::size_t shown_in_all = 0, known = 0;
  for (int i = 0; i < kills; ++i) {
    const int milliseconds = static_cast<int>(1500 + random() % 3000);
    const std::string out = run_and_kill(command, folder.file("out"), milliseconds);
    std::size_t shown = 0;
    for (int n = 1; n <= kShapeCount; ++n) {
      shown += out.find("b1 h1 l" + std::to_string(n) + " d8 f32  ") != std::string::npos ? 1 : 0;
    }
    shown_in_all += shown;
    if (!std::filesystem::exists(store)) continue;
    const CommandResult history = run_saccade("history --json --store '" + store + "'");
    ASSERT_EQ(history.exit_code, 0) << history.err;
    const json runs = history.json().at("runs");
    // One shape has a measurement for each of the three kernels.
    if (runs.size() > known) {
      EXPECT_GE(runs.back().at("measurements").get<std::size_t>(), 3 * shown) << milliseconds << " ms";
    } else {
      EXPECT_EQ(shown, 0U) << "a shape was shown before its run began";
    }
    known = runs.size();
  }
  EXPECT_GT(shown_in_all, 0U) << "every kill came before the first shape: this test says nothing";
}

}  // namespace
}  // namespace saccade
