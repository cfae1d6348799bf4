// Philox4x32-10: random numbers by position, the same on every machine and in every order of work.
#pragma once

#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE::tile {

/// Four random words for one counter and key (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
struct Philox {
  std::uint32_t words[4];

  static SACCADE_BOTH constexpr Philox at(std::uint32_t c0, std::uint32_t c1, std::uint32_t c2,
                                          std::uint32_t c3, std::uint32_t k0, std::uint32_t k1) {
    constexpr int kRounds = 10;
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t a = std::uint64_t{0xD2511F53U} * c0;
      const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * c2;
      c0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ k0;
      c2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ k1;
      c1 = static_cast<std::uint32_t>(b);
      c3 = static_cast<std::uint32_t>(a);
      k0 += 0x9E3779B9U;  // the golden ratio
      k1 += 0xBB67AE85U;  // sqrt(3) - 1
    }
    return {{c0, c1, c2, c3}};
  }
};

}  // namespace saccade::SACCADE_MACHINE::tile
