#include "store/rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <fmt/format.h>

namespace saccade::store {
namespace {

constexpr std::string_view kCold = "cold";
constexpr std::string_view kWarm = "warm";
constexpr std::string_view kDevice = "device";
constexpr std::string_view kHost = "host";

Json read_json(Statement& row) {
  Json json = Json::parse(row.text(), nullptr, false);
  if (json.is_discarded()) row.report_damage("a text that should be JSON is not");
  return json;
}

}  // namespace

std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Status insert_run(const Database& database, const Run& run) {
  return database
      .prepare(
          "INSERT INTO runs (id, started, finished, source_commit, dirty, seed, command_line, machine, "
          "provenance, details) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
      .bind(run.id, run.started, run.finished, run.commit, run.dirty, std::bit_cast<std::int64_t>(run.seed),
            run.command_line, run.machine, to_text(run.provenance), to_text(run.details))
      .run();
}

Run read_run(Statement& row) {
  return {.id = row.text(),
          .started = row.text(),
          .finished = row.text(),
          .commit = row.text(),
          .dirty = row.boolean(),
          .seed = std::bit_cast<std::uint64_t>(row.integer()),
          .command_line = row.text(),
          .machine = row.text(),
          .provenance = read_json(row),
          .details = read_json(row)};
}

Status insert_measurement(const Database& database, const std::string& run_id, const Measurement& m) {
  const measure::Summary& s = m.seconds;
  return database
      .prepare(
          "INSERT INTO measurements (shape, kernel, config, threads, caches, timer, not_timed, verified, "
          "flops, "
          "bytes, flops_ceiling, bytes_ceiling, calls_per_sample, converged, sample_count, median, "
          "median_low, "
          "median_high, minimum, p95, details, samples, run) "
          "SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, number FROM runs WHERE "
          "id = ?")
      .bind(m.shape, m.kernel, m.config, m.threads, m.caches == Caches::cold ? kCold : kWarm,
            m.timer == Timer::device ? kDevice : kHost, m.not_timed, m.verified, m.flops, m.bytes,
            m.flops_ceiling, m.bytes_ceiling, m.calls_per_sample, m.converged,
            static_cast<std::int64_t>(s.samples), s.median, s.interval.low, s.interval.high, s.min, s.p95,
            to_text(m.details), std::span(m.samples), run_id)
      .run();
}

Measurement read_measurement(Statement& row) {
  Measurement m{.shape = row.text(),
                .kernel = row.text(),
                .config = row.text(),
                .threads = static_cast<int>(row.integer()),
                .caches = row.text() == kCold ? Caches::cold : Caches::warm,
                .timer = row.text() == kDevice ? Timer::device : Timer::host,
                .not_timed = row.text(),
                .verified = row.optional_boolean(),
                .flops = row.real(),
                .bytes = row.real(),
                .flops_ceiling = row.real(),
                .bytes_ceiling = row.real(),
                .calls_per_sample = static_cast<int>(row.integer()),
                .converged = row.boolean(),
                .seconds = {.samples = static_cast<std::size_t>(row.integer()),
                            .median = row.real(),
                            .interval = {.low = row.real(), .high = row.real()},
                            .min = row.real(),
                            .p95 = row.real()},
                .samples = {},
                .details = read_json(row)};
  m.samples = row.doubles();
  if (!validate(m).ok()) row.report_damage("samples that do not fit their summary");
  return m;
}

Status validate(const Measurement& m) {
  if (!m.samples.empty() && m.samples.size() != m.seconds.samples) {
    return {Code::invalid_argument, fmt::format("{} raw samples but a summary of {}, for {} on {}",
                                                m.samples.size(), m.seconds.samples, m.kernel, m.shape)};
  }
  const measure::Summary& s = m.seconds;
  const auto finite = [](double x) { return std::isfinite(x); };
  const std::array numbers = {m.flops,         m.bytes,  m.flops_ceiling,
                              m.bytes_ceiling, s.median, s.interval.low,
                              s.interval.high, s.min,    s.p95};
  if (!std::ranges::all_of(numbers, finite) || !std::ranges::all_of(m.samples, finite)) {
    return {Code::invalid_argument,
            fmt::format("a number that is not finite, for {} on {}", m.kernel, m.shape)};
  }
  return {};
}

}  // namespace saccade::store
