#include "ncu_metrics.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <sstream>

namespace saccade::cli {
namespace {

using enum NcuMetric::Kind;

constexpr std::array kMetrics = {
    NcuMetric{kNcuDuration, "device time", nanoseconds, "from the first block's start to the last one's end"},
    NcuMetric{"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", "tensor pipe", percent,
              "cycles in which the matrix units worked; near 100 is the end of the road"},
    NcuMetric{"sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active", "MUFU pipe", percent,
              "how busy the unit of exp2 is; when it leads, the softmax is the limit"},
    NcuMetric{"dram__throughput.avg.pct_of_peak_sustained_elapsed", "DRAM throughput", percent,
              "of the memory's bandwidth; near 90 is the end of the road"},
    NcuMetric{kNcuDramBytes, "DRAM bytes", bytes,
              "against the fewest a call can move: what caches did not catch"},
    NcuMetric{"lts__throughput.avg.pct_of_peak_sustained_elapsed", "L2 throughput", percent,
              "high with a quiet DRAM: blocks read the same keys again"},
    NcuMetric{"lts__t_sector_hit_rate.pct", "L2 hits", percent, "sectors that did not go on to DRAM"},
    NcuMetric{"sm__warps_active.avg.pct_of_peak_sustained_active", "warps active", percent,
              "of those a multiprocessor can hold, as they were: the occupancy that was reached"},
    NcuMetric{"sm__maximum_warps_per_active_cycle_pct", "occupancy", percent,
              "of those it can hold, as registers and shared memory allow"},
    NcuMetric{"smsp__issue_active.avg.pct_of_peak_sustained_active", "issue slots", percent,
              "cycles in which an instruction was issued"},
    NcuMetric{"launch__registers_per_thread", "registers", number,
              "of a thread; 255 at most, then they spill"},
    NcuMetric{"launch__shared_mem_per_block", "shared memory", bytes,
              "of a block, the system's part included"},
    NcuMetric{"launch__waves_per_multiprocessor", "waves", number,
              "times the grid fills the chip; a small part beyond a whole number idles most of it"},
    NcuMetric{"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "shared passes", number,
              "over the 32 banks, by loads and stores"},
    NcuMetric{"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", "load conflicts", number,
              "passes that loads needed only because of bank conflicts"},
    NcuMetric{"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum", "store conflicts", number,
              "the same of stores"},
};

constexpr std::array kStalls = {
    NcuMetric{"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio", "long scoreboard",
              number, "data from global memory or L2"},
    NcuMetric{"smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio", "short scoreboard",
              number, "data from shared memory, or a MUFU result"},
    NcuMetric{"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio", "barrier", number,
              "other warps of the block"},
    NcuMetric{"smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio", "math pipe",
              number, "an arithmetic unit that is busy"},
    NcuMetric{"smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio", "wgmma", number,
              "a warpgroup's matrix product (Hopper)"},
    NcuMetric{"smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio", "MIO queue", number,
              "room in the queue to shared memory, shuffles and MUFU"},
    NcuMetric{"smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio", "LG queue", number,
              "room in the queue to global memory"},
    NcuMetric{"smsp__average_warps_issue_stalled_wait_per_issue_active.ratio", "wait", number,
              "the fixed latency of the instruction before"},
    NcuMetric{"smsp__average_warps_issue_stalled_membar_per_issue_active.ratio", "memory fence", number,
              "a fence to be done"},
    NcuMetric{"smsp__average_warps_issue_stalled_sleeping_per_issue_active.ratio", "sleeping", number,
              "a nap that the kernel asked for"},
    NcuMetric{"smsp__average_warps_issue_stalled_branch_resolving_per_issue_active.ratio", "branch", number,
              "the target of a jump"},
    NcuMetric{"smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio", "no instruction",
              number, "the instruction cache"},
    NcuMetric{"smsp__average_warps_issue_stalled_dispatch_stall_per_issue_active.ratio", "dispatch", number,
              "the dispatcher"},
    NcuMetric{"smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio", "not selected", number,
              "nothing: another warp was taken (a good sign)"},
};

/// The cells of one line; quotes around a cell are taken away, two inside it mean one.
std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += line[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

/// "1,234.5" as a number.
std::optional<double> number_of(std::string text) {
  std::erase(text, ',');
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

}  // namespace

std::span<const NcuMetric> ncu_metrics() {
  return kMetrics;
}

std::span<const NcuMetric> ncu_stalls() {
  return kStalls;
}

std::vector<NcuKernel> parse_ncu_csv(std::string_view text) {
  std::vector<std::string> header;
  std::vector<NcuKernel> kernels;
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with('"')) continue;
    const std::vector<std::string> cells = cells_of(line);
    if (cells.front() == "ID") {
      header = cells;
      continue;
    }
    // Below the header comes a line of units, which has no ID.
    if (cells.size() != header.size() || cells.front().empty()) continue;
    NcuKernel kernel;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (header[i] == "Kernel Name") kernel.name = cells[i];
      if (header[i] == "Grid Size") kernel.grid = cells[i];
      if (header[i] == "Block Size") kernel.block = cells[i];
      if (header[i].find("__") == std::string::npos) continue;
      if (const std::optional<double> value = number_of(cells[i])) kernel.values[header[i]] = *value;
    }
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

std::vector<std::string> unknown_metrics(std::string_view log, std::span<const std::string> names) {
  std::vector<std::string> unknown;
  std::istringstream stream{std::string(log)};
  for (std::string line; std::getline(stream, line);) {
    if (line.find("Failed to find metric") == std::string::npos) continue;
    for (const std::string& name : names) {
      // The line has the name as a regular expression, with its dots escaped.
      if (line.find(name.substr(0, name.find('.'))) != std::string::npos) unknown.push_back(name);
    }
  }
  return unknown;
}

}  // namespace saccade::cli
