// A family's table of instances: the text of a configuration, and the instance that a text names.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/config.h"
#include "core/kernel.h"

namespace saccade {

/// One number of a family's configuration, and what it is called.
template <class C>
struct Setting {
  using Member = int C::*;
  const char* key;
  Member value;
  int least = 1;
};

/// "key=value key=value ...", in the order of the settings.
template <class C>
std::string to_text(const C& config, std::span<const Setting<C>> settings) {
  std::string text;
  for (const Setting<C>& setting : settings) {
    if (!text.empty()) text += ' ';
    text.append(setting.key).append("=").append(std::to_string(config.*setting.value));
  }
  return text;
}

/// Changes what is given.
template <class C>
void take_settings(Config& given, C& config, std::span<const Setting<C>> settings) {
  constexpr int kMost = 1024;  // more is none of ours, and products of a few such numbers fit
  for (const Setting<C>& setting : settings)
    config.*setting.value = given.take(setting.key, config.*setting.value, setting.least, kMost);
}

/// The entry with this configuration. refusal(config) is why an instance does not take the problem, or
/// nothing.
template <class Entry, class C, class Refusal>
Result<const Entry*> find_instance(std::string_view family, std::span<const Entry> entries, const C& config,
                                   std::span<const Setting<C>> settings, const Refusal& refusal) {
  std::string known;
  for (const Entry& entry : entries) {
    const std::optional<std::string> reason = refusal(entry.config);
    if (entry.config == config && !reason) return &entry;
    if (entry.config == config)
      return Status(Code::invalid_argument, to_text(config, settings) + ": " + *reason);
    if (!reason) known.append(known.empty() ? "" : "; ").append(to_text(entry.config, settings));
  }
  return Status(Code::invalid_argument, std::string(family) + " was not built with " +
                                            to_text(config, settings) + "; there are: " + known);
}

/// Why a block cannot have so much shared memory on this machine, or nothing.
inline std::optional<std::string> refuse_shared_memory(std::size_t bytes, const Machine& machine) {
  if (bytes <= machine.shared_bytes_per_block) return std::nullopt;
  return "it needs " + std::to_string(bytes) + " bytes of shared memory; a block of this GPU may have " +
         std::to_string(machine.shared_bytes_per_block);
}

}  // namespace saccade
