// What each command can be told, and the commands themselves. How it is told is command_line.cpp's business.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench_shape.h"
#include "cases.h"
#include "command.h"
#include "runs.h"
#include "verify/verify.h"

namespace saccade::cli {

/// Without a subcommand: verify and time the mission shapes, and write a report.
struct MainJobOptions {
  std::string out_dir = "reports";
  double budget_seconds = 1;
  StoreChoice store;
};
[[nodiscard]] int run_main_job(const MainJobOptions& options, const Globals& globals);

/// The machine, its devices and the kernels of this build.
[[nodiscard]] int run_info(const Globals& globals);

/// Which kernel serves a shape, and why no faster one.
struct ExplainOptions {
  CaseSelection cases;
  std::string kernel;
  std::string config;
  std::string device;
  int threads = 0;
};
[[nodiscard]] int run_explain(const ExplainOptions& options, const Globals& globals);

/// Kernels against the float64 oracle.
struct VerifyCommandOptions {
  CaseSelection cases;
  std::vector<std::string> kernels;
  std::string device;
  std::int64_t seeds = 1;
  std::int64_t fuzz = 0;
  bool self_test = false;
  VerifyOptions how{.runs_under_load = 1};
};
[[nodiscard]] int run_verify(const VerifyCommandOptions& options, const Globals& globals);

/// Kernels side by side against the machine's ceilings.
struct BenchCommandOptions {
  CaseSelection cases;
  std::vector<std::string> kernels;
  std::string baseline;
  std::string config;
  std::string device;
  std::string out;
  bool no_verify = false;
  bool check_bars = false;
  StoreChoice store;
  BenchOptions bench;
};
[[nodiscard]] int run_bench(const BenchCommandOptions& options, const Globals& globals);

/// One kernel and shape from the inside.
struct ProfileOptions {
  CaseSelection cases;
  std::string kernel;
  std::string chip;  ///< of the model; empty: the default one
  bool emulate = false;
  std::uint64_t seed = 1;
  std::int64_t top = 5;  ///< source lines and stall reasons shown
};
[[nodiscard]] int run_profile(const ProfileOptions& options, const Globals& globals);

/// CUDA kernels under compute-sanitizer's tools.
struct SanitizeOptions {
  CaseSelection cases;
  std::vector<std::string> kernels;
  std::string tool = "all";
};
[[nodiscard]] int run_sanitize(const SanitizeOptions& options, const Globals& globals);

/// Nothing but calls of one CUDA kernel: what the profilers watch. Not in --help.
struct LaunchOptions {
  CaseSelection cases;
  std::string kernel;
  std::int64_t times = 2;
  std::uint64_t seed = 1;
  bool cupti = false;  ///< report each kernel's device time by CUPTI
};
[[nodiscard]] int run_launch(const LaunchOptions& options, const Globals& globals);

/// Tables and pictures of runs.
struct ReportOptions {
  std::vector<std::string> runs;  ///< files, ids or "latest"; empty: the latest run of the store
  std::string readme;
  std::string out;
  std::string svg;
  std::string html;
  bool check = false;
  bool all_kernels = false;
  StoreChoice store;
};
[[nodiscard]] int run_report(const ReportOptions& options, const Globals& globals);

/// A shape over all stored runs; without a shape, the runs.
struct HistoryOptions {
  std::vector<std::string> shape;
  std::string kernel;
  std::string machine;
  StoreChoice store;
};
[[nodiscard]] int run_history(const HistoryOptions& options, const Globals& globals);

/// Two runs, shape by shape.
struct CompareOptions {
  std::string before, after;
  StoreChoice store;
};
[[nodiscard]] int run_compare(const CompareOptions& options, const Globals& globals);

/// Runs between the store and files.
struct EvidenceOptions {
  std::string run;
  std::string out;
  std::vector<std::string> files;
  StoreChoice store;
};
[[nodiscard]] int export_run(const EvidenceOptions& options, const Globals& globals);
[[nodiscard]] int import_files(const EvidenceOptions& options, const Globals& globals);

}  // namespace saccade::cli
