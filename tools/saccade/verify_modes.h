// The two modes of `verify` that bring their own problems.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command.h"

namespace saccade::cli {

/// Plants every known bug at every dtype; kCheckFailed unless all are caught.
[[nodiscard]] ExitCode run_self_test(std::uint64_t seed, const Globals& globals);

/// Verifies `count` random problems on the named kernels (none: all of the device), shrinking what fails.
[[nodiscard]] ExitCode run_fuzz(std::int64_t count, std::uint64_t seed,
                                const std::vector<std::string>& kernels, const std::string& device,
                                const Globals& globals);

}  // namespace saccade::cli
