// The command `saccade`.
#include <exception>
#include <filesystem>
#include <fmt/format.h>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command_line.h"

namespace saccade::cli {
namespace {

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

/// Of absolute paths the file's name alone, and not argv[0]: folders say nothing about the measurement.
std::string quoted_command_line(int argc, char** argv) {
  std::string line = "saccade";
  for (int i = 1; i < argc; ++i) {
    const std::filesystem::path given = argv[i];
    const std::string argument = given.is_absolute() ? given.filename().string() : argv[i];
    const bool plain = !argument.empty() && argument.find_first_of(" \t'\"*?$&|;<>()") == std::string::npos;
    line += plain ? " " + argument : fmt::format(" '{}'", argument);
  }
  return line;
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
    Globals globals;
    globals.command_line = quoted_command_line(argc, argv);
    return run_command_line(argc, argv, globals);
  } catch (const CommandError& error) {
    fmt::print(stderr, "saccade: {}\n", error.what());
    return error.code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "saccade: internal error: {}\n", error.what());
    return kInternalError;
  }
}
