// The CUDA runtime as the rest of the library sees it: devices, memory, waiting, timing. No CUDA header is
// needed to include it; in a build without nvcc every call says so.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <saccade/run.h>
#include <saccade/status.h>

#include "core/kernel.h"

namespace saccade::device {

/// The facts a planner needs of CUDA device `index`, or a sentence that says why there is none.
[[nodiscard]] Result<Machine> machine(int index);

/// While it lives, CUDA calls of this thread go to the device.
class Guard {
 public:
  explicit Guard(int index);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  Guard(Guard&&) = delete;
  Guard& operator=(Guard&&) = delete;
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  Status status_;
  [[maybe_unused]] int before_ = -1;  ///< the device to go back to; -1: none
};

/// An error that names the first of q, k, v and o that does not lie in memory of CUDA device `index`. Null
/// pointers (of empty tensors) are let through.
[[nodiscard]] Status check_memory(const Tensors& tensors, int index);

/// Memory of the current device.
class Memory {
 public:
  Memory() = default;
  /// Uninitialised; fails with out_of_memory.
  [[nodiscard]] static Result<Memory> allocate(std::size_t bytes);

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  /// Copies all bytes, and waits until that is done.
  [[nodiscard]] Status from_host(std::span<const std::byte> host) const;
  [[nodiscard]] Status to_host(std::span<std::byte> host) const;

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_ = 0;
};

/// Waits for all work of the current device; errors of kernels surface here.
[[nodiscard]] Status synchronize();

/// Launches `enqueue(stream)` kCallsPerGraph times as one CUDA graph.
class CallGraph {
 public:
  static constexpr int kCallsPerGraph = 10;

  /// Captures the calls; `enqueue` may neither allocate nor wait.
  [[nodiscard]] static Result<CallGraph> capture(const std::function<Status(Stream)>& enqueue);
  /// Replays the graph `times` times and returns the device's seconds for all of it, by events around them.
  [[nodiscard]] Result<double> replay(int times) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace saccade::device
