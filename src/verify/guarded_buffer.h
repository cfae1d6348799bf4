// Memory that notices when somebody leaves it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace saccade {

/// What follows the last byte of a buffer.
enum class PastEnd {
  fault,  ///< A page that may not be touched: reading one element too far ends the process.
  band,   ///< A pattern that reads as NaN: for runners that are known to be broken.
};

/// 16 bits that are a NaN as f16 and bf16, twice a NaN as f32, and as an index far out of range.
inline constexpr std::uint16_t kGuardPattern = 0x7ff5;

/// Fills memory with a 16-bit pattern that starts on even addresses.
void fill_pattern(std::span<std::byte> memory, std::uint16_t pattern);

/// Bytes between two bands of the guard pattern.
class GuardedBuffer {
 public:
  static constexpr std::size_t kBandBytes = 4096;

  GuardedBuffer() = default;
  /// `alignment` is a power of two, at most a page. The contents are the guard pattern.
  GuardedBuffer(std::size_t bytes, std::size_t alignment, PastEnd past_end);
  GuardedBuffer(GuardedBuffer&& other) noexcept { swap(other); }
  GuardedBuffer& operator=(GuardedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~GuardedBuffer();

  [[nodiscard]] std::span<std::byte> bytes() const { return {begin_, size_}; }
  /// Everything that may be read: both bands and the bytes between them.
  [[nodiscard]] std::span<std::byte> accessible() const { return {accessible_, accessible_size_}; }
  /// Whether both bands still hold the pattern.
  [[nodiscard]] bool bands_intact() const;

 private:
  void swap(GuardedBuffer& other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(mapping_size_, other.mapping_size_);
    std::swap(accessible_, other.accessible_);
    std::swap(accessible_size_, other.accessible_size_);
    std::swap(begin_, other.begin_);
    std::swap(size_, other.size_);
  }

  void* mapping_ = nullptr;
  std::size_t mapping_size_ = 0;
  std::byte* accessible_ = nullptr;
  std::size_t accessible_size_ = 0;
  std::byte* begin_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace saccade
