#include "cuda_driver.h"

#include <cstddef>
#include <dlfcn.h>
#include <fmt/format.h>
#include <memory>

namespace saccade::cli {
namespace {

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};

// Attribute numbers of the driver API.
constexpr int kComputeCapabilityMajor = 75;
constexpr int kComputeCapabilityMinor = 76;

/// The few entry points of the driver API that a listing needs. 0 is success.
struct Driver {
  int (*init)(unsigned flags) = nullptr;
  int (*device_count)(int* count) = nullptr;
  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*device_name)(char* name, int size, int device) = nullptr;
  int (*device_memory)(std::size_t* bytes, int device) = nullptr;
  int (*device_attribute)(int* value, int attribute, int device) = nullptr;

  bool load(void* library) {
    const auto find = [library](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return find(init, "cuInit") && find(device_count, "cuDeviceGetCount") &&
           find(device_get, "cuDeviceGet") && find(device_name, "cuDeviceGetName") &&
           find(device_memory, "cuDeviceTotalMem_v2") && find(device_attribute, "cuDeviceGetAttribute");
  }
};

}  // namespace

CudaDevices find_cuda_devices() {
  const std::unique_ptr<void, CloseLibrary> library(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) return {{}, "no CUDA driver on this machine (libcuda.so.1 is not installed)"};
  Driver driver;
  if (!driver.load(library.get())) return {{}, "the CUDA driver is too old to be asked"};
  if (const int error = driver.init(0); error != 0) {
    return {{}, fmt::format("the CUDA driver found no usable GPU (cuInit answered {})", error)};
  }
  int count = 0;
  if (driver.device_count(&count) != 0 || count == 0) return {{}, "the CUDA driver is here but lists no GPU"};
  CudaDevices found;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CudaDevice device;
    int handle = 0;
    char name[256] = "";
    std::size_t bytes = 0;
    if (driver.device_get(&handle, ordinal) != 0 || driver.device_name(name, sizeof name, handle) != 0)
      continue;
    driver.device_memory(&bytes, handle);
    driver.device_attribute(&device.major, kComputeCapabilityMajor, handle);
    driver.device_attribute(&device.minor, kComputeCapabilityMinor, handle);
    device.name = name;
    device.memory_bytes = bytes;
    found.devices.push_back(std::move(device));
  }
  return found;
}

}  // namespace saccade::cli
