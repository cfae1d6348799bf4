#include <cctype>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench_document.h"
#include "commands.h"
#include "runs.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;

/// "Intel(R) Xeon(R) Gold 6330 CPU" as a folder: "intel-xeon-gold-6330-cpu".
std::string folder_name(const std::string& machine) {
  std::string name;
  for (std::size_t i = 0; i < machine.size(); ++i) {
    if (machine.compare(i, 3, "(R)") == 0 || machine.compare(i, 3, "(C)") == 0) {
      i += 2;
    } else if (machine.compare(i, 4, "(TM)") == 0) {
      i += 3;
    } else if (std::isalnum(static_cast<unsigned char>(machine[i])) != 0) {
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(machine[i])));
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (name.ends_with('-')) name.pop_back();
  return name.empty() ? "unknown" : name;
}

/// Whether the run was new. The store may hold the run itself, with its samples, or an import of the same
/// file.
bool import_file(store::Store& store, const std::string& file, const store::WholeRun& whole) {
  if (const Result<store::WholeRun> here = store.load(whole.run.id); here.ok()) {
    if (bench_document(here.value()) == bench_document(whole)) return false;
    throw CommandError(kBadInput, fmt::format("{}: the store has another run of the id {}; it was kept", file,
                                              whole.run.id));
  }
  const Result<bool> saved = store.save(whole);
  if (!saved.ok()) throw CommandError(saved.status());
  return saved.value();
}

}  // namespace

int export_run(const EvidenceOptions& options, const Globals& globals) {
  const store::WholeRun whole = find_run(options.run, options.store);
  if (whole.run.finished.empty()) {
    throw CommandError(kBadInput, fmt::format("the run {} did not finish; it is no evidence", whole.run.id));
  }
  const std::string file =
      !options.out.empty() ? options.out
                           : fmt::format("evidence/{}/{}.json", folder_name(whole.run.machine), whole.run.id);
  write_file(file, bench_document(whole).dump(1) + "\n");
  if (globals.json) {
    print_json({{"schema", "saccade.evidence/1"}, {"run", whole.run.id}, {"file", file}});
  } else {
    fmt::print("written: {}\n", file);
  }
  return kOk;
}

int import_files(const EvidenceOptions& options, const Globals& globals) {
  // All files are read before the first is saved, so that a bad one leaves the store as it was.
  std::vector<store::WholeRun> runs;
  for (const std::string& file : options.files)
    runs.push_back(read_document(load_bench_document(file), file));
  store::Store store = options.store.open(store::Access::write);
  Json json = Json::array();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const bool added = import_file(store, options.files[i], runs[i]);
    json.push_back({{"file", options.files[i]}, {"run", runs[i].run.id}, {"added", added}});
    if (!globals.json) {
      fmt::print("{}: run {} {}\n", options.files[i], runs[i].run.id, added ? "added" : "was there already");
    }
  }
  if (globals.json) print_json({{"schema", "saccade.evidence/1"}, {"imported", json}});
  return kOk;
}

}  // namespace saccade::cli
