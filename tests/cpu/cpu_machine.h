// What the machine under the tests can do, and how to make it do less.
#pragma once

// clang-format off
#include "cpu/simd_targets.h"
#include <hwy/targets.h>
// clang-format on

#include <saccade/plan.h>

namespace saccade {

/// Makes Highway choose one instruction set until the end of the scope.
class OnlyTarget {
 public:
  explicit OnlyTarget(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  ~OnlyTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;
};

/// Whether this machine has the matrix tiles of cpu_amx.
inline bool amx_here() {
  return make_plan(Problem::dense(1, 1, 64, 64), {.kernel = "cpu_amx"}).ok();
}

}  // namespace saccade
