// What every command shares: exit codes, the error that carries one, and the options of the program.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>

#include <saccade/status.h>

namespace saccade::cli {

/// The program's answers; --help and docs/cli.md list them.
enum ExitCode : int {
  kOk = 0,
  kCheckFailed = 1,    ///< a verification, a bar or a --check said no
  kBadInput = 2,       ///< wrong usage, shape, file or value
  kMissing = 3,        ///< a device or an outside tool is not there
  kInternalError = 4,  ///< a defect of this program
};

/// Ends the command with a sentence on stderr and an exit code.
class CommandError : public std::runtime_error {
 public:
  CommandError(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  explicit CommandError(const Status& status);

  [[nodiscard]] ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// Options of the program as a whole.
struct Globals {
  bool json = false;         ///< one JSON document on stdout and nothing else there
  std::string command_line;  ///< as typed, for provenance
  int exit_code = kOk;       ///< what the subcommand that ran answers
};

/// Prints the document that --json promises.
void print_json(const nlohmann::ordered_json& document);

}  // namespace saccade::cli
