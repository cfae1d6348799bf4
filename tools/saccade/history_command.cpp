#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>

#include "bench_record.h"
#include "commands.h"
#include "console.h"
#include "runs.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;
using store::HistoryEntry;
using store::RunEntry;

std::string source(const store::Run& run) {
  return run.commit + (run.dirty ? " (changed)" : "");
}

int list_runs(const HistoryOptions& options, const Globals& globals) {
  const Result<std::vector<RunEntry>> runs = options.store.open(store::Access::read).runs();
  if (!runs.ok()) throw CommandError(runs.status());
  Table table({{"run"}, {"started"}, {"commit"}, {"machine"}, {"measurements", Table::Align::right}, {""}});
  Json json = Json::array();
  for (const RunEntry& entry : runs.value()) {
    const store::Run& run = entry.run;
    const bool whole = !run.finished.empty();
    table.add({run.id, run.started, source(run), run.machine, fmt::format("{}", entry.measurements),
               whole ? run.command_line : "unfinished: " + run.command_line});
    json.push_back({{"run", run.id},
                    {"started", run.started},
                    {"finished", run.finished},
                    {"commit", run.commit},
                    {"dirty", run.dirty},
                    {"machine", run.machine},
                    {"measurements", entry.measurements},
                    {"command_line", run.command_line}});
  }
  if (globals.json) {
    print_json({{"schema", "saccade.runs/1"}, {"runs", json}});
  } else {
    fmt::print("{}", table.text());
  }
  return kOk;
}

double percent_of_ceiling(const store::Measurement& m) {
  return 100 * std::max(m.flops / m.flops_ceiling, m.bytes / m.bytes_ceiling) / m.seconds.median;
}

int show_history(const HistoryOptions& options, const Globals& globals) {
  const Result<Problem> problem = parse_problem(fmt::format("{}", fmt::join(options.shape, " ")));
  if (!problem.ok()) throw CommandError(problem.status());
  const std::string shape = to_string(problem.value());
  const Result<std::vector<HistoryEntry>> found =
      options.store.open(store::Access::read).history({shape, options.kernel, options.machine});
  if (!found.ok()) throw CommandError(found.status());
  using enum Table::Align;
  Table table({{"started"},
               {"commit"},
               {"kernel"},
               {"caches"},
               {"median", right},
               {"95% interval"},
               {"% of ceiling", right},
               {"change", right},
               {"run"},
               {"machine"}});
  Json json = Json::array();
  std::map<std::string, double> last;  // a change is against the same kernel, machine and way of measuring
  for (const HistoryEntry& entry : found.value()) {
    const store::Measurement& m = entry.measurement;
    if (!m.not_timed.empty()) continue;
    const char* caches = m.caches == store::Caches::cold ? "cold" : "warm";
    const bool device = m.timer == store::Timer::device;
    double& before =
        last[fmt::format("{}|{}|{}|{}|{}", m.kernel, entry.run.machine, m.threads, caches, device)];
    const std::string change =
        before == 0 ? "" : fmt::format("{:+.1f}%", 100 * (m.seconds.median / before - 1));
    before = m.seconds.median;
    table.add({entry.run.started, source(entry.run), m.kernel, caches, format_seconds(m.seconds.median),
               fmt::format("{} .. {}", format_seconds(m.seconds.interval.low),
                           format_seconds(m.seconds.interval.high)),
               m.flops_ceiling > 0 ? format_percent(percent_of_ceiling(m)) : "", change,
               entry.run.id.substr(0, 8), entry.run.machine});
    json.push_back({{"started", entry.run.started},
                    {"run", entry.run.id},
                    {"commit", entry.run.commit},
                    {"dirty", entry.run.dirty},
                    {"machine", entry.run.machine},
                    {"kernel", m.kernel},
                    {"config", m.config},
                    {"threads", m.threads},
                    {"caches", caches},
                    {"timer", device ? "device" : "host"},
                    {"median_us", rounded(m.seconds.median * 1e6)},
                    {"low_us", rounded(m.seconds.interval.low * 1e6)},
                    {"high_us", rounded(m.seconds.interval.high * 1e6)}});
  }
  if (globals.json) {
    print_json({{"schema", "saccade.history/1"}, {"shape", shape}, {"entries", json}});
  } else if (json.empty()) {
    fmt::print("nothing stored for {}\n", shape);
  } else {
    fmt::print("{}\n{}", shape, table.text("  "));
  }
  return kOk;
}

}  // namespace

int run_history(const HistoryOptions& options, const Globals& globals) {
  return options.shape.empty() ? list_runs(options, globals) : show_history(options, globals);
}

}  // namespace saccade::cli
