// One instance of the kernel, launched. The sources that the build makes of instances.def instantiate it.
#pragma once

#include <algorithm>

#include "cuda/launch/launch.h"
#include "cuda/sm90/kernel.h"

namespace saccade::SACCADE_MACHINE::sm90 {

template <class T, class Instance>
Status launch_typed(const Problem& p, const Tensors& t, const Launch& how, const Target& target) {
  constexpr Config kConfig = Instance::kConfig;
  Result<Arguments<T, Instance>> a = make_arguments<T, Instance>(p, t, how);
  if (!a.ok()) return a.status();
  const int tiles = static_cast<int>(a->queue.tiles);
  const int heads = static_cast<int>(p.heads_q);
  const int batch = static_cast<int>(p.batch);
  const ptx::Index3 all = kConfig.cluster > 1 ? ptx::Index3{heads * kConfig.cluster, batch, tiles * how.split}
                                              : ptx::Index3{tiles, heads, batch};
  if (a->queue.longest_first()) {
    // The longest first; but where all blocks find room at once, two to a multiprocessor, the second half
    // goes the other way: each long one shares with a short one.
    const std::int64_t blocks = std::int64_t{all.x} * all.y * all.z;
    const bool pairs = kConfig.blocks() == 2 && blocks <= std::int64_t{2} * how.multiprocessors;
    a->turn = pairs ? (tiles + 1) / 2 : tiles;
  }
  const ptx::Index3 staying{std::min(a->queue.size(), kConfig.blocks() * how.multiprocessors), 1, 1};
  const Grid grid{.blocks = kConfig.stays() ? staying : all,
                  .threads = kConfig.threads(),
                  .cluster = kConfig.cluster,
                  .shared_bytes = kConfig.shared_bytes(),
                  .registers = kConfig.hands_over() ? kConfig.registers() : 0,
                  .overlap = how.overlap};
  return launch("sm90", &attend<T, Instance>, grid, target, a.value());
}

template <class Instance>
Status launch_instance(const Problem& p, const Tensors& t, const Launch& how, const Target& target) {
  return p.dtype == DType::f16 ? launch_typed<F16, Instance>(p, t, how, target)
                               : launch_typed<BF16, Instance>(p, t, how, target);
}

}  // namespace saccade::SACCADE_MACHINE::sm90
