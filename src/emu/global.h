// The global memory a launch may touch: named ranges with rights, so that every access can be checked.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace saccade::emu {

enum class Rights : std::uint8_t { read, write, read_write };

/// Host memory that stands for global memory. Ranges may overlap (views of one buffer): an access is right
/// when one of them allows it.
class GlobalMemory {
 public:
  /// Allows accesses to `bytes` bytes. What may be written counts as unwritten at first, unless `written`.
  void add(std::string name, const void* data, std::size_t bytes, Rights rights, bool written = false);

  /// Why a read or write of `bytes` bytes here is wrong; empty when it is right. Notes what was written.
  [[nodiscard]] std::string read(const void* data, std::size_t bytes) const;
  [[nodiscard]] std::string write(const void* data, std::size_t bytes) const;

 private:
  struct Range {
    std::string name;
    std::uintptr_t begin, end;
    Rights rights;
    /// A flag for each byte of a range that starts unwritten. Blocks on several cores set them.
    std::unique_ptr<std::atomic<bool>[]> written;
  };
  [[nodiscard]] std::string outside(std::uintptr_t at, std::size_t bytes, const char* verb) const;

  std::vector<Range> ranges_;
};

}  // namespace saccade::emu
