// The command `saccade`.
#include <CLI/CLI.hpp>
#include <exception>
#include <fmt/format.h>
#include <iostream>
#include <nlohmann/json.hpp>

#include <saccade/run.h>

#include "command.h"

namespace saccade::cli {
namespace {

constexpr char kFooter[] =
    "Shapes are written like 'b1 h8 l512 d64 f16 causal' (docs/shapes.md); case files lie in cases/.\n"
    "Exit codes: 0 ok; 1 a check failed; 2 bad usage or input; 3 a device or tool is missing; 4 internal "
    "error.";

ExitCode exit_code(Code code) {
  switch (code) {
    case Code::ok:
      return kOk;
    case Code::invalid_argument:
    case Code::unsupported:
      return kBadInput;
    case Code::device_unavailable:
      return kMissing;
    default:
      return kInternalError;
  }
}

std::string quoted_command_line(int argc, char** argv) {
  std::string line = "saccade";  // not argv[0]: a path says nothing about the measurement
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool plain = !argument.empty() && argument.find_first_of(" \t'\"*?$&|;<>()") == std::string::npos;
    line += plain ? " " + argument : fmt::format(" '{}'", argument);
  }
  return line;
}

int run_program(int argc, char** argv) {
  Globals globals;
  globals.command_line = quoted_command_line(argc, argv);
  CLI::App app(
      "Fused attention: verified, timed, explained. Without a subcommand: verifies and times the mission "
      "shapes.",
      "saccade");
  app.footer(kFooter);
  app.set_version_flag("--version", version());
  app.require_subcommand(0, 1);
  add_main_job(app, globals);
  add_info(app, globals);
  add_explain(app, globals);
  add_verify(app, globals);
  add_bench(app, globals);
  add_report(app, globals);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kBadInput;
  }
  return globals.exit_code;
}

}  // namespace

CommandError::CommandError(const Status& status) : CommandError(exit_code(status.code()), status.message()) {}

void print_json(const nlohmann::ordered_json& document) {
  std::cout << document.dump(1) << '\n';
}

}  // namespace saccade::cli

int main(int argc, char** argv) {
  using namespace saccade::cli;
  try {
    return run_program(argc, argv);
  } catch (const CommandError& error) {
    fmt::print(stderr, "saccade: {}\n", error.what());
    return error.code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "saccade: internal error: {}\n", error.what());
    return kInternalError;
  }
}
