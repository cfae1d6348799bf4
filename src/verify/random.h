// Counter-based random numbers, the same bits on every machine: whole-number arithmetic and one exact
// scaling.
#pragma once

#include <cstdint>

namespace saccade {

/// splitmix64's step: a bijection whose output looks random for consecutive inputs.
inline std::uint64_t scramble(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  return x ^ x >> 31;
}

/// The seed of an independent stream, e.g. one for each tensor of a case.
inline std::uint64_t stream(std::uint64_t seed, std::uint64_t which) {
  return scramble(scramble(seed) ^ scramble(~which));
}

/// Number `index` of a N(0,1) stream: 64 coin tosses, smoothed by a triangle of two uniforms. Its density is
/// the normal one to within 1% out to 3 sigma, and, unlike Box-Muller, no libm decides its last bit.
inline float normal(std::uint64_t stream, std::uint64_t index) {
  const std::uint64_t tosses = scramble(stream ^ scramble(index));
  const std::uint64_t uniforms = scramble(tosses);
  std::uint64_t n = tosses - (tosses >> 1 & 0x5555555555555555U);  // popcount; x86-64 v1 has no instruction
  n = (n & 0x3333333333333333U) + (n >> 2 & 0x3333333333333333U);
  n = ((n + (n >> 4)) & 0x0f0f0f0f0f0f0f0fU) * 0x0101010101010101U >> 56;
  const auto triangle = static_cast<float>(static_cast<std::int64_t>(uniforms >> 32) -
                                           static_cast<std::int64_t>(uniforms & 0xffffffffU));
  constexpr float kInverseDeviation = 0.248708F;  // 1 / sqrt(64/4 + 1/6)
  return (triangle * 0x1p-32F + static_cast<float>(static_cast<std::int64_t>(n) - 32)) * kInverseDeviation;
}

/// A sequence of choices.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() { return scramble(state_++); }
  /// From 0 to n - 1; n > 0.
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(n));
  }
  /// From low to high, both included.
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  /// True in `percent` of 100 cases.
  bool chance(int percent) { return below(100) < percent; }

 private:
  std::uint64_t state_;
};

}  // namespace saccade
