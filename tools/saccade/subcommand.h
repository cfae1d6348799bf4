// How a subcommand joins the program. Apart from command.h because CLI11 takes the compiler seconds.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "command.h"

namespace saccade::cli {

/// A subcommand with --json, which sets globals.exit_code to what `body` returns.
template <class Body>
CLI::App* add_command(CLI::App& app, Globals& globals, const std::string& name, const std::string& summary,
                      Body body) {
  CLI::App* command = app.add_subcommand(name, summary);
  command->add_flag("--json", globals.json, "Print one JSON document on stdout and nothing else there");
  command->callback([&globals, body] { globals.exit_code = body(globals); });
  return command;
}

}  // namespace saccade::cli
