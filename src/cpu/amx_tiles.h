// What the AMX kernel's host side (amx.cpp) asks of its tile side (amx_tiles.cpp).
//
// The schedule is cpu_blocked's (blocked_simd.h): lanes over query rows, scores and output transposed, the
// same state and the same end. The matrix products are done by tiles of bf16 numbers with f32 sums. A wider
// number is cut into as many bf16 numbers as hold it exactly: one (bf16), two (f16) or three (f32).
#pragma once

#include <cstdint>

#include <saccade/problem.h>

#include "cpu/blocked_simd.h"

namespace saccade::amx {

/// Keys and dimensions are handled in multiples of this: the depth of a tile, and two tiles' rows.
inline constexpr std::int64_t kUnit = 32;
/// Rows of a panel: two tiles, too.
inline constexpr std::int64_t kPanelRows = 32;

/// Whether the compiler knew the tiles. Without them attend() is blocked::attend.
[[nodiscard]] bool compiled();

/// Floats of scratch that attend() needs, blocked::finish()'s included. `sizes` with kPanelRows and kUnit.
[[nodiscard]] std::int64_t scratch_floats(const Problem& problem, const blocked::Sizes& sizes);

/// As blocked::attend. A block of f16 or f32 with a number that is not finite goes to that function: cut into
/// parts, infinity would meet zeros.
void attend(const blocked::RowBlock& block, const blocked::Sizes& sizes, float* scratch,
            const blocked::State& state);

/// Cuts 16 numbers into `parts` bf16 numbers each, as attend() does: to[part][16], largest first.
void split(const float* from, int parts, float* to);

}  // namespace saccade::amx
