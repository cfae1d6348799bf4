// Kernel settings as text: "key=value key=value", whole numbers only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <saccade/status.h>

namespace saccade {

/// Reads settings one by one; what is left or out of range at the end is an error.
class Config {
 public:
  explicit Config(std::string_view text);

  /// The setting `key`, or `standard` when it is not given. A value outside [min, max] is reported by
  /// finish().
  int take(const std::string& key, int standard, int min, int max);

  /// An error that names the first setting `kernel` did not understand, or nothing.
  [[nodiscard]] Status finish(std::string_view kernel) const;

 private:
  std::map<std::string, std::string> settings_;
  std::string problem_;
};

}  // namespace saccade
