// Shapes from the command line and from case files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <saccade/problem.h>

namespace saccade::cli {

/// A mark that a case file sets for the kernel the planner chooses: "# bar: fma >= 70".
struct Bar {
  enum class What {
    fma,    ///< percent of the FMA peak, at least
    read,   ///< percent of the read bandwidth, at least
    extra,  ///< MiB of memory beyond the caller's tensors, at most
  };
  What what = What::fma;
  double value = 0;
};
[[nodiscard]] std::string to_string(const Bar& bar);

/// One problem to work on.
struct Case {
  Problem problem;
  std::vector<Bar> bars;
};

/// A case file by path, or by name ("mission") in $SACCADE_CASES, ./cases, the source's or the installed
/// folder.
[[nodiscard]] std::filesystem::path find_case_file(const std::string& name);

/// Reads one shape a line; '#' starts a comment. An error names the file and the line.
[[nodiscard]] std::vector<Case> load_cases(const std::filesystem::path& file);

/// What the user named on the command line.
struct CaseSelection {
  std::vector<std::string> shapes;
  std::vector<std::string> files;

  /// All cases of the shapes and the files, or of the file `standard` when neither is given. Every problem is
  /// valid. Several words that are no shape each for itself make one shape together, so quotes may be left
  /// out.
  [[nodiscard]] std::vector<Case> load(const std::string& standard) const;
};

}  // namespace saccade::cli
