// The last words of a process that a kernel kills.
#pragma once

#include <string>

namespace saccade {

/// While it lives, a fatal signal (such as touching the page after a buffer) first prints this text to
/// stderr. One at a time in a process: a newer note hides an older one until it goes.
class CrashNote {
 public:
  explicit CrashNote(std::string text);
  ~CrashNote();
  CrashNote(const CrashNote&) = delete;
  CrashNote& operator=(const CrashNote&) = delete;

 private:
  std::string text_;
  const char* previous_;
};

}  // namespace saccade
