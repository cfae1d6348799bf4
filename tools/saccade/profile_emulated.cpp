#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "console.h"
#include "core/kernel.h"
#include "emu/model.h"
#include "emu/session.h"
#include "profile.h"
#include "verify/case_data.h"
#include "verify/emulated.h"

namespace saccade::cli {
namespace {

using emu::Counters;
using emu::LineCounts;
using emu::Traffic;
using Json = nlohmann::ordered_json;

/// Above this, a run on the CPU takes long enough for a warning.
constexpr double kSlowFlops = 2e9;
constexpr char kDefaultChip[] = "h200";

/// Everything that is printed, once.
struct Profile {
  Problem problem;
  std::string kernel, config;
  std::uint64_t seed = 1;
  const emu::Chip& chip;
  Counters counters;
  std::vector<emu::Launched> launches;
  emu::Breakdown modelled;
};

/// The kernel on random data, as if the machine were the chip.
Profile run(const Problem& problem, const ProfileOptions& options, const emu::Chip& chip) {
  const PlanOptions plan = cuda_plan(options.kernel);
  const Kernel& kernel = *find_emulated(plan.kernel);
  Machine machine = emulated_machine();
  machine.compute_capability = chip.compute_capability;
  machine.multiprocessors = chip.multiprocessors;
  machine.shared_bytes_per_block = chip.shared_bytes_per_block;
  if (const auto reason = kernel.reject(problem, machine)) {
    throw CommandError(kBadInput,
                       fmt::format("{} does not take {}: {}", kernel.name, to_string(problem), *reason));
  }
  Result<Prepared> prepared = kernel.prepare(problem, machine, plan.config);
  if (!prepared.ok()) throw CommandError(prepared.status());
  const CaseData data(problem, options.seed);
  const GuardedBuffer workspace(prepared->workspace_bytes, kWorkspaceAlignment, PastEnd::fault);
  const emu::Session session({.seed = options.seed, .count = true});
  const Status status = prepared->launch(data.tensors(), workspace.bytes().data(), nullptr);
  if (!status.ok()) throw CommandError(status);
  for (const emu::Launched& launched : session.launches()) {
    if (launched.shape.shared_bytes > chip.shared_bytes_per_block) {
      throw CommandError(
          kBadInput, fmt::format("{} asks for {} of shared memory; a block of {} has {} at most", kernel.name,
                                 format_bytes(static_cast<double>(launched.shape.shared_bytes)), chip.title,
                                 format_bytes(static_cast<double>(chip.shared_bytes_per_block))));
    }
  }
  return {problem,
          std::string(kernel.name),
          prepared->config,
          options.seed,
          chip,
          session.counters(),
          session.launches(),
          emu::model(session.launches(), chip, {flops(problem), min_bytes(problem)})};
}

struct Row {
  std::string_view key, title;
  double value;
  std::string_view meaning;
};

std::vector<Row> totals(const Profile& p) {
  const Counters& c = p.counters;
  const auto n = [](std::uint64_t count) { return static_cast<double>(count); };
  const LineCounts shared_loads = c.total(Traffic::shared_load),
                   shared_stores = c.total(Traffic::shared_store);
  const LineCounts loads = c.total(Traffic::global_load), stores = c.total(Traffic::global_store);
  return {
      {"blocks", "blocks", n(c.blocks), "of all launches"},
      {"matrix_flops", "matrix FLOP", n(c.matrix_flops),
       "by mma, wmma and wgmma; the problem's own are below"},
      {"problem_flops", "problem FLOP", flops(p.problem),
       "what the shape asks for; the matrix units may do more (padding)"},
      {"mufu", "MUFU", n(c.mufu), "exp2, reciprocal, log2, one for each thread"},
      {"shuffles", "shuffles", n(c.shuffles), "by warp; each goes the way of a shared-memory pass"},
      {"shared_passes", "shared passes", n(shared_loads.transactions + shared_stores.transactions),
       "over the 32 banks; a multiprocessor makes one a clock"},
      {"bank_conflicts", "bank conflicts", n(c.bank_conflicts()),
       "passes beyond the fewest that carry the same bytes"},
      {"global_sectors", "global sectors", n(loads.transactions + stores.transactions),
       "of 32 bytes, between multiprocessors and L2"},
      {"ideal_sectors", "ideal sectors", n(loads.ideal + stores.ideal),
       "what the same bytes need when lanes are neighbours"},
      {"min_bytes", "fewest bytes", min_bytes(p.problem), "that a call must move from and to DRAM"},
      {"copied_bytes", "copied bytes", n(c.copied_bytes),
       "by cp.async and the copy engine, without registers"},
      {"bulk_bytes", "bulk bytes", n(c.bulk_bytes),
       "of these, by the copy engine (TMA); no sectors are counted for them"},
      {"block_barriers", "block barriers", n(c.block_barriers), "by warp"},
      {"warp_barriers", "warp barriers", n(c.warp_barriers), "by warp; nearly free"},
      {"cluster_barriers", "cluster barriers", n(c.cluster_barriers), "by warp"},
      {"mbarrier_waits", "mbarrier waits", n(c.mbarrier_waits), "by thread"},
  };
}

struct Line {
  std::string where;
  Traffic traffic;
  LineCounts counts;
  [[nodiscard]] std::uint64_t wasted() const {
    return counts.transactions - std::min(counts.transactions, counts.ideal);
  }
};

/// The lines with the most transactions beyond the ideal; those without any are left out.
std::vector<Line> worst_lines(const Counters& counters, bool shared, std::size_t top) {
  std::vector<Line> lines;
  for (const auto& [key, counts] : counters.lines) {
    const auto& [file, number, traffic] = key;
    const bool is_shared = traffic == Traffic::shared_load || traffic == Traffic::shared_store;
    Line line{emu::to_string(emu::Where{file.c_str(), number}), traffic, counts};
    if (is_shared == shared && line.wasted() > 0) lines.push_back(std::move(line));
  }
  std::ranges::stable_sort(lines, [](const Line& a, const Line& b) { return a.wasted() > b.wasted(); });
  if (lines.size() > top) lines.resize(top);
  return lines;
}

void print_lines(const char* title, const char* none, const std::vector<Line>& lines) {
  if (lines.empty()) {
    fmt::print("{}: {}\n", title, none);
    return;
  }
  using enum Table::Align;
  Table table(
      {{"line", left}, {"", left}, {"instructions", right}, {"transactions", right}, {"ideal", right}});
  for (const Line& line : lines) {
    table.add({line.where, std::string(to_string(line.traffic)), fmt::format("{}", line.counts.instructions),
               fmt::format("{}", line.counts.transactions), fmt::format("{}", line.counts.ideal)});
  }
  fmt::print("{}:\n{}", title, table.text("  "));
}

constexpr std::array<std::string_view, emu::kUnits> kUnitMeanings = {
    "the matrix products at the data sheet's dense rate",
    "at least: what no matrix unit did, as f32 multiply-adds (not counted in the emulator)",
    "exp2 and its like, 16 a clock and multiprocessor",
    "passes over the banks and shuffles, one a clock and multiprocessor",
    "30 cycles for each meeting of a block (an assumption)",
    "all sectors at L2's rate",
    "at least: the fewest bytes at DRAM's rate (caches are not emulated)",
};

void print_model(const Profile& p) {
  const emu::Breakdown& m = p.modelled;
  fmt::print("\nModelled on {} ({} multiprocessors at {:.2f} GHz; L2's rate {}), not measured:\n",
             p.chip.title, p.chip.multiprocessors, p.chip.clock_ghz, p.chip.l2_source);
  using enum Table::Align;
  Table table({{"unit", left}, {"busy", right}, {"", right}, {"", left}});
  for (std::size_t unit = 0; unit < emu::kUnits; ++unit) {
    const double us = m.microseconds[unit];
    const double share = m.overlapped > 0 ? 100 * us / m.overlapped : 0;
    table.add({std::string(to_string(static_cast<emu::Unit>(unit))), format_seconds(us * 1e-6),
               format_percent(share), std::string(kUnitMeanings[unit])});
  }
  fmt::print("{}", table.text("  "));
  fmt::print(
      "  between {} (all units at work at once) and {} (one after the other), and about {} for launching\n"
      "  roofline floor {} ({}): no kernel can be faster on this chip\n"
      "  grid: {} blocks, {} on a multiprocessor at once (registers are not known here), {} waves; ",
      format_seconds(m.overlapped * 1e-6), format_seconds(m.serial * 1e-6), format_seconds(m.launches * 1e-6),
      format_seconds(m.floor * 1e-6), m.memory_bound ? "memory" : "compute", m.blocks, m.resident_blocks,
      format_number(m.waves));
  const auto sms = static_cast<std::size_t>(p.chip.multiprocessors);
  if (m.blocks < sms) {
    fmt::print("{} of {} multiprocessors have work\n", m.blocks, sms);
  } else {
    fmt::print("the busiest multiprocessor has {:.2f}x the average's blocks\n", m.tail);
  }
}

void print_text(const Profile& p, std::size_t top) {
  fmt::print("{}  {}{}{}  emulated, seed {}\n", to_string(p.problem), p.kernel, p.config.empty() ? "" : ":",
             p.config, p.seed);
  for (const emu::Launched& launched : p.launches) {
    const emu::Shape& s = launched.shape;
    fmt::print("  launch: {} x {} x {} blocks of {} threads, clusters of {}, {} of shared memory\n", s.grid.x,
               s.grid.y, s.grid.z, s.block, s.cluster, format_bytes(static_cast<double>(s.shared_bytes)));
  }
  using enum Table::Align;
  Table table({{"counted", left}, {"", right}, {"", left}});
  for (const Row& row : totals(p)) {
    table.add({std::string(row.title), fmt::format("{:.0f}", row.value), std::string(row.meaning)});
  }
  fmt::print("\n{}\n", table.text("  "));
  print_lines("Bank conflicts", "none", worst_lines(p.counters, true, top));
  print_lines("Global accesses whose lanes are no neighbours", "none", worst_lines(p.counters, false, top));
  print_model(p);
}

Json lines_json(const std::vector<Line>& lines) {
  Json result = Json::array();
  for (const Line& line : lines) {
    result.push_back({{"line", line.where},
                      {"kind", to_string(line.traffic)},
                      {"instructions", line.counts.instructions},
                      {"transactions", line.counts.transactions},
                      {"ideal", line.counts.ideal}});
  }
  return result;
}

Json to_document(const Profile& p, std::size_t top) {
  Json counted, units, launches = Json::array();
  for (const Row& row : totals(p)) counted[std::string(row.key)] = static_cast<std::uint64_t>(row.value);
  for (std::size_t unit = 0; unit < emu::kUnits; ++unit) {
    units[std::string(to_string(static_cast<emu::Unit>(unit)))] = p.modelled.microseconds[unit];
  }
  for (const emu::Launched& launched : p.launches) {
    const emu::Shape& s = launched.shape;
    launches.push_back({{"grid", {s.grid.x, s.grid.y, s.grid.z}},
                        {"threads", s.block},
                        {"cluster", s.cluster},
                        {"shared_bytes", s.shared_bytes}});
  }
  const emu::Breakdown& m = p.modelled;
  return {{"schema", "saccade.profile/1"},
          {"source", "emulator"},
          {"shape", to_string(p.problem)},
          {"kernel", p.kernel},
          {"config", p.config},
          {"seed", p.seed},
          {"launches", launches},
          {"counted", counted},
          {"bank_conflict_lines", lines_json(worst_lines(p.counters, true, top))},
          {"uncoalesced_lines", lines_json(worst_lines(p.counters, false, top))},
          {"modelled",
           {{"chip", p.chip.name},
            {"busy_us", units},
            {"overlapped_us", m.overlapped},
            {"serial_us", m.serial},
            {"launch_us", m.launches},
            {"floor_us", m.floor},
            {"bound", m.memory_bound ? "memory" : "compute"},
            {"resident_blocks", m.resident_blocks},
            {"waves", m.waves},
            {"tail", m.tail}}}};
}

}  // namespace

int profile_emulated(const Problem& problem, const ProfileOptions& options, const Globals& globals) {
  const emu::Chip& chip = *emu::find_chip(options.chip.empty() ? kDefaultChip : options.chip);
  if (flops(problem) > kSlowFlops) {
    fmt::print(stderr,
               "saccade: {} is {} GFLOP, which takes the emulator a while; counts grow with the shape, so "
               "a shorter one tells as much\n",
               to_string(problem), format_number(flops(problem) / 1e9));
  }
  const Profile profile = run(problem, options, chip);
  const auto top = static_cast<std::size_t>(options.top);
  if (globals.json) {
    print_json(to_document(profile, top));
  } else {
    print_text(profile, top);
  }
  return kOk;
}

}  // namespace saccade::cli
