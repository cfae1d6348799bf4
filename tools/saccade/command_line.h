// From arguments to a command: the only code that sees CLI11, which takes the compiler seconds.
#pragma once

#include "command.h"

namespace saccade::cli {

/// Parses, runs what was asked for, and returns the exit code. Commands end early by CommandError.
[[nodiscard]] int run_command_line(int argc, char** argv, Globals& globals);

}  // namespace saccade::cli
