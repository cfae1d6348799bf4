// One instance of the kernel, launched. The sources that the build makes of instances.def instantiate it.
#pragma once

#include "cuda/launch/launch.h"
#include "cuda/sm80/kernel.h"

namespace saccade::SACCADE_MACHINE::sm80 {

template <class T, class Instance>
Status launch_typed(const Problem& p, const Tensors& t, const Split& split, const Target& target) {
  constexpr Config kConfig = Instance::kConfig;
  const Result<ArgumentsOf<T, Instance>> a = UnitOf<T, Instance>::arguments(p, t, split);
  if (!a.ok()) return a.status();
  const Grid grid{.blocks = a->queue.grid(p, a->numbers),
                  .threads = kConfig.threads(),
                  .cluster = 1,
                  .shared_bytes = kConfig.shared_bytes()};
  return launch("sm80", &attend<T, Instance>, grid, target, a.value());
}

template <class Instance>
Status launch_instance(const Problem& p, const Tensors& t, const Split& split, const Target& target) {
  return p.dtype == DType::f16 ? launch_typed<F16, Instance>(p, t, split, target)
                               : launch_typed<BF16, Instance>(p, t, split, target);
}

}  // namespace saccade::SACCADE_MACHINE::sm80
