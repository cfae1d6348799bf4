#include "store/store.h"

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <random>
#include <unistd.h>
#include <utility>

#include "store/rows.h"
#include "store/schema.h"

namespace saccade::store {
namespace {

namespace fs = std::filesystem;

/// SQLite takes a file of a few bytes for an empty database and would overwrite it. A journal beside the file
/// means that its first page may be half written, which SQLite then puts right.
bool is_something_else(const fs::path& file) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(file, error);
  if (error || size == 0 || fs::exists(file.string() + "-journal", error)) return false;
  constexpr std::string_view kMagic("SQLite format 3\0", 16);
  std::string start(kMagic.size(), ' ');
  std::ifstream stream(file, std::ios::binary);
  // What cannot be read is left to SQLite to name.
  return stream &&
         (!stream.read(start.data(), static_cast<std::streamsize>(start.size())) || start != kMagic);
}

/// Says what SQLite would leave vague, and prepares the folder.
Status check_place(const fs::path& file, Access access) {
  std::error_code error;
  if (fs::is_directory(file, error)) {
    return {Code::invalid_argument, file.string() + " is a folder, not a store"};
  }
  if (is_something_else(file)) {
    return {Code::invalid_argument, file.string() + " is not a store: it is no SQLite database"};
  }
  if (access == Access::read) {
    if (fs::exists(file, error)) return {};
    const std::string why = error ? error.message() : "nothing has been stored there yet";
    return {Code::invalid_argument, fmt::format("there is no store {}: {}", file.string(), why)};
  }
  fs::create_directories(file.parent_path(), error);
  const std::string folder = file.parent_path().string();
  if (!error && !fs::exists(file, error) && faccessat(AT_FDCWD, folder.c_str(), W_OK, AT_EACCESS) != 0) {
    return {Code::invalid_argument,
            fmt::format("the store {} cannot be created: its folder is read-only", file.string())};
  }
  if (!error) return {};
  return {Code::invalid_argument,
          fmt::format("the folder {} cannot be created: {}", folder, error.message())};
}

}  // namespace

std::string new_run_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

Result<fs::path> default_path() {
  const fs::path inside = fs::path("saccade") / "store.db";
  // The XDG specification asks to ignore relative paths.
  if (const char* data = std::getenv("XDG_DATA_HOME"); data != nullptr && fs::path(data).is_absolute()) {
    return fs::path(data) / inside;
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && fs::path(home).is_absolute()) {
    return fs::path(home) / ".local" / "share" / inside;
  }
  return Status(Code::invalid_argument,
                "the environment has neither XDG_DATA_HOME nor HOME, so that the store's file must be named");
}

Result<Store> Store::open(const fs::path& file, Access access, std::chrono::milliseconds patience) {
  if (file.empty()) return Status(Code::invalid_argument, "the store's file name is empty");
  std::error_code error;
  // Absolute, so that SQLite's special names such as ":memory:" are files like all others.
  const fs::path absolute = fs::absolute(file, error);
  if (error) return Status(Code::invalid_argument, file.string() + " is no path: " + error.message());
  Status place = check_place(absolute, access);
  if (!place.ok()) return place;
  Result<Database> database = Database::open(absolute, access, patience);
  if (!database.ok()) return database.status();
  Status prepared =
      access == Access::read ? prepare_for_reading(database.value()) : prepare_for_writing(database.value());
  if (!prepared.ok()) return prepared;
  return Store(std::move(database).value());
}

Result<std::string> Store::begin_run(const Run& run) {
  Run row = run;
  if (row.id.empty()) row.id = new_run_id();
  row.finished.clear();
  Transaction writing(database_, Access::write);
  Status status = writing.begun();
  if (status.ok()) status = insert_run(database_, row);
  if (status.ok()) status = writing.commit();
  if (!status.ok()) return status;
  return row.id;
}

Status Store::add_measurement(const std::string& run_id, const Measurement& measurement) {
  Status valid = validate(measurement);
  if (!valid.ok()) return valid;
  Transaction writing(database_, Access::write);
  if (!writing.begun().ok()) return writing.begun();
  Status open = check_open(run_id);
  if (!open.ok()) return open;
  Status inserted = insert_measurement(database_, run_id, measurement);
  return inserted.ok() ? writing.commit() : inserted;
}

Status Store::finish_run(const std::string& run_id, const std::string& finished, const Json& details) {
  if (finished.empty()) return {Code::invalid_argument, "a run that finishes has no time"};
  Transaction writing(database_, Access::write);
  if (!writing.begun().ok()) return writing.begun();
  Status open = check_open(run_id);
  if (!open.ok()) return open;
  Status updated = database_.prepare("UPDATE runs SET finished = ?, details = ? WHERE id = ?")
                       .bind(finished, to_text(details), run_id)
                       .run();
  return updated.ok() ? writing.commit() : updated;
}

Status Store::check_open(const std::string& run_id) const {
  Statement statement = database_.prepare("SELECT finished FROM runs WHERE id = ?");
  statement.bind(run_id);
  const bool found = statement.step();
  if (!statement.status().ok()) return statement.status();
  if (found && statement.text().empty()) return {};
  return {Code::invalid_argument,
          fmt::format("the run {} {} the store {}", run_id,
                      found ? "is finished and stays as it is in" : "is not in", database_.file().string())};
}

