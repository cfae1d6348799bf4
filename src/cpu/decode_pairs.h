// Decoding bf16 by an instruction that multiplies two pairs of numbers in every lane and adds both products
// to an f32 sum: twice the products of FMAs, for query rows so many that those would keep memory waiting.
#pragma once

#include "cpu/decode_simd.h"

namespace saccade::decode {

/// Whether this machine, of the instruction sets that a test leaves it, has the instruction.
[[nodiscard]] bool has_pairs();

/// As attend(), for bf16. Weights are rounded to bf16.
void attend_by_pairs(const Unit& unit, const Sizes& sizes, float* scratch, const State& state);

}  // namespace saccade::decode
