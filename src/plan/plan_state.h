// What a Plan holds behind its public face.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <saccade/plan.h>

#include "core/kernel.h"

namespace saccade::detail {

/// Everything a plan decided; shared by its copies, never changed.
struct PlanState {
  Problem problem;
  Device device;
  const Kernel* kernel = nullptr;
  Prepared prepared;
  std::vector<std::pair<std::string_view, std::string>> rejections;  ///< (kernel, reason) of every faster one
  bool forced = false;                                               ///< the caller named the kernel
  bool trusted_pointers = false;                                     ///< and vouches for the pointers

  static Plan wrap(std::shared_ptr<const PlanState> state) { return Plan(std::move(state)); }
  static const PlanState& of(const Plan& plan) { return *plan.state_; }
};

}  // namespace saccade::detail
