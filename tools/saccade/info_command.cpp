#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <saccade/plan.h>
#include <saccade/run.h>

#include "commands.h"
#include "console.h"
#include "cuda_driver.h"
#include "measure/provenance.h"

namespace saccade::cli {
namespace {

nlohmann::ordered_json info_document(const measure::Provenance& provenance, const CudaDevices& cuda) {
  nlohmann::ordered_json document = {{"schema", "saccade.info/1"}, {"provenance", provenance}};
  document["devices"] = nlohmann::ordered_json::array();
  document["devices"].push_back({{"device", "cpu"}, {"name", provenance.host.cpu_model}});
  for (std::size_t i = 0; i < cuda.devices.size(); ++i) {
    const CudaDevice& device = cuda.devices[i];
    document["devices"].push_back({{"device", fmt::format("cuda:{}", i)},
                                   {"name", device.name},
                                   {"compute_capability", fmt::format("{}.{}", device.major, device.minor)},
                                   {"memory_bytes", device.memory_bytes}});
  }
  if (cuda.devices.empty()) document["why_no_cuda_device"] = cuda.why_none;
  document["kernels"] = nlohmann::ordered_json::array();
  for (const KernelInfo& kernel : kernels()) {
    document["kernels"].push_back({{"name", kernel.name},
                                   {"device", kernel.device == DeviceKind::cpu ? "cpu" : "cuda"},
                                   {"summary", kernel.summary}});
  }
  return document;
}

void print_info(const measure::Provenance& provenance, const CudaDevices& cuda) {
  const measure::Host& host = provenance.host;
  fmt::print("saccade {} (commit {}{}; {} {})\n\n", provenance.version, provenance.commit,
             provenance.dirty ? ", changed" : "", provenance.compiler, provenance.flags);
  fmt::print("machine\n  cpu       {}, {} logical CPUs, largest cache {}\n", host.cpu_model,
             host.logical_cpus, format_bytes(static_cast<double>(host.largest_cache_bytes)));
  fmt::print("  simd      {}\n  memory    {}\n  governor  {}\n\n", host.simd_target,
             format_bytes(static_cast<double>(host.memory_bytes)), host.governor);
  fmt::print("devices\n  cpu       {}\n", host.cpu_model);
  for (std::size_t i = 0; i < cuda.devices.size(); ++i) {
    const CudaDevice& device = cuda.devices[i];
    fmt::print("  cuda:{}    {}, compute capability {}.{}, {}\n", i, device.name, device.major, device.minor,
               format_bytes(static_cast<double>(device.memory_bytes)));
  }
  if (cuda.devices.empty()) fmt::print("  cuda      none: {}\n", cuda.why_none);
  for (const measure::GpuState& gpu : provenance.gpus.gpus) {
    const char* const held_back = gpu.held_back_by.empty()     ? ""
                                  : measure::is_throttled(gpu) ? "; throttled, times now say little: "
                                                               : "; held back by: ";
    fmt::print("  clocks    {}: SM {} of {} MHz, memory {} of {} MHz, {} W, {} C, driver {}{}{}\n", gpu.name,
               gpu.sm_clock_mhz, gpu.max_sm_clock_mhz, gpu.memory_clock_mhz, gpu.max_memory_clock_mhz,
               gpu.power_watts, gpu.temperature_celsius, provenance.gpus.driver, held_back,
               fmt::join(gpu.held_back_by, ", "));
  }
  fmt::print("\nkernels, in the planner's order\n");
  Table table({{"name"}, {"device"}, {"what it does"}});
  for (const KernelInfo& kernel : kernels()) {
    table.add({std::string(kernel.name), kernel.device == DeviceKind::cpu ? "cpu" : "cuda",
               std::string(kernel.summary)});
  }
  fmt::print("{}", table.text("  "));
}

}  // namespace

int run_info(const Globals& globals) {
  const measure::Provenance provenance = measure::collect_provenance(0, globals.command_line);
  const CudaDevices cuda = find_cuda_devices();
  if (globals.json) {
    print_json(info_document(provenance, cuda));
  } else {
    print_info(provenance, cuda);
  }
  return kOk;
}

}  // namespace saccade::cli
