#include "emu/model.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace saccade::emu {
namespace {

constexpr std::string_view kPublished = "published";
constexpr std::string_view kEstimated = "estimated";

// Multiprocessors, clocks, matrix rates and DRAM: NVIDIA's data sheets and architecture white papers (L4 data
// sheet: 121 TFLOP/s dense at 2040 MHz, which its 72 W rarely allow; A100 80GB SXM: 312 at 1410 MHz; H100 SXM
// and H200 SXM: 989 at 1830 MHz). The rate of a multiprocessor is the data sheet's over multiprocessors and
// clock. On Hopper it is wgmma's; mma.sync is reported to reach about two thirds of it.
// Scalar and MUFU rates: the table of arithmetic throughput in the CUDA C++ Programming Guide.
// Shared memory, threads and blocks: the same guide's table of compute capabilities.
// L2: 5120 bytes a clock is from the A100 white paper. For Hopper there is no published figure, and the
// A100's is taken; the L4's is a guess that nobody has measured for us.
constexpr std::array<Chip, 4> kChips = {{
    {"l4", "NVIDIA L4", 89, 58, 2.040, 1024, 256, 16, 1024, kEstimated, 300, 99 << 10, 100 << 10, 1536, 24},
    {"a100", "NVIDIA A100 80GB SXM", 80, 108, 1.410, 2048, 128, 16, 5120, kPublished, 2039, 163 << 10,
     164 << 10, 2048, 32},
    {"h100", "NVIDIA H100 SXM", 90, 132, 1.830, 4096, 256, 16, 5120, kEstimated, 3350, 227 << 10, 228 << 10,
     2048, 32},
    {"h200", "NVIDIA H200 SXM", 90, 132, 1.830, 4096, 256, 16, 5120, kEstimated, 4800, 227 << 10, 228 << 10,
     2048, 32},
}};

/// What the system keeps of shared memory for each block, since compute capability 8.0.
constexpr std::size_t kSystemSharedBytes = 1024;

int resident_blocks(const Shape& shape, const Chip& chip) {
  const auto by_shared =
      static_cast<int>(chip.shared_bytes_per_sm / (shape.shared_bytes + kSystemSharedBytes));
  const int by_threads = chip.threads_per_sm / static_cast<int>(shape.block);
  return std::min({by_shared, by_threads, chip.blocks_per_sm});
}

double grid_blocks(const Shape& shape) {
  return static_cast<double>(shape.grid.x) * shape.grid.y * shape.grid.z;
}

/// One launch's units, in clocks; DRAM and scalar work belong to the whole call.
std::array<double, kUnits> clocks(const Launched& launched, const Chip& chip) {
  const Counters& counted = launched.counters;
  const auto counts = [](std::uint64_t n) { return static_cast<double>(n); };
  const double blocks = grid_blocks(launched.shape);
  // The multiprocessor with the most blocks decides.
  const double share = std::ceil(blocks / chip.multiprocessors) / blocks;
  std::array<double, kUnits> busy{};
  const auto of = [&busy](Unit unit) -> double& { return busy[static_cast<std::size_t>(unit)]; };
  of(Unit::matrix) = counts(counted.matrix_flops) * share / chip.matrix_flops;
  of(Unit::mufu) = counts(counted.mufu) * share / chip.mufu;
  // A shuffle goes the way of one pass. What wgmma reads is part of its rate.
  const double passes = counts(counted.total(Traffic::shared_load).transactions +
                               counted.total(Traffic::shared_store).transactions + counted.shuffles);
  of(Unit::shared) = (passes + counts(counted.bulk_bytes) / kSharedBytesPerPass) * share;
  // Warps are counted, and blocks that share a multiprocessor wait at the same time.
  const double warps = launched.shape.block / 32.0;
  const double meetings = counts(counted.block_barriers + counted.cluster_barriers) / warps +
                          counts(counted.mbarrier_waits) / launched.shape.block;
  const double at_once = std::clamp(blocks / chip.multiprocessors, 1.0,
                                    std::max(1.0, 1.0 * resident_blocks(launched.shape, chip)));
  of(Unit::barriers) = meetings * share * kBarrierCycles / at_once;
  const double sectors = counts(counted.total(Traffic::global_load).transactions +
                                counted.total(Traffic::global_store).transactions);
  of(Unit::l2) = (sectors * 32 + counts(counted.bulk_bytes)) / chip.l2_bytes;
  return busy;
}

}  // namespace

std::span<const Chip> chips() {
  return kChips;
}

const Chip* find_chip(std::string_view name) {
  const auto* found = std::ranges::find(kChips, name, &Chip::name);
  return found == kChips.end() ? nullptr : found;
}

std::string_view to_string(Unit unit) {
  switch (unit) {
    case Unit::matrix:
      return "matrix";
    case Unit::scalar:
      return "scalar";
    case Unit::mufu:
      return "MUFU";
    case Unit::shared:
      return "shared memory";
    case Unit::barriers:
      return "barriers";
    case Unit::l2:
      return "global (L2)";
    case Unit::dram:
      break;
  }
  return "global (DRAM)";
}

Breakdown model(std::span<const Launched> launches, const Chip& chip, const Work& work) {
  Breakdown result;
  const double per_microsecond = chip.clock_ghz * 1e3;
  double matrix_flops = 0;
  for (const Launched& launched : launches) {
    const double blocks = grid_blocks(launched.shape);
    if (blocks == 0) continue;
    matrix_flops += static_cast<double>(launched.counters.matrix_flops);
    const std::array<double, kUnits> busy = clocks(launched, chip);
    for (std::size_t unit = 0; unit < kUnits; ++unit)
      result.microseconds[unit] += busy[unit] / per_microsecond;
    result.launches += kLaunchMicroseconds;
    if (blocks > static_cast<double>(result.blocks)) {
      result.blocks = static_cast<std::size_t>(blocks);
      result.resident_blocks = resident_blocks(launched.shape, chip);
      const double average = blocks / chip.multiprocessors;
      result.tail = std::ceil(average) / average;
      result.waves = average / std::max(1, result.resident_blocks);
    }
  }
  const double all_sms = chip.multiprocessors * per_microsecond;
  // What the matrix units did not do, the scalar ones must have done, at least.
  result.microseconds[static_cast<std::size_t>(Unit::scalar)] =
      std::max(0.0, work.flops - matrix_flops) * result.tail / (chip.scalar_flops * all_sms);
  // Caches are not emulated; every byte comes once at least.
  const double dram = work.min_bytes / (chip.dram_gbps * 1e3);
  result.microseconds[static_cast<std::size_t>(Unit::dram)] = dram;
  result.overlapped = *std::ranges::max_element(result.microseconds);
  for (const double each : result.microseconds) result.serial += each;
  const double compute = work.flops / (chip.matrix_flops * all_sms);
  result.floor = std::max(compute, dram);
  result.memory_bound = dram > compute;
  return result;
}

}  // namespace saccade::emu
