// The GPUs' clocks and what holds them back, as the driver's management library (NVML) tells. It is loaded at
// run time: no toolkit is needed to build, and no driver to run.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace saccade::measure {

/// One GPU at one moment. What the driver would not tell is 0.
struct GpuState {
  std::string name;
  unsigned sm_clock_mhz = 0, max_sm_clock_mhz = 0;
  unsigned memory_clock_mhz = 0, max_memory_clock_mhz = 0;
  unsigned power_watts = 0;
  unsigned temperature_celsius = 0;
  std::vector<std::string> held_back_by;  ///< why the clocks are not at their highest; empty: they may be
};

struct Gpus {
  std::string driver;  ///< its version; empty without one
  std::vector<GpuState> gpus;
  std::string why_none;  ///< a sentence when there is none
};

/// Asks libnvidia-ml.so.1, if it can be loaded.
[[nodiscard]] Gpus read_gpus();

/// NVML's bits (nvmlClocksThrottleReason*) as words, lowest bit first; unknown bits as "0x...".
[[nodiscard]] std::vector<std::string> reasons_of(std::uint64_t bits);

/// Whether any of the words is about heat or power: then a measurement says little about the kernel.
[[nodiscard]] bool is_throttled(const GpuState& gpu);

void to_json(nlohmann::ordered_json& json, const GpuState& gpu);

}  // namespace saccade::measure
