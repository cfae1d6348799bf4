#include "verify/guarded_buffer.h"

#include <algorithm>
#include <bit>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace saccade {
namespace {

std::byte pattern_byte(const std::byte* at, std::uint16_t pattern) {
  return static_cast<std::byte>(std::bit_cast<std::uintptr_t>(at) % 2 == 0 ? pattern & 0xffU : pattern >> 8);
}

bool holds_pattern(std::span<const std::byte> memory) {
  return std::ranges::all_of(
      memory, [](const std::byte& byte) { return byte == pattern_byte(&byte, kGuardPattern); });
}

}  // namespace

void fill_pattern(std::span<std::byte> memory, std::uint16_t pattern) {
  for (std::byte& byte : memory) byte = pattern_byte(&byte, pattern);
}

GuardedBuffer::GuardedBuffer(std::size_t bytes, std::size_t alignment, PastEnd past_end) : size_(bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t after = past_end == PastEnd::band ? kBandBytes : 0;
  accessible_size_ = (kBandBytes + bytes + alignment + after + page - 1) / page * page;
  mapping_size_ = accessible_size_ + 2 * page;
  mapping_ = mmap(nullptr, mapping_size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    throw std::bad_alloc();
  }
  accessible_ = static_cast<std::byte*>(mapping_) + page;
  if (mprotect(accessible_, accessible_size_, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapping_, mapping_size_);  // a constructor that throws gets no destructor
    throw std::bad_alloc();
  }
  const std::size_t start = (accessible_size_ - after - bytes) / alignment * alignment;
  begin_ = accessible_ + start;
  fill_pattern(accessible(), kGuardPattern);
}

GuardedBuffer::~GuardedBuffer() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_size_);
}

bool GuardedBuffer::bands_intact() const {
  const auto before = static_cast<std::size_t>(begin_ - accessible_);
  return holds_pattern(accessible().first(before)) && holds_pattern(accessible().subspan(before + size_));
}

}  // namespace saccade
