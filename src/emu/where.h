// A place in a kernel's source, for messages and for the counters.
#pragma once

#include <cstdint>
#include <string>

namespace saccade::emu {

/// File and line of a primitive's caller. Made implicitly as a default argument.
struct Where {
  const char* file = "";
  std::uint32_t line = 0;

  // std::source_location needs a newer Clang than 14.
  static Where current(const char* file = __builtin_FILE(), std::uint32_t line = __builtin_LINE()) {
    return {file, line};
  }
  friend bool operator==(const Where&, const Where&) = default;
};

/// "src/cuda/ladder/wmma.cu:71".
[[nodiscard]] std::string to_string(const Where& where);

}  // namespace saccade::emu
