#include "cases.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <optional>
#include <sstream>

#include "command.h"

namespace saccade::cli {
namespace {

namespace fs = std::filesystem;

Result<Problem> read_shape(const std::string& text) {
  Result<Problem> problem = parse_problem(text);
  if (!problem.ok()) return problem;
  if (Status status = validate(problem.value()); !status.ok()) return status;
  return problem;
}

/// "fma >= 70", "read >= 80", "extra <= 8".
std::optional<Bar> read_bar(const std::string& text) {
  std::istringstream words(text);
  std::string name, relation, rest;
  double value = 0;
  if (!(words >> name >> relation >> value) || words >> rest) return std::nullopt;
  if (name == "fma" && relation == ">=") return Bar{Bar::What::fma, value};
  if (name == "read" && relation == ">=") return Bar{Bar::What::read, value};
  if (name == "extra" && relation == "<=") return Bar{Bar::What::extra, value};
  return std::nullopt;
}

std::vector<fs::path> case_folders() {
  std::vector<fs::path> folders;
  if (const char* named = std::getenv("SACCADE_CASES")) folders.emplace_back(named);
  folders.emplace_back("cases");
  folders.emplace_back(SACCADE_SOURCE_CASES);
  folders.emplace_back(SACCADE_INSTALLED_CASES);
  return folders;
}

/// Words of a shape whose quotes were left out, put together again.
std::vector<std::string> whole_shapes(const std::vector<std::string>& arguments) {
  const bool quoted =
      std::ranges::any_of(arguments, [](const auto& a) { return a.find(' ') != std::string::npos; });
  const bool complete = std::ranges::all_of(arguments, [](const auto& a) { return parse_problem(a).ok(); });
  if (quoted || complete) return arguments;
  std::string joined;
  for (const std::string& word : arguments) joined += (joined.empty() ? "" : " ") + word;
  return {joined};
}

}  // namespace

std::string to_string(const Bar& bar) {
  switch (bar.what) {
    case Bar::What::fma:
      return fmt::format("at least {}% of the FMA peak", bar.value);
    case Bar::What::read:
      return fmt::format("at least {}% of the read bandwidth", bar.value);
    case Bar::What::extra:
      break;
  }
  return fmt::format("extra memory at most {} MiB", bar.value);
}

fs::path find_case_file(const std::string& name) {
  std::error_code ignored;
  if (fs::is_regular_file(name, ignored)) return name;
  std::string looked;
  for (const fs::path& folder : case_folders()) {
    const fs::path file = folder / (name + ".txt");
    if (fs::is_regular_file(file, ignored)) return file;
    looked += fmt::format("{}{}", looked.empty() ? "" : ", ", folder.string());
  }
  throw CommandError(kBadInput,
                     fmt::format("there is no case file '{}' here or as {}.txt in {}", name, name, looked));
}

std::vector<Case> load_cases(const fs::path& file) {
  std::ifstream stream(file);
  if (!stream) throw CommandError(kBadInput, fmt::format("case file {} cannot be read", file.string()));
  constexpr std::string_view kBar = "# bar:";
  std::vector<Case> cases;
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const std::string shape = line.substr(0, line.find('#'));
    if (shape.find_first_not_of(" \t\r") == std::string::npos) continue;
    Result<Problem> problem = read_shape(shape);
    if (!problem.ok()) {
      throw CommandError(kBadInput,
                         fmt::format("{}:{}: {}", file.string(), number, problem.status().message()));
    }
    Case& found = cases.emplace_back();
    found.problem = problem.value();
    if (const std::size_t at = line.find(kBar); at != std::string::npos) {
      const std::optional<Bar> bar = read_bar(line.substr(at + kBar.size()));
      if (!bar) {
        throw CommandError(kBadInput,
                           fmt::format("{}:{}: a bar is 'fma >= 70', 'read >= 80' or 'extra <= 8', not '{}'",
                                       file.string(), number, line.substr(at)));
      }
      found.bars.push_back(*bar);
    }
  }
  if (cases.empty()) throw CommandError(kBadInput, fmt::format("case file {} holds no shape", file.string()));
  return cases;
}

std::vector<Case> CaseSelection::load(const std::string& standard) const {
  std::vector<Case> cases;
  for (const std::string& shape : whole_shapes(shapes)) {
    Result<Problem> problem = read_shape(shape);
    if (!problem.ok()) throw CommandError(problem.status());
    cases.push_back({problem.value(), {}});
  }
  std::vector<std::string> names = files;
  if (shapes.empty() && files.empty()) names.push_back(standard);
  for (const std::string& name : names) {
    std::vector<Case> more = load_cases(find_case_file(name));
    cases.insert(cases.end(), more.begin(), more.end());
  }
  return cases;
}

}  // namespace saccade::cli
