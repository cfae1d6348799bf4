#include "runs.h"

#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench_document.h"
#include "bench_record.h"
#include "command.h"

namespace saccade::cli {
namespace {

template <class T>
T value_or_end(Result<T> result) {
  if (!result.ok()) throw CommandError(result.status());
  return std::move(result).value();
}

void end_unless_ok(const Status& status) {
  if (!status.ok()) throw CommandError(status);
}

}  // namespace

store::Store StoreChoice::open(store::Access access) const {
  const std::filesystem::path path =
      file.empty() ? value_or_end(store::default_path()) : std::filesystem::path(file);
  return value_or_end(store::Store::open(path, access));
}

Recorder::Recorder(const StoreChoice& choice, const measure::Provenance& provenance, const Bench& bench)
    : whole_{run_record(provenance, bench), {}} {
  whole_.run.id = store::new_run_id();
  if (choice.none) return;
  const auto begin = [&] {
    store_.emplace(choice.open(store::Access::write));
    whole_.run.id = value_or_end(store_->begin_run(whole_.run));
    file_ = choice.file.empty() ? value_or_end(store::default_path()).string() : choice.file;
  };
  if (!choice.file.empty()) {
    begin();
    return;
  }
  try {
    begin();
  } catch (const CommandError& error) {
    store_.reset();
    fmt::print(stderr, "saccade: this run is not stored: {}\n", error.what());
  }
}

void Recorder::add(const ShapeResult& shape) {
  for (store::Measurement& record : shape_records(shape)) {
    if (store_) end_unless_ok(store_->add_measurement(whole_.run.id, record));
    whole_.measurements.push_back(std::move(record));
  }
}

store::WholeRun Recorder::finish() {
  whole_.run.finished = measure::utc_now();
  if (store_) end_unless_ok(store_->finish_run(whole_.run.id, whole_.run.finished, whole_.run.details));
  return whole_;
}

store::WholeRun find_run(const std::string& name, const StoreChoice& choice) {
  if (std::filesystem::exists(name) || name.ends_with(".json")) {
    return read_document(load_bench_document(name), name);
  }
  const store::Store store = choice.open(store::Access::read);
  const store::RunEntry entry = value_or_end(name == "latest" ? store.latest_run() : store.find_run(name));
  return value_or_end(store.load(entry.run.id));
}

}  // namespace saccade::cli
