// Numbers by which a whole test run can be made longer or repeated.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace saccade {

/// The environment variable as a number; `standard` where it is not set.
inline std::uint64_t from_environment(const char* name, std::uint64_t standard) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : standard;
}

}  // namespace saccade
