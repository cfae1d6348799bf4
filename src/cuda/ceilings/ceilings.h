// What the GPU can do at most, as probes that take part in a measurement: matrix products, and reading
// memory.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include <saccade/run.h>
#include <saccade/status.h>

namespace saccade::device {

/// Something that is enqueued like a kernel's call, and how much of it one call does.
struct Probe {
  std::function<Status(Stream)> enqueue;
  double work_per_call = 0;
};

/// f16 products on random numbers, as many as the multiprocessors can issue, for about this long. Work: FLOP.
/// On Hopper by wgmma from shared memory, elsewhere by mma from registers.
[[nodiscard]] Result<Probe> matrix_probe(int device, double seconds);

/// Reads these parts of the GPU's memory once. Work: bytes.
[[nodiscard]] Result<Probe> read_probe(int device, std::span<const std::span<const std::byte>> parts);

}  // namespace saccade::device
