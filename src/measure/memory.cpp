#include "measure/memory.h"

#include <fstream>
#include <malloc.h>
#include <string>

namespace saccade::measure {
namespace {

/// A line of /proc/self/status such as "VmHWM:    1234 kB", in bytes.
std::optional<std::size_t> status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1)) * 1024;
  }
  return std::nullopt;
}

/// Makes the peak (VmHWM) start again from the present size.
bool reset_peak() {
  std::ofstream clear_refs("/proc/self/clear_refs");
  clear_refs << "5" << std::flush;
  return clear_refs.good();
}

}  // namespace

std::optional<std::size_t> peak_growth(const std::function<void()>& call) {
  malloc_trim(0);
  if (!reset_peak()) return std::nullopt;
  const auto before = status_bytes("VmRSS");
  call();
  const auto peak = status_bytes("VmHWM");
  if (!before || !peak) return std::nullopt;
  return *peak > *before ? *peak - *before : 0;
}

}  // namespace saccade::measure
