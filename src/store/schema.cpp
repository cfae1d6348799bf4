#include "store/schema.h"

#include <array>
#include <chrono>
#include <fmt/format.h>
#include <thread>
#include <utility>

namespace saccade::store {
namespace {

/// "Sccd" in ASCII: tells a store from the SQLite databases of other programs.
constexpr std::int64_t kApplicationId = 0x53636364;

/// Step n leads from version n to version n + 1; an empty file has version 0. Steps that were released never
/// change: a new version is a new step at the end.
constexpr std::array kSteps = {
    R"sql(
CREATE TABLE runs (
  number        INTEGER PRIMARY KEY,
  id            TEXT NOT NULL UNIQUE,
  started       TEXT NOT NULL,     -- UTC, ISO 8601
  finished      TEXT NOT NULL,     -- likewise; empty: at work, or ended early
  source_commit TEXT NOT NULL,
  dirty         INTEGER NOT NULL,
  seed          INTEGER NOT NULL,  -- the bits of an unsigned number
  command_line  TEXT NOT NULL,
  machine       TEXT NOT NULL,     -- model of the CPU or GPU
  provenance    TEXT NOT NULL,     -- JSON
  details       TEXT NOT NULL      -- JSON
) STRICT;
CREATE TABLE measurements (
  number           INTEGER PRIMARY KEY,
  run              INTEGER NOT NULL REFERENCES runs (number),
  shape            TEXT NOT NULL,
  kernel           TEXT NOT NULL,
  config           TEXT NOT NULL,
  threads          INTEGER NOT NULL,
  caches           TEXT NOT NULL CHECK (caches IN ('warm', 'cold')),
  timer            TEXT NOT NULL CHECK (timer IN ('host', 'device')),
  not_timed        TEXT NOT NULL,     -- why there are no times
  verified         INTEGER,           -- NULL: not verified
  flops            REAL NOT NULL,
  bytes            REAL NOT NULL,
  flops_ceiling    REAL NOT NULL,     -- per second
  bytes_ceiling    REAL NOT NULL,     -- per second
  calls_per_sample INTEGER NOT NULL,
  converged        INTEGER NOT NULL,
  sample_count     INTEGER NOT NULL,
  median           REAL NOT NULL,     -- seconds per call, as all that follow
  median_low       REAL NOT NULL,
  median_high      REAL NOT NULL,
  minimum          REAL NOT NULL,
  p95              REAL NOT NULL,
  details          TEXT NOT NULL,     -- JSON
  samples          BLOB NOT NULL      -- little-endian doubles; last, so that no other column waits behind it
) STRICT;
CREATE INDEX measurements_of_a_run ON measurements (run);
CREATE INDEX measurements_of_a_shape ON measurements (shape, kernel);
)sql",
};

static_assert(kSteps.size() == kSchemaVersion);

struct Identity {
  std::int64_t application = 0;
  std::int64_t version = 0;
  std::int64_t tables = 0;

  [[nodiscard]] bool is_empty() const { return application == 0 && version == 0 && tables == 0; }
};

Status read_number(const Database& database, const char* sql, std::int64_t& number) {
  Statement statement = database.prepare(sql);
  if (statement.step()) number = statement.integer();
  return statement.status();
}

/// Reads the identity and judges it. Call it inside a transaction: another process may be creating the store.
Status identify(const Database& database, Identity& identity) {
  for (const auto& [sql, number] : {std::pair{"PRAGMA application_id", &identity.application},
                                    {"PRAGMA user_version", &identity.version},
                                    {"SELECT count(*) FROM sqlite_schema", &identity.tables}}) {
    Status read = read_number(database, sql, *number);
    if (!read.ok()) return read;
  }
  if (identity.is_empty()) return {};
  if (identity.application != kApplicationId) {
    return {Code::invalid_argument,
            database.file().string() + " is an SQLite database of another program; it was left as it is"};
  }
  if (identity.version > kSchemaVersion) {
    return {
        Code::unsupported,
        fmt::format("the store {} has schema version {} and this program knows version {} at most; a newer "
                    "Saccade wrote it, and it was left as it is",
                    database.file().string(), identity.version, kSchemaVersion)};
  }
  return {};
}

Result<Identity> identify(const Database& database) {
  Transaction reading(database, Access::read);
  if (!reading.begun().ok()) return reading.begun();
  Identity identity;
  Status judged = identify(database, identity);
  if (!judged.ok()) return judged;
  return identity;
}

/// The first complaint of SQLite's own check, which answers "ok" when there is none.
Status first_complaint(const Database& database, const char* sql) {
  Statement statement = database.prepare(sql);
  const std::string answer = statement.step() ? statement.text() : "no answer";
  if (!statement.status().ok()) return statement.status();
  return answer == "ok" ? Status() : database.damaged(answer);
}

/// Readers and one writer work side by side in a write-ahead log. Where the file system does not allow it,
/// SQLite stays with its rollback journal, which keeps the same promises with more waiting.
Status use_write_ahead_log(const Database& database) {
  const auto deadline = std::chrono::steady_clock::now() + database.patience();
  for (;;) {
    Status set = database.execute("PRAGMA journal_mode = WAL");
    if (set.ok() || !database.was_locked_out() || std::chrono::steady_clock::now() >= deadline) return set;
    // Two processes that turn a new file into a store at once: this switch does not wait by itself.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

Status bring_up_to_date(const Database& database) {
  Transaction writing(database, Access::write);
  if (!writing.begun().ok()) return writing.begun();
  Identity identity;  // again: another process may have been first
  Status judged = identify(database, identity);
  if (!judged.ok()) return judged;
  for (auto step = static_cast<std::size_t>(identity.version); step < kSteps.size(); ++step) {
    Status done = database.execute(kSteps[step]);
    if (!done.ok()) return done;
  }
  Status marked = database.execute(
      fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", kApplicationId, kSchemaVersion));
  return marked.ok() ? writing.commit() : marked;
}

}  // namespace

Status prepare_for_reading(const Database& database) {
  const Result<Identity> identity = identify(database);
  if (!identity.ok()) return identity.status();
  if (identity->version == kSchemaVersion) return {};
  return {
      Code::invalid_argument,
      fmt::format("the store {} has schema version {} and this program reads version {}; the next command "
                  "that stores something brings it up to date",
                  database.file().string(), identity->version, kSchemaVersion)};
}

Status prepare_for_writing(const Database& database) {
  const Result<Identity> identity = identify(database);
  if (!identity.ok()) return identity.status();
  if (!identity->is_empty()) {
    // Writing to a damaged file could cost what is still readable in it.
    Status sound = first_complaint(database, "PRAGMA quick_check(1)");
    if (!sound.ok()) return sound;
  }
  Status set = use_write_ahead_log(database);
  // FULL: a measurement survives a power cut too, for one fsync where measuring took seconds.
  if (set.ok()) set = database.execute("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON");
  if (!set.ok() || identity->version == kSchemaVersion) return set;
  return bring_up_to_date(database);
}

Status check_integrity(const Database& database) {
  return first_complaint(database, "PRAGMA integrity_check(1)");
}

}  // namespace saccade::store
