#include "store/records.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <tuple>
#include <utility>

#include "store/rows.h"

namespace saccade::store {
namespace {

Status missing(const char* key, const char* type) {
  return {Code::invalid_argument, fmt::format("the provenance has no '{}' that is a {}", key, type)};
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  const auto bits = [](double x) { return std::bit_cast<std::uint64_t>(x); };
  return std::ranges::equal(a, b, {}, bits, bits);
}

auto fields(const Run& run) {
  return std::tie(run.id, run.started, run.finished, run.commit, run.dirty, run.seed, run.command_line,
                  run.machine);
}

auto fields(const Measurement& m) {
  return std::tie(m.shape, m.kernel, m.config, m.threads, m.caches, m.timer, m.not_timed, m.verified, m.flops,
                  m.bytes, m.flops_ceiling, m.bytes_ceiling, m.calls_per_sample, m.converged,
                  m.seconds.samples, m.seconds.median, m.seconds.interval.low, m.seconds.interval.high,
                  m.seconds.min, m.seconds.p95);
}

}  // namespace

Result<Run> describe_run(Json provenance, std::string machine) {
  Run run;
  for (const auto& [key, field] :
       {std::pair{"date", &run.started}, {"commit", &run.commit}, {"command_line", &run.command_line}}) {
    const auto found = provenance.find(key);
    if (found == provenance.end() || !found->is_string()) return missing(key, "text");
    *field = found->get<std::string>();
  }
  const auto dirty = provenance.find("dirty");
  if (dirty == provenance.end() || !dirty->is_boolean()) return missing("dirty", "boolean");
  run.dirty = dirty->get<bool>();
  // A number made by a program may be of the signed type although it is not negative.
  const auto seed = provenance.find("seed");
  const bool natural = seed != provenance.end() && seed->is_number_integer() &&
                       (seed->is_number_unsigned() || seed->get<std::int64_t>() >= 0);
  if (!natural) return missing("seed", "natural number");
  run.seed = seed->get<std::uint64_t>();
  run.machine = std::move(machine);
  run.provenance = std::move(provenance);
  return run;
}

bool same(const Run& a, const Run& b) {
  return fields(a) == fields(b) && to_text(a.provenance) == to_text(b.provenance) &&
         to_text(a.details) == to_text(b.details);
}

bool same(const Measurement& a, const Measurement& b) {
  return fields(a) == fields(b) && same_bits(a.samples, b.samples) &&
         to_text(a.details) == to_text(b.details);
}

}  // namespace saccade::store
