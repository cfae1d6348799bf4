// The setting of emulated launches: options for the launches of a scope, and what they did.
#pragma once

#include <functional>

#include "emu/machine.h"

namespace saccade::emu {

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

 private:
  friend void launch_in_session(const Shape&, const GlobalMemory&, const std::function<void()>&);
  Options options_;
  Counters counters_;
  Session* outer_;
};

/// A launch with the options of the innermost session of this host thread, or the default ones.
void launch_in_session(const Shape& shape, const GlobalMemory& memory,
                       const std::function<void()>& thread_main);

}  // namespace saccade::emu
