// The host's caches: how large they are, and how to empty them of what a benchmark left there.
#pragma once

#include <cstddef>
#include <vector>

namespace saccade::measure {

/// Bytes of the largest cache the host reports; 0 when it reports none.
[[nodiscard]] std::size_t largest_cache_bytes();

/// Pushes everything out of all caches by writing through a buffer larger than them.
class CacheEvictor {
 public:
  CacheEvictor();
  void operator()();

  [[nodiscard]] std::size_t bytes() const { return buffer_.size(); }

 private:
  std::vector<unsigned char> buffer_;
};

}  // namespace saccade::measure
