// Where a kernel's time would go on a chip that is not here: the counts of emulated launches over the chip's
// published rates. A model, no measurement: it knows no latencies, caches, registers or instruction issue.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "emu/session.h"

namespace saccade::emu {

/// Rates are for one multiprocessor and one clock unless they say otherwise.
struct Chip {
  std::string_view name;   ///< as on the command line
  std::string_view title;  ///< as its maker calls it
  int compute_capability;  ///< 90 for 9.0
  int multiprocessors;
  double clock_ghz;     ///< at which the published matrix rate holds
  double matrix_flops;  ///< dense f16 products with f32 sums
  double scalar_flops;  ///< f32 fused multiply-adds, each as two
  double mufu;          ///< exp2, reciprocal, log2...
  double l2_bytes;      ///< of the whole chip
  std::string_view l2_source;
  double dram_gbps;
  std::size_t shared_bytes_per_block, shared_bytes_per_sm;
  int threads_per_sm, blocks_per_sm;
};

/// Assumptions, the same for every chip.
inline constexpr double kBarrierCycles = 30;        ///< that a block loses at each of its barriers
inline constexpr double kLaunchMicroseconds = 2;    ///< from one kernel's end to the next one's first block
inline constexpr double kSharedBytesPerPass = 128;  ///< 32 banks of 4 bytes, one pass a clock

[[nodiscard]] std::span<const Chip> chips();
/// Null when there is no such chip.
[[nodiscard]] const Chip* find_chip(std::string_view name);

/// What the call as a whole has to do, however it is done.
struct Work {
  double flops = 0;
  double min_bytes = 0;  ///< inputs read once, outputs written once
};

/// The units of the chip that the model knows.
enum class Unit : unsigned char { matrix, scalar, mufu, shared, barriers, l2, dram };
inline constexpr std::size_t kUnits = 7;
[[nodiscard]] std::string_view to_string(Unit unit);

struct Breakdown {
  /// How long each unit would be busy if nothing else held the kernel up.
  std::array<double, kUnits> microseconds{};
  double overlapped = 0;  ///< microseconds if all units always worked at the same time
  double serial = 0;      ///< and if no two ever did
  double launches = 0;    ///< microseconds of launching, in none of the above
  double floor = 0;       ///< the roofline: no kernel is faster than this
  bool memory_bound = false;
  // Of the launch with the most blocks.
  std::size_t blocks = 0;
  int resident_blocks = 0;  ///< on a multiprocessor at once, by shared memory and threads (not registers)
  double waves = 0;         ///< times the grid fills the chip
  double tail = 1;          ///< the busiest multiprocessor's blocks over the average's

  [[nodiscard]] double of(Unit unit) const { return microseconds[static_cast<std::size_t>(unit)]; }
};

/// The launches of one call, one after the other.
[[nodiscard]] Breakdown model(std::span<const Launched> launches, const Chip& chip, const Work& work);

}  // namespace saccade::emu
