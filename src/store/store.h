// Benchmark runs on disk: written measurement by measurement, asked for by run or by shape.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <saccade/status.h>

#include "store/database.h"
#include "store/records.h"

namespace saccade::store {

/// Where runs are kept unless the user says otherwise: in the user's data folder ($XDG_DATA_HOME or
/// ~/.local/share). Fails where the environment names neither.
[[nodiscard]] Result<std::filesystem::path> default_path();

/// An id for a new run: random, so that runs of several processes and machines can live in one store.
[[nodiscard]] std::string new_run_id();

/// Which measurements. An empty kernel or machine stands for all of them.
struct HistoryQuery {
  std::string shape{};
  std::string kernel{};
  std::string machine{};
};

/// One file. Every error is one sentence that names it; no error changes what the file holds. Several
/// processes may read and write at once. A Store is for one thread at a time and not for use across a fork.
class Store {
 public:
  /// How long to wait for other processes before a call fails as locked.
  static constexpr std::chrono::milliseconds kPatience{10'000};

  /// For reading the file must be there; for writing it and its folders are created.
  [[nodiscard]] static Result<Store> open(const std::filesystem::path& file, Access access,
                                          std::chrono::milliseconds patience = kPatience);

  /// Writes the row of a run that begins and returns its id: `run.id`, or a new one where that is empty.
  /// `run.finished` is not looked at.
  [[nodiscard]] Result<std::string> begin_run(const Run& run);
  /// Adds a measurement to a run that was begun and not finished. It is safe on disk when this returns.
  [[nodiscard]] Status add_measurement(const std::string& run_id, const Measurement& measurement);
  /// Marks the run as complete at `finished` (UTC, ISO 8601). `details` replaces what begin_run was given:
  /// some of it, such as the best ceiling, is only known at the end.
  [[nodiscard]] Status finish_run(const std::string& run_id, const std::string& finished,
                                  const Json& details);

  /// All runs, in time order.
  [[nodiscard]] Result<std::vector<RunEntry>> runs() const;
  [[nodiscard]] Result<RunEntry> latest_run() const;
  /// The run with this id, or the only one whose id starts so.
  [[nodiscard]] Result<RunEntry> find_run(std::string_view id_or_prefix) const;
  /// In the order in which they were added; empty for an unknown run.
  [[nodiscard]] Result<std::vector<Measurement>> measurements(const std::string& run_id) const;
  /// The measurements of a shape over all runs, in time order.
  [[nodiscard]] Result<std::vector<HistoryEntry>> history(const HistoryQuery& query) const;

  /// A run with its measurements, as of one moment, by its full id.
  [[nodiscard]] Result<WholeRun> load(const std::string& run_id) const;
  /// Adds a run from elsewhere with its id, whole or not at all. False when the same run is here already;
  /// another run of that id is an error.
  [[nodiscard]] Result<bool> save(const WholeRun& whole);

  /// SQLite's full integrity check.
  [[nodiscard]] Status check() const;

 private:
  explicit Store(Database database) : database_(std::move(database)) {}
  [[nodiscard]] Result<std::vector<RunEntry>> select_runs(std::string_view tail,
                                                          std::string_view parameter) const;
  /// Whether the run takes measurements. Call it inside the transaction that adds them.
  [[nodiscard]] Status check_open(const std::string& run_id) const;

  Database database_;
};

}  // namespace saccade::store
