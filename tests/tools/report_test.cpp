#include <gtest/gtest.h>

#include "run_command.h"

namespace saccade {
namespace {

/// A document as bench writes it, with chosen numbers.
constexpr char kDocument[] = R"({
 "schema": "saccade.bench/1", "run": "00000000deadbeef", "finished": "2026-01-02T03:05:05Z",
 "provenance": {"commit": "0123456789ab", "dirty": false, "version": "0.1.0", "compiler": "GNU 12", "flags": "-O3",
  "host": {"cpu": "Some CPU", "logical_cpus": 2, "memory_bytes": 1, "largest_cache_bytes": 1, "simd_target": "AVX3",
   "governor": "unknown"}, "date": "2026-01-02T03:04:05Z", "seed": 1, "command_line": "saccade bench"},
 "device": "cpu", "threads": 2, "caches": "warm", "budget_seconds": 3,
 "ceilings": {"fma_gflops": 200, "copy_gbps": 20},
 "results": [
  {"shape": "b1 h8 l512 d64 f32", "flops": 536870912, "bytes": 4194304, "read_ceiling_gbps": 50, "fma_ceiling_gflops": 200, "bound": "compute",
   "bars": [{"bar": "at least 70% of the FMA peak", "value": 75, "met": true}],
   "kernels": [
    {"kernel": "fast", "config": "", "verified": {"passed": true},
     "time": {"timer": "host", "median_us": 3579.1, "low_us": 3570, "high_us": 3590, "min_us": 3500, "p95_us": 3700, "samples": 20,
      "calls_per_sample": 1, "converged": true},
     "gflops": 150, "fma_percent": 75, "gbps": 1.17, "read_percent": 2.3, "workspace_bytes": 0, "extra_bytes": 4096,
     "speedup": {"baseline": "plain", "value": 40, "low": 39, "high": 41, "verdict": "faster"}},
    {"kernel": "plain", "config": "", "verified": {"passed": true},
     "time": {"timer": "host", "median_us": 143165, "low_us": 143000, "high_us": 144000, "min_us": 143000, "p95_us": 144000,
      "samples": 20, "calls_per_sample": 1, "converged": true},
     "gflops": 3.75, "fma_percent": 1.9, "gbps": 0.03, "read_percent": 0.1, "workspace_bytes": 0}]}]})";

constexpr char kReadme[] = "# Title\n<!-- saccade:cpu begin -->\nold\n<!-- saccade:cpu end -->\nafter\n";

class Report : public testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string document_ = folder_.write("cpu.json", kDocument);
  std::string readme_ = folder_.write("README.md", kReadme);

  CommandResult report(const std::string& arguments) {
    return run_saccade("report '" + document_ + "' " + arguments);
  }
};

TEST_F(Report, PrintsMarkdownWithTheFiguresOfItsData) {
  const CommandResult result = report("");
  EXPECT_EQ(result.exit_code, 0);
  for (const char* text : {"| `b1 h8 l512 d64 f32` | fast | 3.58 ms (3.57 ms .. 3.59 ms) | 150 | **75.0%** |",
                           "Some CPU", "0123456789ab", "40.0x faster (plain)", "4.00 KiB", "FMA peak: met"}) {
    EXPECT_NE(result.out.find(text), std::string::npos) << text << "\n" << result.out;
  }
  EXPECT_EQ(result.out.find("| plain |"), std::string::npos);
  EXPECT_NE(report("--all-kernels").out.find("| plain |"), std::string::npos);
}

TEST_F(Report, ReplacesWhatStandsBetweenTheMarkersAndNothingElse) {
  EXPECT_EQ(report("--readme '" + readme_ + "'").exit_code, 0);
  const std::string text = read_file(readme_);
  EXPECT_TRUE(text.starts_with("# Title\n<!-- saccade:cpu begin -->\n| Shape |")) << text;
  EXPECT_TRUE(text.ends_with("<!-- saccade:cpu end -->\nafter\n")) << text;
  EXPECT_EQ(text.find("old"), std::string::npos);
}

TEST_F(Report, CheckFailsWhenTheTableDriftsAndWritesNothing) {
  const std::string check = "--check --readme '" + readme_ + "'";
  EXPECT_EQ(report(check).exit_code, 1);
  EXPECT_EQ(read_file(readme_), kReadme);
  ASSERT_EQ(report("--readme '" + readme_ + "'").exit_code, 0);
  EXPECT_EQ(report(check).exit_code, 0);
  EXPECT_EQ(report("--json " + check).json().at("changed").size(), 0U);
  std::string drifted = read_file(readme_);
  drifted.replace(drifted.find("150"), 3, "151");
  (void)folder_.write("README.md", drifted);
  EXPECT_EQ(report(check).exit_code, 1);
}

TEST_F(Report, NeedsMarkersEachOnce) {
  const std::string without = folder_.write("without.md", "# nothing\n");
  EXPECT_EQ(report("--readme '" + without + "'").exit_code, 2);
  const std::string reversed =
      folder_.write("reversed.md", "<!-- saccade:cpu end --><!-- saccade:cpu begin -->");
  EXPECT_EQ(report("--readme '" + reversed + "'").exit_code, 2);
  const std::string twice = folder_.write("twice.md", std::string(kReadme) + kReadme);
  EXPECT_EQ(report("--readme '" + twice + "'").exit_code, 2);
  EXPECT_EQ(read_file(twice), std::string(kReadme) + kReadme);
}

TEST_F(Report, CheckNeedsSomethingToCompare) {
  EXPECT_EQ(report("--check").exit_code, 2);
}

TEST_F(Report, RefusesWhatIsNotABenchDocument) {
  EXPECT_EQ(run_saccade("report '" + folder_.write("a.json", "{ not json") + "'").exit_code, 2);
  EXPECT_EQ(run_saccade("report '" + folder_.write("b.json", "[]") + "'").exit_code, 2);
  const CommandResult newer =
      run_saccade("report '" + folder_.write("c.json", R"({"schema":"saccade.bench/99"})") + "'");
  EXPECT_EQ(newer.exit_code, 2);
  EXPECT_NE(newer.err.find("saccade.bench/99"), std::string::npos);
  const CommandResult damaged =
      run_saccade("report '" + folder_.write("d.json", R"({"schema":"saccade.bench/1"})") + "'");
  EXPECT_EQ(damaged.exit_code, 2) << damaged.err;
}

TEST_F(Report, DrawsAPictureWhenGnuplotIsHere) {
  const std::string svg = folder_.file("speed.svg");
  const CommandResult result = report("--svg '" + svg + "'");
  if (result.exit_code == 3) GTEST_SKIP() << result.err;
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string text = read_file(svg);
  EXPECT_NE(text.find("<svg"), std::string::npos);
  EXPECT_NE(text.find("h8 l512 d64"), std::string::npos);
}

}  // namespace
}  // namespace saccade
