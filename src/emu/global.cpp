#include "emu/global.h"

#include <fmt/format.h>

namespace saccade::emu {

void GlobalMemory::add(std::string name, const void* data, std::size_t bytes, Rights rights, bool written) {
  if (bytes == 0) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  Range range{std::move(name), begin, begin + bytes, rights, nullptr};
  if (rights != Rights::read && !written) range.written = std::make_unique<std::atomic<bool>[]>(bytes);
  ranges_.push_back(std::move(range));
}

std::string GlobalMemory::outside(std::uintptr_t at, std::size_t bytes, const char* verb) const {
  for (const Range& range : ranges_) {
    if (at < range.begin || at + bytes > range.end) continue;
    return fmt::format("{} {} bytes at {} of '{}', which may only be {}", verb, bytes, at - range.begin,
                       range.name, range.rights == Rights::read ? "read" : "written");
  }
  // The nearest range is most likely the one that was meant.
  const Range* nearest = nullptr;
  std::uintptr_t best = ~std::uintptr_t{0};
  for (const Range& range : ranges_) {
    const std::uintptr_t distance = at < range.begin ? range.begin - at : at - range.begin;
    if (distance < best) {
      best = distance;
      nearest = &range;
    }
  }
  if (nearest == nullptr)
    return fmt::format("{} {} bytes of global memory, and the launch has none", verb, bytes);
  return fmt::format("{} {} bytes at {} of '{}', which has {}", verb, bytes,
                     static_cast<std::int64_t>(at - nearest->begin), nearest->name,
                     nearest->end - nearest->begin);
}

std::string GlobalMemory::read(const void* data, std::size_t bytes) const {
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  for (const Range& range : ranges_) {
    if (range.rights == Rights::write || at < range.begin || at + bytes > range.end) continue;
    if (range.written == nullptr) return {};
    for (std::size_t n = 0; n < bytes; ++n) {
      if (range.written[at - range.begin + n].load(std::memory_order_relaxed)) continue;
      return fmt::format("reads byte {} of '{}', which nobody has written", at - range.begin + n, range.name);
    }
    return {};
  }
  return outside(at, bytes, "reads");
}

std::string GlobalMemory::write(const void* data, std::size_t bytes) const {
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  for (const Range& range : ranges_) {
    if (range.rights == Rights::read || at < range.begin || at + bytes > range.end) continue;
    if (range.written != nullptr) {
      for (std::size_t n = 0; n < bytes; ++n) {
        range.written[at - range.begin + n].store(true, std::memory_order_relaxed);
      }
    }
    return {};
  }
  return outside(at, bytes, "writes");
}

}  // namespace saccade::emu
