// Vector clocks: what one agent knows of the others' past.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace saccade::emu {

/// One counter an agent; agents that were never heard of stand at 0.
class VectorClock {
 public:
  [[nodiscard]] std::uint32_t operator[](std::size_t agent) const {
    return agent < epochs_.size() ? epochs_[agent] : 0;
  }
  void raise(std::size_t agent, std::uint32_t epoch) {
    if (agent >= epochs_.size()) epochs_.resize(agent + 1);
    epochs_[agent] = std::max(epochs_[agent], epoch);
  }
  void join(const VectorClock& other) {
    if (other.epochs_.size() > epochs_.size()) epochs_.resize(other.epochs_.size());
    for (std::size_t n = 0; n < other.epochs_.size(); ++n)
      epochs_[n] = std::max(epochs_[n], other.epochs_[n]);
  }
  /// Keeps what `other` knows too.
  void keep_common(const VectorClock& other) {
    epochs_.resize(std::min(epochs_.size(), other.epochs_.size()));
    for (std::size_t n = 0; n < epochs_.size(); ++n) epochs_[n] = std::min(epochs_[n], other.epochs_[n]);
  }
  void clear() { epochs_.clear(); }

 private:
  std::vector<std::uint32_t> epochs_;
};

}  // namespace saccade::emu
