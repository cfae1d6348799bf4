// A place in a kernel's source, for messages and for the counters.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

namespace saccade::emu {

/// File and line of a primitive's caller. Made implicitly as a default argument.
struct Where {
  const char* file = "";
  std::uint32_t line = 0;

  static Where current(const std::source_location& at = std::source_location::current()) {
    return {at.file_name(), at.line()};
  }
  friend bool operator==(const Where&, const Where&) = default;
};

/// "src/cuda/ladder/wmma.cu:71".
[[nodiscard]] std::string to_string(const Where& where);

}  // namespace saccade::emu
