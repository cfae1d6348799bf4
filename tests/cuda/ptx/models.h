// What each probe must put out, written plainly and without the emulator.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "probes.h"

namespace saccade {
[[nodiscard]] std::vector<std::uint32_t> model(const Probe& probe, std::span<const std::uint32_t> in);
}  // namespace saccade
