// What the emulated machine did, in all and line by line.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "emu/where.h"

namespace saccade::emu {

/// The kinds of warp instructions that move memory.
enum class Traffic : std::uint8_t { shared_load, shared_store, global_load, global_store };
[[nodiscard]] std::string_view to_string(Traffic traffic);

/// One line's memory instructions, counted by warp.
struct LineCounts {
  std::uint64_t instructions = 0;
  std::uint64_t bytes = 0;
  std::uint64_t transactions = 0;  ///< shared: passes over the banks; global: sectors of 32 bytes
  std::uint64_t ideal = 0;         ///< the fewest that could carry the same distinct bytes
};

struct Counters {
  std::uint64_t blocks = 0;
  std::uint64_t matrix_flops = 0;      ///< by mma and wgmma
  std::uint64_t mufu = 0;              ///< exp2, reciprocal, log2..., one a thread
  std::uint64_t warp_barriers = 0;     ///< by warp
  std::uint64_t block_barriers = 0;    ///< bar.sync and bar.arrive, by warp
  std::uint64_t cluster_barriers = 0;  ///< by warp
  std::uint64_t mbarrier_arrivals = 0;
  std::uint64_t mbarrier_waits = 0;
  std::uint64_t copied_bytes = 0;  ///< by cp.async and the bulk copy engine, either way
  std::uint64_t bulk_bytes = 0;    ///< of these, by the engine; no line counts them
  std::uint64_t shuffles = 0;      ///< by warp
  std::map<std::tuple<std::string, std::uint32_t, Traffic>, LineCounts> lines;

  void add(const Counters& other);
  /// All lines of one kind together.
  [[nodiscard]] LineCounts total(Traffic traffic) const;
  /// Passes over the banks beyond the ideal, loads and stores together.
  [[nodiscard]] std::uint64_t bank_conflicts() const;
};

/// Passes over the 32 banks that one warp access takes; lanes without an address hold kNoAddress.
inline constexpr std::size_t kNoAddress = ~std::size_t{0};
[[nodiscard]] std::uint32_t bank_passes(const std::array<std::size_t, 32>& offsets, std::size_t bytes);
/// Passes that the distinct bytes of the access need at least.
[[nodiscard]] std::uint32_t fewest_passes(const std::array<std::size_t, 32>& offsets, std::size_t bytes);
/// Distinct 32-byte sectors of one warp access.
[[nodiscard]] std::uint32_t sectors(const std::array<std::size_t, 32>& addresses, std::size_t bytes);

/// Gathers the lanes' accesses of one warp into instructions: the n-th time lanes pass a line is one of them.
class WarpTraffic {
 public:
  void access(int lane, Traffic traffic, std::size_t address, std::size_t bytes, const Where& where);
  /// Counts what some lanes alone did.
  void flush(Counters& counters);

 private:
  struct Key {
    const char* file;
    std::uint32_t line;
    Traffic traffic;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept {
      return std::hash<const void*>()(key.file) ^ key.line * 0x9e3779b9U ^
             static_cast<std::size_t>(key.traffic) << 40;
    }
  };
  struct Instruction {
    std::array<std::size_t, 32> addresses;
    std::size_t bytes;
    int lanes;
  };
  struct Line {
    std::array<std::uint64_t, 32> passed{};  ///< how often each lane came by
    std::uint64_t first = 0;                 ///< number of the first open instruction
    std::vector<Instruction> open;
    LineCounts counts;
  };
  static void count(Traffic traffic, const Instruction& instruction, LineCounts& counts);

  std::unordered_map<Key, Line, Hash> lines_;
};

}  // namespace saccade::emu
