// Division by a number that the host knows: a multiplication and a shift instead of a hundred cycles.
#pragma once

#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE::tile {

/// Divides numbers from 0 to 2^31 - 1 by one of 1 to 2^31 - 1.
class Divisor {
 public:
  constexpr Divisor() = default;
  /// On the host.
  static constexpr Divisor of(int value) {
    Divisor divisor;
    divisor.value_ = static_cast<std::uint32_t>(value);
    if (value <= 1) return divisor;
    while ((std::uint64_t{1} << divisor.shift_) < divisor.value_) ++divisor.shift_;
    --divisor.shift_;  // 2^shift < value <= 2^(shift + 1)
    const std::uint64_t power = std::uint64_t{1} << (32 + divisor.shift_);
    divisor.multiplier_ = static_cast<std::uint32_t>((power + divisor.value_ - 1) / divisor.value_);
    return divisor;
  }

  SACCADE_BOTH constexpr explicit operator int() const { return static_cast<int>(value_); }
  friend SACCADE_BOTH constexpr int operator/(int n, const Divisor& d) {
    const std::uint64_t product = std::uint64_t{static_cast<std::uint32_t>(n)} * d.multiplier_;
    const int quotient =
        d.value_ <= 1 ? n : static_cast<int>(static_cast<std::uint32_t>(product >> 32) >> d.shift_);
    SACCADE_ASSUME(quotient >= 0);
    return quotient;
  }
  friend SACCADE_BOTH constexpr int operator%(int n, const Divisor& d) {
    const int remainder = n - n / d * static_cast<int>(d.value_);
    SACCADE_ASSUME(remainder >= 0);
    return remainder;
  }

 private:
  std::uint32_t value_ = 1;
  std::uint32_t multiplier_ = 0;
  std::uint32_t shift_ = 0;
};

}  // namespace saccade::SACCADE_MACHINE::tile
