#include "measure/gpu.h"

#include <algorithm>
#include <array>
#include <dlfcn.h>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>
#include <utility>

namespace saccade::measure {
namespace {

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};

using Device = void*;
constexpr int kSmClock = 1, kMemoryClock = 2;  // nvmlClockType_t
constexpr int kGpuTemperature = 0;             // nvmlTemperatureSensors_t

/// The few entry points of NVML that are needed. 0 is success.
struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*driver_version)(char* text, unsigned size) = nullptr;
  int (*device_count)(unsigned* count) = nullptr;
  int (*device)(unsigned index, Device* device) = nullptr;
  int (*name)(Device device, char* text, unsigned size) = nullptr;
  int (*clock)(Device device, int type, unsigned* mhz) = nullptr;
  int (*max_clock)(Device device, int type, unsigned* mhz) = nullptr;
  int (*power)(Device device, unsigned* milliwatts) = nullptr;
  int (*temperature)(Device device, int sensor, unsigned* celsius) = nullptr;
  int (*throttle_reasons)(Device device, unsigned long long* bits) = nullptr;

  bool load(void* library) {
    const auto find = [library](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
      return function != nullptr;
    };
    return find(init, "nvmlInit_v2") && find(shutdown, "nvmlShutdown") &&
           find(driver_version, "nvmlSystemGetDriverVersion") &&
           find(device_count, "nvmlDeviceGetCount_v2") && find(device, "nvmlDeviceGetHandleByIndex_v2") &&
           find(name, "nvmlDeviceGetName") && find(clock, "nvmlDeviceGetClockInfo") &&
           find(max_clock, "nvmlDeviceGetMaxClockInfo") && find(power, "nvmlDeviceGetPowerUsage") &&
           find(temperature, "nvmlDeviceGetTemperature") &&
           find(throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  }
};

constexpr std::array<std::pair<std::string_view, bool>, 9> kReasons = {{
    // name, and whether it is about heat or power
    {"idle", false},
    {"application clocks", false},
    {"power cap", true},
    {"hardware slowdown", true},
    {"sync boost", false},
    {"heat (software)", true},
    {"heat (hardware)", true},
    {"power brake", true},
    {"display clocks", false},
}};

GpuState read_state(const Nvml& nvml, Device device) {
  GpuState gpu;
  char name[96] = "";
  if (nvml.name(device, name, sizeof name) == 0) gpu.name = name;
  // Each of these may be unsupported by a GPU; the number then stays 0.
  nvml.clock(device, kSmClock, &gpu.sm_clock_mhz);
  nvml.max_clock(device, kSmClock, &gpu.max_sm_clock_mhz);
  nvml.clock(device, kMemoryClock, &gpu.memory_clock_mhz);
  nvml.max_clock(device, kMemoryClock, &gpu.max_memory_clock_mhz);
  if (unsigned milliwatts = 0; nvml.power(device, &milliwatts) == 0)
    gpu.power_watts = (milliwatts + 500) / 1000;
  nvml.temperature(device, kGpuTemperature, &gpu.temperature_celsius);
  if (unsigned long long bits = 0; nvml.throttle_reasons(device, &bits) == 0)
    gpu.held_back_by = reasons_of(bits);
  return gpu;
}

}  // namespace

Gpus read_gpus() {
  const std::unique_ptr<void, CloseLibrary> library(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr)
    return {"", {}, "no NVIDIA driver on this machine (libnvidia-ml.so.1 is not installed)"};
  Nvml nvml;
  if (!nvml.load(library.get())) return {"", {}, "the NVIDIA driver is too old to be asked"};
  if (const int error = nvml.init(); error != 0) {
    return {"", {}, fmt::format("the NVIDIA driver does not answer (nvmlInit gave {})", error)};
  }
  Gpus found;
  char version[96] = "";
  if (nvml.driver_version(version, sizeof version) == 0) found.driver = version;
  unsigned count = 0;
  nvml.device_count(&count);
  for (unsigned index = 0; index < count; ++index) {
    if (Device device = nullptr; nvml.device(index, &device) == 0)
      found.gpus.push_back(read_state(nvml, device));
  }
  nvml.shutdown();
  if (found.gpus.empty()) found.why_none = "the NVIDIA driver is here but lists no GPU";
  return found;
}

std::vector<std::string> reasons_of(std::uint64_t bits) {
  std::vector<std::string> words;
  for (std::size_t bit = 0; bit < kReasons.size(); ++bit) {
    if ((bits >> bit & 1U) != 0) words.emplace_back(kReasons[bit].first);
  }
  if (const std::uint64_t rest = bits >> kReasons.size() << kReasons.size(); rest != 0) {
    words.push_back(fmt::format("{:#x}", rest));
  }
  return words;
}

bool is_throttled(const GpuState& gpu) {
  return std::ranges::any_of(gpu.held_back_by, [](const std::string& word) {
    return std::ranges::any_of(kReasons,
                               [&](const auto& reason) { return reason.second && reason.first == word; });
  });
}

void to_json(nlohmann::ordered_json& json, const GpuState& gpu) {
  json = {{"name", gpu.name},
          {"sm_clock_mhz", gpu.sm_clock_mhz},
          {"max_sm_clock_mhz", gpu.max_sm_clock_mhz},
          {"memory_clock_mhz", gpu.memory_clock_mhz},
          {"max_memory_clock_mhz", gpu.max_memory_clock_mhz},
          {"power_watts", gpu.power_watts},
          {"temperature_celsius", gpu.temperature_celsius},
          {"held_back_by", gpu.held_back_by}};
}

}  // namespace saccade::measure
