// Where a measurement comes from: source, build, machine and call. Never the machine's name.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "measure/gpu.h"

namespace saccade::measure {

/// The host as far as it matters to a measurement.
struct Host {
  std::string cpu_model;
  int logical_cpus = 0;  ///< that this process may use
  std::uint64_t memory_bytes = 0;
  std::uint64_t largest_cache_bytes = 0;
  std::string simd_target;
  std::string governor;  ///< "unknown" where the system does not tell
};
[[nodiscard]] Host describe_host();

/// What was measured by whom and when.
struct Provenance {
  std::string commit;  ///< of the source that was built; "unknown" without git
  bool dirty = false;  ///< whether the source differed from that commit
  std::string version;
  std::string compiler;
  std::string flags;
  std::string toolkit;  ///< CUDA's version at build time; "none" without CUDA kernels
  Host host;
  Gpus gpus;         ///< their clocks at this moment
  std::string date;  ///< UTC, ISO 8601
  std::uint64_t seed = 0;
  std::string command_line;
};

/// This moment in UTC, ISO 8601, to the second.
[[nodiscard]] std::string utc_now();

/// Everything that this build and this moment know.
[[nodiscard]] Provenance collect_provenance(std::uint64_t seed, std::string command_line);

void to_json(nlohmann::ordered_json& json, const Host& host);
void to_json(nlohmann::ordered_json& json, const Provenance& provenance);

}  // namespace saccade::measure
