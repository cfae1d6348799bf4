// The loops behind the ceilings, compiled for every SIMD target and dispatched at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace saccade::measure {

/// The SIMD target that Highway chose on this machine, e.g. "AVX3_DL".
[[nodiscard]] const char* simd_target();

/// Float operations of one iteration of the loops of fma_loop().
[[nodiscard]] double fma_flops_per_iteration(bool wide);
/// Nothing but independent fused multiply-adds in registers: 12 chains, or 24 when `wide` (for cores with
/// more multipliers than 12 chains feed). The result keeps the compiler from dropping them.
float fma_loop(bool wide, std::int64_t iterations);

/// Whether a loop asks for lines before it reads them, and for which level of the cache.
enum class Prefetch { none, first_level, second_level };
/// Reads `bytes` bytes (a multiple of kReadBlock) once, as `streams` (1, 2, 4 or 8) equal runs side by side.
std::uint32_t read_loop(const std::byte* data, std::size_t bytes, int streams, Prefetch prefetch);
/// What read_loop takes at a time.
inline constexpr std::size_t kReadBlock = 4096;

/// Copies `bytes` bytes (a multiple of kReadBlock, 64-byte aligned), around the caches when `streaming`.
void copy_loop(const std::byte* from, std::byte* to, std::size_t bytes, bool streaming);

}  // namespace saccade::measure
