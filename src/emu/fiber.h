// A function on a stack of its own, run in turns (Boost.Context), with the notes that sanitizers need.
#pragma once

#include <boost/context/fiber.hpp>
#include <functional>

namespace saccade::emu {

/// Bytes of a fiber's stack: an emulated thread keeps its registers there.
inline constexpr std::size_t kStackBytes = std::size_t{128} << 10;

class Fiber {
 public:
  /// `main` starts with the first resume(). Exceptions must not leave it.
  explicit Fiber(std::function<void()> main);
  /// Unwinds what is still on the stack.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  Fiber(Fiber&&) = delete;
  Fiber& operator=(Fiber&&) = delete;

  /// Runs it until it suspends itself or ends. Called from outside.
  void resume();
  /// Goes back to whoever resumed it. Called from inside.
  void suspend();
  [[nodiscard]] bool done() const { return !context_; }

 private:
  boost::context::fiber context_;
  boost::context::fiber caller_;
  bool started_ = false;
  const void* stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  std::size_t caller_stack_bytes_ = 0;
};

}  // namespace saccade::emu
