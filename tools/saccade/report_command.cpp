#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "bench_document.h"
#include "commands.h"
#include "plot.h"
#include "race_report.h"
#include "report_html.h"
#include "report_text.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string read_text(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw CommandError(kBadInput, fmt::format("{} cannot be read", file));
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// The text with `content` between every pair of markers that goes by the file's name, with or without its
/// folder's: evidence/xeon/cpu_bars.json is "cpu_bars" and "xeon/cpu_bars". Nothing when it has no such
/// markers.
std::optional<std::string> with_table(const std::string& text, const std::string& file,
                                      const std::string& content) {
  const std::filesystem::path path(file);
  const std::string stem = path.stem().string();
  std::optional<std::string> updated;
  for (const std::string& name : {stem, path.parent_path().filename().string() + "/" + stem}) {
    if (auto replaced = replace_between_markers(updated.value_or(text), name, content))
      updated = std::move(replaced);
  }
  return updated;
}

[[noreturn]] void fail_without_markers(const ReportOptions& options) {
  const std::string name = std::filesystem::path(options.runs[0]).stem().string();
  throw CommandError(
      kBadInput,
      fmt::format("{} has no pair of markers for any of the documents; write <!-- saccade:{} begin "
                  "--> and <!-- saccade:{} end --> where its table belongs",
                  options.readme, name, name));
}

/// README.md with the tables of all documents whose markers it has.
std::string updated_readme(const ReportOptions& options, const std::vector<Json>& documents, Rows rows) {
  std::string text = read_text(options.readme);
  bool any = false;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const std::string content = table_markdown(documents[i], rows) + "\n" + provenance_markdown(documents[i]);
    if (auto updated = with_table(text, options.runs[i], content)) {
      text = *std::move(updated);
      any = true;
    }
  }
  if (!any) fail_without_markers(options);
  return text;
}

std::string whole_report(const std::vector<Json>& documents, Rows rows) {
  std::string text = "# Saccade: measured results\n";
  for (const Json& document : documents) {
    text += "\n" + provenance_markdown(document) + "\n" + table_markdown(document, rows);
    text += fmt::format("\n`{}`\n", document.at("provenance").at("command_line").get<std::string>());
  }
  return text;
}

}  // namespace

int run_report(const ReportOptions& given, const Globals& globals) {
  ReportOptions options = given;
  if (options.runs.empty()) options.runs = {"latest"};
  if (options.check && options.readme.empty() && options.out.empty()) {
    throw CommandError(kBadInput, "--check needs --readme or --out: what should be compared?");
  }
  const std::optional<Json> race = options.runs.size() == 1 ? read_race(options.runs[0]) : std::nullopt;
  if (race && (!options.svg.empty() || !options.html.empty())) {
    throw CommandError(kBadInput, "a race has a table only: --svg and --html are for runs of bench");
  }
  std::vector<Json> documents;
  if (!race) {
    for (const std::string& run : options.runs)
      documents.push_back(bench_document(find_run(run, options.store)));
  }

  Json changed = Json::array();
  const auto update = [&](const std::string& file, const std::string& text) {
    const bool same = std::filesystem::exists(file) && read_text(file) == text;
    if (same) return;
    changed.push_back(file);
    if (!options.check) write_file(file, text);
    if (!globals.json) fmt::print("{}: {}\n", options.check ? "would change" : "written", file);
  };
  const Rows rows = options.all_kernels ? Rows::all : Rows::fastest;
  const std::string whole = race ? race_markdown(*race) : whole_report(documents, rows);
  if (!options.readme.empty() && race) {
    const auto updated = with_table(read_text(options.readme), options.runs[0], whole);
    if (!updated) fail_without_markers(options);
    update(options.readme, *updated);
  } else if (!options.readme.empty()) {
    update(options.readme, updated_readme(options, documents, rows));
  }
  if (!options.out.empty()) update(options.out, whole);
  // gnuplot's next version may draw the same data otherwise, so --check leaves pictures alone.
  if (!options.svg.empty() && !options.check) {
    const Figure figure = speed_figure(documents, Paper::white);
    if (figure.svgs.empty()) throw CommandError(kBadInput, "--svg: " + figure.left_out);
    update(options.svg, figure.svgs.front());
  }
  if (!options.html.empty() && !options.check) update(options.html, html_report(documents));
  const bool to_stdout =
      options.readme.empty() && options.out.empty() && options.svg.empty() && options.html.empty();
  if (globals.json) {
    Json document = {{"schema", "saccade.report/1"}, {"changed", changed}};
    if (to_stdout) document["markdown"] = whole;
    print_json(document);
  } else if (to_stdout) {
    fmt::print("{}", whole);
  }
  return options.check && !changed.empty() ? kCheckFailed : kOk;
}

}  // namespace saccade::cli
