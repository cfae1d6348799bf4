#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "child_process.h"
#include "profile.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Tool {
  std::string_view name, meaning;
};

constexpr std::array<Tool, 4> kTools = {{
    {"memcheck", "accesses out of bounds or misaligned"},
    {"racecheck", "shared memory that two threads touch with nothing between them"},
    {"synccheck", "barriers that not all threads reach"},
    {"initcheck", "global memory that is read before it is written"},
}};

/// What compute-sanitizer ends with when it found something.
constexpr int kFoundErrors = 99;

enum class Outcome { clean, errors, wrong_results, broken };

struct Finding {
  Tool tool;
  Outcome outcome = Outcome::clean;
  int exit_code = kOk;
  std::string summary;               ///< the tool's own last word
  std::vector<std::string> reports;  ///< the first lines of what it found
};

constexpr std::size_t kReportLines = 12;

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::clean:
      return "clean";
    case Outcome::errors:
      return "ERRORS";
    case Outcome::wrong_results:
      return "WRONG RESULTS";
    case Outcome::broken:
      break;
  }
  return "DID NOT RUN";
}

/// The tool's own lines start with "========= ".
void read_reports(const std::string& text, Finding& finding) {
  constexpr std::string_view kMark = "=========";
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(kMark)) continue;
    std::string said = line.substr(kMark.size());
    if (said.find("SUMMARY:") != std::string::npos) finding.summary = said.substr(said.find("SUMMARY:") + 9);
    const bool about_itself = said.find("COMPUTE-SANITIZER") != std::string::npos ||
                              said.find("SUMMARY:") != std::string::npos ||
                              said.find_first_not_of(' ') == std::string::npos;
    if (!about_itself && finding.reports.size() < kReportLines) finding.reports.push_back(std::move(said));
  }
}

std::vector<std::string> verify_command(const SanitizeOptions& options) {
  std::vector<std::string> command = {own_program(), "verify", "--device", "cuda", "--under-load", "0"};
  std::string names;
  for (const std::string& file : options.cases.files) names += (names.empty() ? "" : ",") + file;
  if (!names.empty()) command.insert(command.end(), {"--cases", names});
  for (const std::string& kernel : options.kernels) command.insert(command.end(), {"--kernel", kernel});
  command.insert(command.end(), options.cases.shapes.begin(), options.cases.shapes.end());
  return command;
}

Finding run_tool(const std::string& sanitizer, const Tool& tool, const SanitizeOptions& options) {
  std::vector<std::string> command = {sanitizer, "--tool", std::string(tool.name), "--error-exitcode",
                                      fmt::format("{}", kFoundErrors)};
  const std::vector<std::string> child = verify_command(options);
  command.insert(command.end(), child.begin(), child.end());
  const ChildResult result = run_child(command);
  Finding finding{tool, Outcome::clean, result.exit_code, {}, {}};
  read_reports(result.out + "\n" + result.err, finding);
  if (result.exit_code == kFoundErrors) {
    finding.outcome = Outcome::errors;
  } else if (result.exit_code == kCheckFailed) {
    finding.outcome = Outcome::wrong_results;
  } else if (result.exit_code != kOk) {
    finding.outcome = Outcome::broken;
  }
  // Without its last word, or on a device that it cannot watch, it has seen nothing.
  const bool watched =
      !finding.summary.empty() && (result.out + result.err).find("Device not supported") == std::string::npos;
  if (finding.outcome == Outcome::clean && !watched) finding.outcome = Outcome::broken;
  if (finding.outcome != Outcome::clean && finding.reports.empty()) {
    finding.reports.push_back(
        fmt::format("exit code {}:\n{}", result.exit_code, last_lines(result.out + result.err, 6)));
  }
  return finding;
}

void print(const Finding& finding) {
  fmt::print("{:<10} {:<14} {}{}\n", finding.tool.name, to_string(finding.outcome), finding.summary,
             finding.outcome == Outcome::clean ? fmt::format("  (no {})", finding.tool.meaning) : "");
  for (const std::string& line : finding.reports) {
    if (finding.outcome != Outcome::clean) fmt::print("    {}\n", line);
  }
  std::fflush(stdout);
}

}  // namespace

int run_sanitize(const SanitizeOptions& options, const Globals& globals) {
  (void)require_gpu();
  const std::string sanitizer = require_program("compute-sanitizer", "it comes with CUDA's toolkit");
  Json results = Json::array();
  bool clean = true;
  ExitCode answer = kOk;
  for (const Tool& tool : kTools) {
    if (options.tool != "all" && options.tool != tool.name) continue;
    const Finding finding = run_tool(sanitizer, tool, options);
    clean = clean && finding.outcome == Outcome::clean;
    if (finding.outcome == Outcome::broken) {
      if (answer == kOk) answer = finding.exit_code == kBadInput ? kBadInput : kMissing;
    } else if (finding.outcome != Outcome::clean) {
      answer = kCheckFailed;
    }
    if (!globals.json) print(finding);
    results.push_back({{"tool", tool.name},
                       {"outcome", to_string(finding.outcome)},
                       {"summary", finding.summary},
                       {"reports", finding.reports}});
  }
  if (globals.json) print_json({{"schema", "saccade.sanitize/1"}, {"clean", clean}, {"tools", results}});
  if (answer == kBadInput || answer == kMissing)
    throw CommandError(answer, "not every tool could do its work; what they said is above");
  return answer;
}

}  // namespace saccade::cli
