#include "cupti.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fmt/format.h>
#include <mutex>

namespace saccade::cli {
namespace {

// Of cupti_activity.h. The fields up to `end` are the same in CUpti_ActivityKernel3 to 10.
constexpr unsigned kConcurrentKernel = 10;
constexpr unsigned kFlushForced = 1;
struct KernelRecord {
  std::uint32_t kind;
  std::uint32_t fields[3];
  std::uint64_t start, end;  ///< nanoseconds
};
constexpr std::size_t kBufferBytes = 1 << 20;
constexpr std::size_t kBufferAlignment = 8;

using NextRecord = int (*)(std::uint8_t* buffer, std::size_t valid_bytes, void** record);

// CUPTI's callbacks carry no pointer of ours.
NextRecord next_record = nullptr;
std::mutex times_mutex;
std::vector<double> times;

void buffer_requested(std::uint8_t** buffer, std::size_t* bytes, std::size_t* max_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;
}

void buffer_completed(void* /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
                      std::size_t /*bytes*/, std::size_t valid_bytes) {
  const std::scoped_lock lock(times_mutex);
  void* record = nullptr;
  while (valid_bytes > 0 && next_record(buffer, valid_bytes, &record) == 0) {
    KernelRecord kernel{};
    std::memcpy(&kernel.kind, record, sizeof kernel.kind);
    if (kernel.kind != kConcurrentKernel) continue;
    std::memcpy(&kernel, record, sizeof kernel);
    times.push_back(static_cast<double>(kernel.end - kernel.start) * 1e-3);
  }
  std::free(buffer);
}

void* open_library() {
  for (const char* name :
       {"libcupti.so", "libcupti.so.13", "libcupti.so.12", "/usr/local/cuda/lib/libcupti.so",
        "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so", "/usr/local/cuda/lib64/libcupti.so"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

}  // namespace

CuptiTrace::CuptiTrace() {
  void* library = open_library();  // never closed: its threads may outlive us
  if (library == nullptr) {
    why_none_ = "CUPTI is not installed (no libcupti.so)";
    return;
  }
  int (*register_callbacks)(void (*)(std::uint8_t**, std::size_t*, std::size_t*),
                            void (*)(void*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t)) =
      nullptr;
  int (*enable)(unsigned kind) = nullptr;
  const auto find = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  if (!find(register_callbacks, "cuptiActivityRegisterCallbacks") || !find(enable, "cuptiActivityEnable") ||
      !find(flush_, "cuptiActivityFlushAll") || !find(next_record, "cuptiActivityGetNextRecord")) {
    why_none_ = "this CUPTI has no activity records";
    flush_ = nullptr;
    return;
  }
  int error = register_callbacks(buffer_requested, buffer_completed);
  if (error == 0) error = enable(kConcurrentKernel);
  if (error != 0) why_none_ = fmt::format("CUPTI refused to watch (error {})", error);
}

std::vector<double> CuptiTrace::microseconds() const {
  if (!why_none_.empty() || flush_(kFlushForced) != 0) return {};
  const std::scoped_lock lock(times_mutex);
  return times;
}

}  // namespace saccade::cli