Result<std::vector<RunEntry>> Store::select_runs(std::string_view tail, std::string_view parameter) const {
  Statement statement = database_.prepare(
      fmt::format("SELECT {}, (SELECT count(*) FROM measurements WHERE run = runs.number) FROM runs {}",
                  kRunColumns, tail));
  if (!parameter.empty()) statement.bind(parameter);
  std::vector<RunEntry> entries;
  while (statement.step()) {
    Run run = read_run(statement);
    entries.push_back({std::move(run), statement.integer()});
  }
  if (!statement.status().ok()) return statement.status();
  return entries;
}

Result<std::vector<RunEntry>> Store::runs() const {
  return select_runs("ORDER BY started, number", {});
}

Result<RunEntry> Store::latest_run() const {
  Result<std::vector<RunEntry>> latest = select_runs("ORDER BY started DESC, number DESC LIMIT 1", {});
  if (!latest.ok()) return latest.status();
  if (latest->empty()) {
    return Status(Code::invalid_argument, fmt::format("the store {} has no runs", database_.file().string()));
  }
  return std::move(latest->front());
}

Result<RunEntry> Store::find_run(std::string_view id_or_prefix) const {
  if (id_or_prefix.empty()) return Status(Code::invalid_argument, "the run's id is empty");
  // Not LIKE or GLOB, which give some characters a meaning.
  Result<std::vector<RunEntry>> found =
      select_runs("WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id", id_or_prefix);
  if (!found.ok()) return found.status();
  if (found->empty()) {
    return Status(Code::invalid_argument,
                  fmt::format("no run in the store {} has an id that starts with '{}'",
                              database_.file().string(), id_or_prefix));
  }
  // In this order an exact match, which another id may continue, comes first.
  if (found->size() == 1 || found->front().run.id == id_or_prefix) return std::move(found->front());
  constexpr std::size_t kShown = 5;
  std::vector<std::string_view> ids;
  for (const RunEntry& entry : std::span(found.value()).first(std::min(kShown, found->size()))) {
    ids.push_back(entry.run.id);
  }
  return Status(Code::invalid_argument,
                fmt::format("{} runs have an id that starts with '{}': {}{}", found->size(), id_or_prefix,
                            fmt::join(ids, ", "), found->size() > kShown ? ", ..." : ""));
}

Result<std::vector<Measurement>> Store::measurements(const std::string& run_id) const {
  Statement statement = database_.prepare(
      fmt::format("SELECT {} FROM measurements JOIN runs ON runs.number = measurements.run WHERE runs.id = ? "
                  "ORDER BY measurements.number",
                  kMeasurementColumns));
  statement.bind(run_id);
  std::vector<Measurement> measurements;
  while (statement.step()) measurements.push_back(read_measurement(statement));
  if (!statement.status().ok()) return statement.status();
  return measurements;
}

Result<std::vector<HistoryEntry>> Store::history(const HistoryQuery& query) const {
  Statement statement = database_.prepare(
      fmt::format("SELECT {}, {} FROM measurements JOIN runs ON runs.number = measurements.run "
                  "WHERE shape = ?1 AND (?2 = '' OR kernel = ?2) AND (?3 = '' OR machine = ?3) "
                  "ORDER BY runs.started, runs.number, measurements.number",
                  kRunColumns, kMeasurementColumns));
  statement.bind(query.shape, query.kernel, query.machine);
  std::vector<HistoryEntry> entries;
  while (statement.step()) {
    Run run = read_run(statement);
    entries.push_back({std::move(run), read_measurement(statement)});
  }
  if (!statement.status().ok()) return statement.status();
  return entries;
}

Result<WholeRun> Store::load(const std::string& run_id) const {
  Transaction reading(database_, Access::read);
  if (!reading.begun().ok()) return reading.begun();
  Result<std::vector<RunEntry>> found = select_runs("WHERE id = ?", run_id);
  if (!found.ok()) return found.status();
  if (found->empty()) {
    return Status(Code::invalid_argument,
                  fmt::format("the run {} is not in the store {}", run_id, database_.file().string()));
  }
  Result<std::vector<Measurement>> all = measurements(run_id);
  if (!all.ok()) return all.status();
  return WholeRun{std::move(found->front().run), std::move(all).value()};
}

Result<bool> Store::save(const WholeRun& whole) {
  if (whole.run.id.empty()) return Status(Code::invalid_argument, "a run to be saved has no id");
  for (const Measurement& measurement : whole.measurements) {
    Status valid = validate(measurement);
    if (!valid.ok()) return valid;
  }
  Transaction writing(database_, Access::write);
  if (!writing.begun().ok()) return writing.begun();
  Result<std::vector<RunEntry>> found = select_runs("WHERE id = ?", whole.run.id);
  if (!found.ok()) return found.status();
  if (!found->empty()) {
    const Result<std::vector<Measurement>> here = measurements(whole.run.id);
    if (!here.ok()) return here.status();
    const auto same_measurement = [](const Measurement& a, const Measurement& b) { return same(a, b); };
    if (same(found->front().run, whole.run) &&
        std::ranges::equal(here.value(), whole.measurements, same_measurement)) {
      return false;
    }
    return Status(Code::invalid_argument,
                  fmt::format("the store {} has another run of the id {}; it was kept",
                              database_.file().string(), whole.run.id));
  }
  Status saved = insert_run(database_, whole.run);
  for (const Measurement& measurement : whole.measurements) {
    if (saved.ok()) saved = insert_measurement(database_, whole.run.id, measurement);
  }
  if (saved.ok()) saved = writing.commit();
  if (!saved.ok()) return saved;
  return true;
}

Status Store::check() const {
  return check_integrity(database_);
}

}  // namespace saccade::store
