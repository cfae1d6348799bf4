// The setting of emulated launches: options for the launches of a scope, and what they did.
#pragma once

#include <functional>
#include <vector>

#include "emu/machine.h"

namespace saccade::emu {

/// A launch and what it did.
struct Launched {
  Shape shape;
  Counters counters;
};

/// While it lives, launches of this host thread use its options and add to its counters. Sessions nest.
class Session {
 public:
  explicit Session(const Options& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  Session(Session&&) = delete;
  Session& operator=(Session&&) = delete;

  [[nodiscard]] const Counters& counters() const { return counters_; }
  /// One by one, in their order.
  [[nodiscard]] const std::vector<Launched>& launches() const { return launches_; }

 private:
  friend void launch_in_session(const Shape&, const GlobalMemory&, const std::function<void()>&);
  Options options_;
  Counters counters_;
  std::vector<Launched> launches_;
  Session* outer_;
};

/// A launch with the options of the innermost session of this host thread, or the default ones.
void launch_in_session(const Shape& shape, const GlobalMemory& memory,
                       const std::function<void()>& thread_main);

}  // namespace saccade::emu
