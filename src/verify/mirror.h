// A call's tensors in the memory of a GPU, between guard bands.
#pragma once

#include <memory>

#include <saccade/plan.h>
#include <saccade/run.h>

namespace saccade {

/// Copies of a call's tensors on the current CUDA device, each with a band of the guard pattern before and
/// after it.
class Mirror {
 public:
  Mirror(const Problem& problem, const Tensors& host);
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;
  Mirror(Mirror&&) = delete;
  Mirror& operator=(Mirror&&) = delete;

  [[nodiscard]] Status upload();
  /// The same call on the GPU, once upload() was ok.
  [[nodiscard]] const Tensors& tensors() const;
  /// Fetches the outputs into the host's tensors; an error when a band or an input was written.
  [[nodiscard]] Status download();

 private:
  class Images;
  std::unique_ptr<Images> images_;
};

/// Runs a plan for a CUDA device on copies of host tensors: every operand goes to the GPU with a band of the
/// guard pattern before and after it, and the outputs come back. Errors: a band, an input or the workspace's
/// surroundings were written.
[[nodiscard]] Status run_mirrored(const Plan& plan, const Tensors& host);

}  // namespace saccade
