#include "measure/provenance.h"

#include <chrono>
#include <fmt/chrono.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <unistd.h>

#include "build_commit.h"
#include "measure/cache.h"
#include "measure/ceiling_kernels.h"

namespace saccade::measure {
namespace {

constexpr char kUnknown[] = "unknown";

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return kUnknown;
}

int usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

std::string governor() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  std::string word;
  return file >> word ? word : kUnknown;
}

}  // namespace

Host describe_host() {
  return {.cpu_model = cpu_model(),
          .logical_cpus = usable_cpus(),
          .memory_bytes = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                          static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)),
          .largest_cache_bytes = largest_cache_bytes(),
          .simd_target = simd_target(),
          .governor = governor()};
}

std::string utc_now() {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(now)));
}

Provenance collect_provenance(std::uint64_t seed, std::string command_line) {
  return {.commit = kBuildCommit,
          .dirty = kBuildDirty,
          .version = SACCADE_VERSION,
          .compiler = SACCADE_COMPILER,
          .flags = SACCADE_FLAGS,
          .toolkit = SACCADE_TOOLKIT,
          .host = describe_host(),
          .gpus = read_gpus(),
          .date = utc_now(),
          .seed = seed,
          .command_line = std::move(command_line)};
}

void to_json(nlohmann::ordered_json& json, const Host& host) {
  json = {{"cpu", host.cpu_model},
          {"logical_cpus", host.logical_cpus},
          {"memory_bytes", host.memory_bytes},
          {"largest_cache_bytes", host.largest_cache_bytes},
          {"simd_target", host.simd_target},
          {"governor", host.governor}};
}

void to_json(nlohmann::ordered_json& json, const Provenance& provenance) {
  json = {{"commit", provenance.commit},   {"dirty", provenance.dirty},
          {"version", provenance.version}, {"compiler", provenance.compiler},
          {"flags", provenance.flags},     {"toolkit", provenance.toolkit},
          {"host", provenance.host},       {"driver", provenance.gpus.driver},
          {"gpus", provenance.gpus.gpus},  {"date", provenance.date},
          {"seed", provenance.seed},       {"command_line", provenance.command_line}};
}

}  // namespace saccade::measure
