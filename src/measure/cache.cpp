#include "measure/cache.h"

#include <algorithm>
#include <cstdint>
#include <unistd.h>

namespace saccade::measure {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kSmallestBuffer = std::size_t{64} << 20;

}  // namespace

std::size_t largest_cache_bytes() {
  long largest = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
  for (const int name : {_SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL4_CACHE_SIZE}) {
    largest = std::max(largest, sysconf(name));
  }
#endif
  return static_cast<std::size_t>(largest);
}

// Twice the cache: replacement is not exactly least-recently-used, and a victim cache adds its own size.
CacheEvictor::CacheEvictor() : buffer_(std::max(2 * largest_cache_bytes(), kSmallestBuffer)) {}

void CacheEvictor::operator()() {
  const auto lines = static_cast<std::int64_t>(buffer_.size() / kLine);
  unsigned char* const data = buffer_.data();
#pragma omp parallel for schedule(static)
  for (std::int64_t line = 0; line < lines; ++line) ++data[static_cast<std::size_t>(line) * kLine];
}

}  // namespace saccade::measure
