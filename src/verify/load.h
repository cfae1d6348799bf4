// Other work on the machine, made on purpose: what is right only when nothing disturbs it shows under load.
#pragma once

#include <thread>
#include <vector>

namespace saccade {

/// From construction to destruction two threads for every logical CPU are busy: one computes, one sweeps
/// memory larger than a core's own caches. So every other thread is interrupted, moved and slowed down, each
/// at another moment.
class Load {
 public:
  Load();

 private:
  std::vector<std::jthread> threads_;
};

}  // namespace saccade
