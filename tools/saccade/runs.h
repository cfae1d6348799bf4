// Runs in the store and in files: written while they happen, found again by id, prefix or file name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench_shape.h"
#include "measure/provenance.h"
#include "store/store.h"

namespace saccade::cli {

/// Which store a command means.
struct StoreChoice {
  std::string file;  ///< empty: the user's own
  bool none = false;

  /// Opens it; ends the command with a sentence when that fails.
  [[nodiscard]] store::Store open(store::Access access) const;
};

/// Writes a run down while it happens: a shape is on disk when add() returns. A store that was named must
/// work; without the user's own store the run goes on, after a warning.
class Recorder {
 public:
  Recorder(const StoreChoice& choice, const measure::Provenance& provenance, const Bench& bench);

  void add(const ShapeResult& shape);
  /// Ends the run and returns it whole.
  [[nodiscard]] store::WholeRun finish();
  /// Where it is kept, for people; empty: nowhere.
  [[nodiscard]] const std::string& file() const { return file_; }

 private:
  std::optional<store::Store> store_;
  std::string file_;
  store::WholeRun whole_;
};

/// The run that `name` means: a document when it is a file, else a run of the store, by its id, the start of
/// it, or "latest".
[[nodiscard]] store::WholeRun find_run(const std::string& name, const StoreChoice& choice);

}  // namespace saccade::cli
