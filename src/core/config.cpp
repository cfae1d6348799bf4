#include "core/config.h"

#include <charconv>
#include <fmt/format.h>
#include <sstream>

namespace saccade {

Config::Config(std::string_view text) {
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) {
      problem_ = fmt::format("'{}' is not of the form key=value", word);
    } else {
      settings_[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
}

int Config::take(const std::string& key, int standard, int min, int max) {
  const auto found = settings_.find(key);
  if (found == settings_.end()) return standard;
  const std::string text = found->second;
  settings_.erase(found);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < min || value > max) {
    problem_ = fmt::format("{} is '{}'; it must be a whole number from {} to {}", key, text, min, max);
    return standard;
  }
  return value;
}

Status Config::finish(std::string_view kernel) const {
  if (!problem_.empty()) return {Code::invalid_argument, fmt::format("config for {}: {}", kernel, problem_)};
  if (!settings_.empty()) {
    return {Code::invalid_argument,
            fmt::format("config for {}: there is no setting '{}'", kernel, settings_.begin()->first)};
  }
  return {};
}

}  // namespace saccade
