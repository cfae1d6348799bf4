// What the emulator knows of every byte of a block's shared memory: who wrote it, who read it, whether it was
// ever written and whether an asynchronous copy still has it in flight. From that it tells races.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "emu/clock.h"
#include "emu/where.h"

namespace saccade::emu {

/// Who touches memory. Warps are agents 0..W-1 of a cluster; agent W + w stands for the products (wgmma) of
/// the warpgroup that warp w leads, agent 2W + w for the bulk stores that warp w started: both read on their
/// own. Agents from 3W on write only: barriers that copies complete on, and threads with cp.async groups.
struct Actor {
  std::uint32_t agent = 0;
  std::uint32_t epoch = 0;             ///< of the agent's own counter
  std::uint32_t thread = 0;            ///< in the cluster; also names the lane
  std::uint32_t stamp = 0;             ///< of the thread's instruction counter, for proxy fences
  const VectorClock* clock = nullptr;  ///< what the actor knows of the others
  Where where{};
};

/// Why an access is wrong, as a sentence without its place; empty when it is right.
using Complaint = std::string;

class Shadow {
 public:
  /// `fences[t]` is the stamp of thread t's last proxy fence.
  Shadow(std::size_t bytes, std::uint32_t warps, std::span<const std::uint32_t> fences);

  /// A read by ordinary instructions (actor.agent < W) or by the asynchronous proxy (a reading agent).
  [[nodiscard]] Complaint read(std::size_t offset, std::size_t bytes, const Actor& actor);
  /// A write by ordinary instructions.
  [[nodiscard]] Complaint write(std::size_t offset, std::size_t bytes, const Actor& actor);
  /// An asynchronous write that `issuer` starts: visible to whoever knows `epoch` of `agent`. Bulk copies
  /// write by the asynchronous proxy, cp.async by the ordinary one.
  [[nodiscard]] Complaint begin_copy(std::size_t offset, std::size_t bytes, const Actor& issuer,
                                     std::uint32_t agent, std::uint32_t epoch, bool bulk);
  /// The bytes of such a write have arrived; `epoch` and the issuer's stamp may have moved since.
  void end_copy(std::size_t offset, std::size_t bytes, std::uint32_t epoch, std::uint32_t stamp);
  /// Marks the bytes as a barrier's (or ordinary again): loads and stores there are errors.
  void set_barrier(std::size_t offset, std::size_t bytes, bool barrier);

 private:
  static constexpr std::size_t kCellBytes = 2;  // the smallest element that kernels keep in shared memory
  enum Flag : std::uint8_t { kWritten = 1, kInFlight = 2, kBarrier = 4, kBulk = 8, kRead = 16 };
  static constexpr std::uint32_t kReaders = 3;  // agents of a warp that read
  struct Cell {
    std::uint32_t agent = 0;
    std::uint32_t epoch = 0;
    std::uint32_t stamp = 0;
    std::uint32_t thread = 0;
    Where where{};
    std::uint8_t flags = 0;
  };

  /// Whether what the cell's last writer did is in the actor's past; else a complaint.
  [[nodiscard]] Complaint after_writer(const Cell& cell, const Actor& actor, const char* verb,
                                       bool asynchronous) const;
  [[nodiscard]] Complaint after_readers(std::size_t index, const Actor& actor) const;
  void forget_readers(std::size_t index);
  [[nodiscard]] std::vector<std::uint32_t>& last_reads(std::uint32_t agent);
  [[nodiscard]] std::string name_of(std::uint32_t agent, std::uint32_t thread) const;

  std::uint32_t warps_;
  std::span<const std::uint32_t> fences_;
  std::vector<Cell> cells_;
  /// Of every cell, epoch << 6 | lane + 1 of this agent's last read, kManyLanes for several; 0: none.
  struct Reader {
    std::uint32_t agent = 0;
    std::vector<std::uint32_t> last;
  };
  std::vector<Reader> readers_;        ///< those that have read anything
  std::vector<std::uint32_t> places_;  ///< by agent: its number among them, from 1 on; 0: it is not
};

}  // namespace saccade::emu
