// Running other programs and keeping what they say.
#pragma once

#include <string>
#include <vector>

namespace saccade::cli {

/// Where a program lies: in PATH, or where CUDA's toolkit is usually installed. Empty when nowhere.
[[nodiscard]] std::string find_program(const std::string& name);

/// The file of this very program.
[[nodiscard]] std::string own_program();

struct ChildResult {
  int exit_code = -1;  ///< 128 + the signal's number when one ended it
  std::string out;
  std::string err;
};

/// Runs a program (by its file) to its end, in the C locale, without input.
[[nodiscard]] ChildResult run_child(const std::vector<std::string>& arguments);

/// The last few lines that are not empty, each after "  ".
[[nodiscard]] std::string last_lines(const std::string& text, std::size_t count);

}  // namespace saccade::cli
