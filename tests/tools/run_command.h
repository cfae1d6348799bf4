// Running the built command and looking at what it did.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "support/temporary_folder.h"

namespace saccade {

struct CommandResult {
  int exit_code = -1;
  std::string out;
  std::string err;

  /// stdout as JSON; a discarded value when it is not exactly one document.
  [[nodiscard]] nlohmann::json json() const { return nlohmann::json::parse(out, nullptr, false); }
};

/// Runs `saccade ARGUMENTS` through the shell, with a user's data folder of its own that is gone afterwards.
/// `environment` is more assignments, in the shell's words.
[[nodiscard]] CommandResult run_saccade(const std::string& arguments, const std::string& environment = "");

}  // namespace saccade
