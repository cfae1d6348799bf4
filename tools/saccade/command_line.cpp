#include "command_line.h"

#include <CLI/CLI.hpp>
#include <memory>

#include <saccade/run.h>

#include "commands.h"

namespace saccade::cli {
namespace {

constexpr char kFooter[] =
    "Shapes are written like 'b1 h8 l512 d64 f16 causal' (docs/shapes.md); case files lie in cases/.\n"
    "Exit codes: 0 ok; 1 a check failed; 2 bad usage or input; 3 a device or tool is missing; 4 internal "
    "error.";

constexpr char kRunHelp[] = "A run's id or the start of it, 'latest', or a result file";

/// A subcommand with --json, which sets globals.exit_code to what `body` returns.
template <class Body>
CLI::App* add_command(CLI::App& app, Globals& globals, const std::string& name, const std::string& summary,
                      Body body) {
  CLI::App* command = app.add_subcommand(name, summary);
  command->add_flag("--json", globals.json, "Print one JSON document on stdout and nothing else there");
  command->callback([&globals, body] { globals.exit_code = body(); });
  return command;
}

void add_cases_option(CLI::App& command, CaseSelection& selection) {
  command.add_option("--cases", selection.files, "Case files, by name or path, with commas between them")
      ->delimiter(',')
      ->allow_extra_args(false);
}

void add_kernels_option(CLI::App& command, std::vector<std::string>& kernels) {
  command
      .add_option("--kernel", kernels,
                  "Kernels: NAME or 'NAME:key=value ...' (default: all that take the shape)")
      ->allow_extra_args(false);
}

void add_device_option(CLI::App& command, std::string& device) {
  command.add_option("--device", device,
                     "cpu, cuda or cuda:N (default: that of the named kernels, else the best there is)");
}

/// For a command that reads.
void add_store_option(CLI::App& command, StoreChoice& choice) {
  command.add_option("--store", choice.file, "The store's file (default: in the user's data folder)");
}

/// For a command that measures.
void add_recording_options(CLI::App& command, StoreChoice& choice) {
  CLI::Option* file = command.add_option("--store", choice.file,
                                         "Keep the run in this file (default: in the user's data folder)");
  command.add_flag("--no-store", choice.none, "Keep the run nowhere")->excludes(file);
}

void add_main_job(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<MainJobOptions>();
  app.add_flag("--json", globals.json, "Print one JSON document on stdout and nothing else there");
  app.add_option("--out-dir", options->out_dir, "Where the report is written")->capture_default_str();
  app.add_option("--budget", options->budget_seconds, "Seconds of sampling for each shape")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_recording_options(app, options->store);
  app.callback([&app, &globals, options] {
    if (app.get_subcommands().empty()) globals.exit_code = run_main_job(*options, globals);
  });
}

void add_info(CLI::App& app, Globals& globals) {
  add_command(app, globals, "info", "The machine, its devices and the kernels of this build",
              [&globals] { return run_info(globals); });
}

void add_explain(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command =
      add_command(app, globals, "explain", "Which kernel serves a shape, and why no faster one",
                  [options, &globals] { return run_explain(*options, globals); });
  command->add_option("SHAPE", options->cases.shapes, "Shapes, e.g. 'b1 h8 l512 d64 f16 causal'");
  add_cases_option(*command, options->cases);
  command->add_option("--kernel", options->kernel, "Insist on this kernel");
  add_device_option(*command, options->device);
  command->add_option("--config", options->config, "Kernel settings, 'key=value ...'");
  command->add_option("--threads", options->threads, "CPU threads at most (0: all)");
}

void add_verify(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<VerifyCommandOptions>();
  CLI::App* command = add_command(app, globals, "verify", "Judge kernels against the float64 oracle",
                                  [options, &globals] { return run_verify(*options, globals); });
  command->add_option("SHAPE", options->cases.shapes, "Shapes (default: the case file 'small')");
  add_cases_option(*command, options->cases);
  add_kernels_option(*command, options->kernels);
  add_device_option(*command, options->device);
  command->add_option("--seeds", options->seeds, "How many seeds, counted up from --seed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--seed", options->how.seed, "The first seed; data depend on the shape and the seed only")
      ->capture_default_str();
  command->add_option("--max-rows", options->how.max_rows, "Rows compared with the oracle at most (0: all)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--under-load", options->how.runs_under_load,
                   "Further runs, bit for bit the same, while other threads keep every core busy")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--self-test", options->self_test,
                    "Plant known bugs and fail unless every one is caught");
  command->add_option("--fuzz", options->fuzz, "Verify this many random problems and shrink what fails")
      ->check(CLI::PositiveNumber);
}

void add_bench(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<BenchCommandOptions>();
  CLI::App* command =
      add_command(app, globals, "bench", "Time kernels side by side against the machine's ceilings",
                  [options, &globals] { return run_bench(*options, globals); });
  command->add_option("SHAPE", options->cases.shapes, "Shapes (default: the case file 'mission')");
  add_cases_option(*command, options->cases);
  add_kernels_option(*command, options->kernels);
  add_device_option(*command, options->device);
  command->add_option("--config", options->config, "Settings for the named kernels, 'key=value ...'");
  command->add_option("--baseline", options->baseline,
                      "Kernel that the others are compared with (default: the last)");
  command->add_option("--threads", options->bench.threads, "CPU threads (0: all)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--budget", options->bench.budget_seconds, "Seconds of sampling for each shape")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--cold", options->bench.cold, "Empty the caches before every sample");
  command->add_flag("--no-verify", options->no_verify, "Time kernels that were not verified first");
  command
      ->add_option("--verify-rows", options->bench.verify_rows,
                   "Rows compared with the oracle at most (0: all)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--check-bars", options->check_bars, "Exit with 1 when a bar of a case file is not met");
  command->add_option("--seed", options->bench.seed, "Seed of data, order and resampling")
      ->capture_default_str();
  command->add_option("--out", options->out, "Write the results to this JSON file");
  add_recording_options(*command, options->store);
}

void add_profile(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<ProfileOptions>();
  CLI::App* command =
      add_command(app, globals, "profile", "One CUDA kernel from the inside: by Nsight Compute, or emulated",
                  [options, &globals] { return run_profile(*options, globals); });
  command->add_option("SHAPE", options->cases.shapes, "One shape");
  command->add_option("--kernel", options->kernel, "NAME or 'NAME:key=value ...'")->required();
  command->add_flag("--emulate", options->emulate,
                    "Run on the CPU's emulator and model a chip; needs no GPU");
  command->add_option("--chip", options->chip, "With --emulate: l4, a100, h100 or h200 (default)");
  command->add_option("--seed", options->seed, "Seed of the data and of the emulator's order")
      ->capture_default_str();
  command->add_option("--top", options->top, "Source lines or stall reasons to show")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

void add_sanitize(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<SanitizeOptions>();
  CLI::App* command = add_command(app, globals, "sanitize", "Verify CUDA kernels under compute-sanitizer",
                                  [options, &globals] { return run_sanitize(*options, globals); });
  command->add_option("SHAPE", options->cases.shapes, "Shapes (default: the case file 'small')");
  add_cases_option(*command, options->cases);
  add_kernels_option(*command, options->kernels);
  command->add_option("--tool", options->tool, "Which of its tools")
      ->check(CLI::IsMember({"all", "memcheck", "racecheck", "synccheck", "initcheck"}))
      ->capture_default_str();
}

void add_launch(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<LaunchOptions>();
  CLI::App* command =
      add_command(app, globals, "launch", "Internal: call a CUDA kernel, for profilers to watch",
                  [options, &globals] { return run_launch(*options, globals); });
  command->group("");  // not in --help
  command->add_option("SHAPE", options->cases.shapes, "One shape");
  command->add_option("--kernel", options->kernel, "NAME or 'NAME:key=value ...'")->required();
  command->add_option("--times", options->times, "Calls")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of the data")->capture_default_str();
  command->add_flag("--cupti", options->cupti, "Device time of each kernel by CUPTI");
}

void add_report(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command = add_command(app, globals, "report", "Tables and pictures of runs",
                                  [options, &globals] { return run_report(*options, globals); });
  command->add_option("RUN", options->runs, std::string(kRunHelp) + " (default: latest)");
  command->add_option("--readme", options->readme,
                      "Replace the tables between <!-- saccade:NAME begin/end --> here");
  command->add_option("--out", options->out, "Write a Markdown report to this file");
  command->add_option("--svg", options->svg, "Draw the speed of each shape to this file (gnuplot)");
  command->add_option("--html", options->html, "Write one self-contained page with all figures (gnuplot)");
  command->add_flag("--check", options->check, "Write nothing; exit with 1 when something would change");
  command->add_flag("--all-kernels", options->all_kernels, "Show every timed kernel, not only the fastest");
  add_store_option(*command, options->store);
}

void add_history(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<HistoryOptions>();
  CLI::App* command =
      add_command(app, globals, "history", "A shape over all stored runs; without a shape, the runs",
                  [options, &globals] { return run_history(*options, globals); });
  command->add_option("SHAPE", options->shape, "One shape");
  command->add_option("--kernel", options->kernel, "This kernel only, as bench names it");
  command->add_option("--machine", options->machine, "This machine only, as the list of runs names it");
  add_store_option(*command, options->store);
}

void add_compare(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command = add_command(app, globals, "compare", "Two runs, shape by shape, with intervals",
                                  [options, &globals] { return run_compare(*options, globals); });
  command->add_option("BEFORE", options->before, kRunHelp)->required();
  command->add_option("AFTER", options->after, kRunHelp)->required();
  add_store_option(*command, options->store);
}

void add_evidence(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<EvidenceOptions>();
  CLI::App* command = app.add_subcommand("evidence", "Runs between the store and files under evidence/");
  command->require_subcommand(1);
  CLI::App* exporting = add_command(*command, globals, "export", "Write a run of the store to a file",
                                    [options, &globals] { return export_run(*options, globals); });
  exporting->add_option("RUN", options->run, "A run's id, the start of it, or 'latest'")->required();
  exporting->add_option("FILE", options->out, "Default: evidence/<machine>/<run>.json");
  add_store_option(*exporting, options->store);
  CLI::App* importing = add_command(*command, globals, "import", "Add the runs of files to the store",
                                    [options, &globals] { return import_files(*options, globals); });
  importing->add_option("FILE", options->files, "Result files (JSON)")->required();
  add_store_option(*importing, options->store);
}

}  // namespace

int run_command_line(int argc, char** argv, Globals& globals) {
  CLI::App app(
      "Fused attention: verified, timed, explained. Without a subcommand: verifies and times the mission "
      "shapes.",
      "saccade");
  app.footer(kFooter);
  app.set_version_flag("--version", version());
  app.require_subcommand(0, 1);
  for (const auto add : {add_main_job, add_info, add_explain, add_verify, add_bench, add_profile,
                         add_sanitize, add_launch, add_report, add_history, add_compare, add_evidence}) {
    add(app, globals);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kBadInput;
  }
  return globals.exit_code;
}

}  // namespace saccade::cli
