// The CPU machine that runs CUDA kernels: launches, what may go wrong with them, and what they did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include "emu/counters.h"
#include "emu/global.h"

namespace saccade::emu {

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
};

/// How a kernel is launched.
struct Shape {
  std::string kernel;         ///< its name, for messages
  Dim3 grid;                  ///< blocks; x a multiple of `cluster`
  std::uint32_t block = 32;   ///< threads, a multiple of 32
  std::uint32_t cluster = 1;  ///< blocks (along x) that share their shared memory
  std::size_t shared_bytes = 0;
  std::uint32_t registers = 0;  ///< a thread has at its start; 0: not known, so setmaxnreg is not added up
};

/// The largest shared memory a block may ask for on the chips we know (Hopper).
inline constexpr std::size_t kMaxSharedBytes = 232448;

struct Options {
  std::uint64_t seed = 1;  ///< of the order of threads and of the moments when asynchronous work completes
  bool count = false;      ///< whether memory instructions are counted line by line (costs time)
  int cores = 0;           ///< 0: all
};

/// What a kernel did wrong: the message names kernel, block, thread, source line and seed.
class Error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs `thread_main` once for every thread of the grid, blocks side by side on the cores. Throws Error at
/// the first thing that is wrong.
Counters launch(const Shape& shape, const GlobalMemory& memory, const Options& options,
                const std::function<void()>& thread_main);

}  // namespace saccade::emu
