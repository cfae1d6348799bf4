#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench_record.h"
#include "commands.h"
#include "console.h"
#include "runs.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;
using store::Measurement;

bool same_question(const Measurement& a, const Measurement& b) {
  return a.not_timed.empty() && b.not_timed.empty() && a.shape == b.shape && a.kernel == b.kernel &&
         a.threads == b.threads && a.caches == b.caches && a.timer == b.timer;
}

/// How much faster `after` is. Files keep no samples; then the interval is the widest that both medians'
/// intervals allow.
measure::Speedup compare(const Measurement& before, const Measurement& after) {
  if (!before.samples.empty() && !after.samples.empty()) {
    return measure::independent_speedup(after.samples, before.samples, 1);
  }
  const measure::Interval interval{before.seconds.interval.low / after.seconds.interval.high,
                                   before.seconds.interval.high / after.seconds.interval.low};
  const double ratio = before.seconds.median / after.seconds.median;
  return {ratio, interval,
          measure::judge(ratio, interval, std::min(before.seconds.samples, after.seconds.samples))};
}

/// What makes two runs hard to compare.
std::vector<std::string> warnings(const store::Run& before, const store::Run& after) {
  std::vector<std::string> texts;
  if (before.machine != after.machine) {
    texts.push_back(fmt::format("the runs are from two machines: {} and {}", before.machine, after.machine));
  }
  for (const char* key : {"compiler", "flags"}) {
    const std::string a = before.provenance.value(key, ""), b = after.provenance.value(key, "");
    if (a != b) texts.push_back(fmt::format("the {} differ: {} and {}", key, a, b));
  }
  texts.emplace_back("two runs saw the machine at two moments; kernels side by side in one run tell more");
  return texts;
}

}  // namespace

int run_compare(const CompareOptions& options, const Globals& globals) {
  const store::WholeRun before = find_run(options.before, options.store);
  const store::WholeRun after = find_run(options.after, options.store);
  using enum Table::Align;
  Table table({{"shape"}, {"kernel"}, {"before", right}, {"after", right}, {"speed-up"}, {"verdict"}});
  Json json = Json::array();
  for (const Measurement& b : after.measurements) {
    const auto a =
        std::ranges::find_if(before.measurements, [&](const Measurement& m) { return same_question(m, b); });
    if (a == before.measurements.end()) continue;
    const measure::Speedup speedup = compare(*a, b);
    table.add({b.shape, b.kernel, format_seconds(a->seconds.median), format_seconds(b.seconds.median),
               fmt::format("{}x [{}, {}]", format_number(speedup.value), format_number(speedup.interval.low),
                           format_number(speedup.interval.high)),
               std::string(measure::to_string(speedup.verdict))});
    json.push_back({{"shape", b.shape},
                    {"kernel", b.kernel},
                    {"before_us", rounded(a->seconds.median * 1e6)},
                    {"after_us", rounded(b.seconds.median * 1e6)},
                    {"speedup", rounded(speedup.value)},
                    {"low", rounded(speedup.interval.low)},
                    {"high", rounded(speedup.interval.high)},
                    {"verdict", measure::to_string(speedup.verdict)}});
  }
  const std::vector<std::string> notes = warnings(before.run, after.run);
  if (globals.json) {
    print_json({{"schema", "saccade.compare/1"},
                {"before", before.run.id},
                {"after", after.run.id},
                {"notes", notes},
                {"results", json}});
  } else {
    for (const auto& [name, run] : {std::pair{"before", &before.run}, {"after", &after.run}}) {
      fmt::print("{:<6}  {}  {}  {}{}  {}\n", name, run->id, run->started, run->commit,
                 run->dirty ? " (changed)" : "", run->machine);
    }
    fmt::print("\n{}", table.text());
    for (const std::string& note : notes) fmt::print("note: {}\n", note);
  }
  if (json.empty()) {
    throw CommandError(kBadInput, "the runs have no shape and kernel in common that both timed");
  }
  return kOk;
}

}  // namespace saccade::cli
