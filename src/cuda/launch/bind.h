// A CUDA kernel as a row of the registry, on either machine.
#pragma once

#include <string>
#include <utility>

#include "core/kernel.h"
#include "core/operands.h"
#include "cuda/launch/launch.h"

namespace saccade::SACCADE_MACHINE {

#ifndef __CUDACC__
/// What a call may touch: its inputs, its outputs and its workspace, by name.
inline emu::GlobalMemory memory_of(const Problem& p, const Tensors& t, std::byte* workspace,
                                   std::size_t bytes) {
  emu::GlobalMemory memory;
  const auto add = [&](const Operands& operands, emu::Rights rights) {
    for (const Operand& operand : operands) {
      const Bounds range = bounds(operand.extent).value();  // validate() has made sure that there are some
      memory.add(std::string(operand.name), static_cast<const std::byte*>(operand.data) + range.begin,
                 static_cast<std::size_t>(range.end - range.begin), rights);
    }
  };
  add(inputs(p, t), emu::Rights::read);
  add(outputs(p, t), emu::Rights::write);
  memory.add("workspace", workspace, bytes, emu::Rights::read_write);
  return memory;
}
#endif

/// Makes a prepared kernel of launch(tensors, workspace, target) -> Status.
template <class Launch>
[[nodiscard]] Prepared bind(std::string config, std::size_t workspace_bytes,
                            [[maybe_unused]] const Problem& problem, Launch launch) {
#ifdef __CUDACC__
  return {
      std::move(config), workspace_bytes,
      [launch = std::move(launch)](const Tensors& tensors, std::byte* workspace, Stream stream) -> Status {
        return launch(tensors, workspace, Target{stream});
      }};
#else
  return {std::move(config), workspace_bytes,
          [launch = std::move(launch), problem, workspace_bytes](const Tensors& tensors, std::byte* workspace,
                                                                 Stream) -> Status {
            const emu::GlobalMemory memory = memory_of(problem, tensors, workspace, workspace_bytes);
            return launch(tensors, workspace, Target{&memory});
          }};
#endif
}

}  // namespace saccade::SACCADE_MACHINE
