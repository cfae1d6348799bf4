// Records as rows and back: the one place that knows the order of the columns.
#pragma once

#include <string>

#include "store/database.h"
#include "store/records.h"

namespace saccade::store {

/// As it is stored. Bytes that are not UTF-8, which a command line may hold, become U+FFFD.
[[nodiscard]] std::string to_text(const Json& json);

/// All columns of a run, qualified, in the order in which read_run takes them.
inline constexpr char kRunColumns[] =
    "runs.id, runs.started, runs.finished, runs.source_commit, runs.dirty, runs.seed, runs.command_line, "
    "runs.machine, runs.provenance, runs.details";
[[nodiscard]] Status insert_run(const Database& database, const Run& run);
[[nodiscard]] Run read_run(Statement& row);

/// All columns of a measurement apart from its run, likewise.
inline constexpr char kMeasurementColumns[] =
    "shape, kernel, config, threads, caches, timer, not_timed, verified, flops, bytes, flops_ceiling, "
    "bytes_ceiling, calls_per_sample, converged, sample_count, median, median_low, median_high, minimum, "
    "p95, "
    "measurements.details, samples";
[[nodiscard]] Status insert_measurement(const Database& database, const std::string& run_id,
                                        const Measurement& m);
[[nodiscard]] Measurement read_measurement(Statement& row);

/// Whether the measurement can be stored and read back the same.
[[nodiscard]] Status validate(const Measurement& m);

}  // namespace saccade::store
