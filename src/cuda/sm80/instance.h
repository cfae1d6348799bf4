// One instance of the kernel, launched. The sources that the build makes of instances.def instantiate it.
#pragma once

#include "cuda/launch/launch.h"
#include "cuda/sm80/kernel.h"

namespace saccade::SACCADE_MACHINE::sm80 {

template <class T, class Instance>
Status launch_instance(const Arguments<T>& a, const Target& target) {
  constexpr Config kConfig = Instance::kConfig;
  const Grid grid{.blocks = {a.tiles * a.heads, 1, 1},
                  .threads = kConfig.threads(),
                  .cluster = 1,
                  .shared_bytes = kConfig.shared_bytes()};
  return launch("sm80", &attend<T, Instance>, grid, target, a);
}

}  // namespace saccade::SACCADE_MACHINE::sm80
