// Four warps that multiply matrices together: wgmma, and what is in flight of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "emu/where.h"

namespace saccade::emu {

inline constexpr std::uint32_t kWarpgroupWarps = 4;
inline constexpr std::uint32_t kWarpgroupThreads = 128;

class Thread;

/// One thread's part of D(64 x columns) = A(64 x 16) * B(16 x columns) [+ D].
struct MatrixProduct {
  float* d = nullptr;  ///< columns / 2 registers
  std::uint32_t columns = 0;
  bool accumulate = false;
  bool a_in_registers = false;
  std::array<std::uint32_t, 4> a{};  ///< registers; used when a_in_registers
  std::uint64_t a_descriptor = 0;    ///< used otherwise
  bool a_transposed = false;         ///< M-major
  std::uint64_t b_descriptor = 0;
  bool b_transposed = false;  ///< N-major
  float (*to_float)(std::uint16_t) = nullptr;
};

struct Warpgroup {
  // The instruction at which its threads meet.
  const char* name = "";
  Where where;
  std::uint32_t arrived = 0;
  std::array<void*, kWarpgroupThreads> arguments{};
  std::vector<Thread*> waiting;

  /// Products that were issued and not yet computed, oldest first; they are done in this order.
  struct Pending {
    std::uint64_t number;
    std::uint32_t group;
    std::function<void()> compute;
  };
  std::deque<Pending> products;
  std::uint64_t issued = 0;

  std::uint32_t registers = 0;  ///< of each thread
};

}  // namespace saccade::emu
