#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench_document.h"
#include "commands.h"
#include "plot.h"
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

/// README.md with the tables of all documents whose markers it has. A document goes by its file's name, with
/// or without its folder's: evidence/xeon/cpu_bars.json is "cpu_bars" and "xeon/cpu_bars".
std::string updated_readme(const ReportOptions& options, const std::vector<Json>& documents, Rows rows) {
  std::string text = read_text(options.readme);
  bool any = false;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const std::filesystem::path path(options.runs[i]);
    const std::string stem = path.stem().string();
    const std::string content = table_markdown(documents[i], rows) + "\n" + provenance_markdown(documents[i]);
    for (const std::string& name : {stem, path.parent_path().filename().string() + "/" + stem}) {
      if (const auto replaced = replace_between_markers(text, name, content)) {
        text = *replaced;
        any = true;
      }
    }
  }
  if (!any) {
    throw CommandError(
        kBadInput,
        fmt::format("{} has no pair of markers for any of the documents; write <!-- saccade:{} begin "
                    "--> and <!-- saccade:{} end --> where its table belongs",
                    options.readme, std::filesystem::path(options.runs[0]).stem().string(),
                    std::filesystem::path(options.runs[0]).stem().string()));
  }
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
  std::vector<Json> documents;
  for (const std::string& run : options.runs)
    documents.push_back(bench_document(find_run(run, options.store)));

  Json changed = Json::array();
  const auto update = [&](const std::string& file, const std::string& text) {
    const bool same = std::filesystem::exists(file) && read_text(file) == text;
    if (same) return;
    changed.push_back(file);
    if (!options.check) write_file(file, text);
    if (!globals.json) fmt::print("{}: {}\n", options.check ? "would change" : "written", file);
  };
  const std::string whole = whole_report(documents, options.all_kernels ? Rows::all : Rows::fastest);
  if (!options.readme.empty()) {
    update(options.readme,
           updated_readme(options, documents, options.all_kernels ? Rows::all : Rows::fastest));
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
