#include <memory>
#include <vector>

#include "cuda/ceilings/ceilings.h"
#include "cuda/launch/launch.h"
#include "cuda/launch/runtime.h"
#include "cuda/ptx/barrier.h"
#include "cuda/ptx/fence.h"
#include "cuda/ptx/memory.h"
#include "cuda/ptx/mma.h"
#include "cuda/ptx/numbers.h"
#include "cuda/ptx/wgmma.h"
#include "cuda/tile/philox.h"

namespace saccade::device {
namespace {

constexpr int kThreads = 256;

struct MatrixArguments {
  int iterations;
  float* never;  ///< written to by nobody, but the compiler does not know
};

/// Random halves in [-1, 1): zeros would draw less power and run at a higher clock.
SACCADE_DEVICE std::uint32_t random_pair(int n) {
  const tile::Philox random = tile::Philox::at(static_cast<std::uint32_t>(n), 0, 0, 0, 1, 2);
  const auto half = [](std::uint32_t bits) { return static_cast<float>(static_cast<int>(bits)) * 0x1p-31F; };
  return ptx::pack<F16>(half(random.words[0]), half(random.words[1]));
}

constexpr int kDepth = 64;     // of a tile, in one row of 128 bytes
constexpr int kColumns = 256;  // the widest product
constexpr std::size_t kTileBytes = (64 + kColumns) * kDepth * 2;
constexpr double kWgmmaFlops = 2.0 * 64 * kColumns * kDepth;

/// Two warpgroups, each with a 64 x 256 accumulator, against the same tiles in shared memory.
SACCADE_KERNEL(kThreads, 1)
wgmma_loop(SACCADE_ARGUMENT(MatrixArguments) a) {
  auto* words = reinterpret_cast<std::uint32_t*>(ptx::shared_memory());
  for (int n = ptx::thread_index(); n < static_cast<int>(kTileBytes / 4); n += kThreads)
    ptx::store(words + n, random_pair(n));
  ptx::fence_shared_to_async();
  ptx::sync_block();
  constexpr int kSwizzle = 128;
  constexpr int kEightRows = 8 * 2 * kDepth;
  const std::uint64_t left = ptx::matrix_descriptor(words, 0, kEightRows, kSwizzle);
  const std::uint64_t right = ptx::matrix_descriptor(words + 64 * kDepth / 2, 0, kEightRows, kSwizzle);
  float d[kColumns / 2] = {};
  for (int n = 0; n < a.iterations; ++n) {
    ptx::fence_products();
    SACCADE_UNROLL
    for (int k = 0; k < kDepth / 16; ++k) {
      ptx::warpgroup_multiply<F16, kColumns, ptx::Major::k, ptx::Major::k>(
          d, ptx::advance_descriptor(left, 32 * k), ptx::advance_descriptor(right, 32 * k), true);
    }
    ptx::commit_products();
    ptx::wait_products<0>();
  }
  float sum = 0;
  SACCADE_UNROLL
  for (const float x : d) sum += x;
  if (sum == 0.123F) ptx::store(a.never, sum);
}

constexpr int kAccumulators = 8;
constexpr double kMmaFlops = 2.0 * 16 * 8 * 16 * kAccumulators;

SACCADE_KERNEL(kThreads, 1)
mma_loop(SACCADE_ARGUMENT(MatrixArguments) a) {
  float d[kAccumulators][4] = {};
  std::uint32_t left[4];
  SACCADE_UNROLL
  for (int n = 0; n < 4; ++n) left[n] = random_pair(4 * ptx::thread_index() + n);
  const std::uint32_t b0 = random_pair(ptx::thread_index() + 10000);
  const std::uint32_t b1 = random_pair(ptx::thread_index() + 20000);
  for (int n = 0; n < a.iterations; ++n) {
    SACCADE_UNROLL
    for (auto& part : d) ptx::multiply_add<F16>(part, left, b0, b1);
  }
  float sum = 0;
  SACCADE_UNROLL
  for (auto& part : d) sum += part[0] + part[1] + part[2] + part[3];
  if (sum == 0.123F) ptx::store(a.never, sum);
}

struct ReadArguments {
  const ptx::Bytes16* data;
  std::int64_t chunks;
  std::uint32_t* never;
};

SACCADE_KERNEL(kThreads, 1)
read_loop(SACCADE_ARGUMENT(ReadArguments) a) {
  std::uint32_t mixed = 0;
  const std::int64_t step = std::int64_t{ptx::grid_size().x} * kThreads;
  SACCADE_UNROLL_BY_4
  for (std::int64_t n = std::int64_t{ptx::block_index().x} * kThreads + ptx::thread_index(); n < a.chunks;
       n += step) {
    const ptx::Bytes16 chunk = ptx::load_constant(a.data + n);
    mixed ^= chunk.words[0] ^ chunk.words[1] ^ chunk.words[2] ^ chunk.words[3];
  }
  if (mixed == 0x12345678U) ptx::store(a.never, mixed);  // as likely as one in four thousand million
}

}  // namespace

Result<Probe> matrix_probe(int device, double seconds) {
  const Result<Machine> found = machine(device);
  if (!found.ok()) return found.status();
  Result<Memory> allocated = Memory::allocate(sizeof(float));
  if (!allocated.ok()) return allocated.status();
  const auto never = std::make_shared<Memory>(std::move(allocated).value());
  const bool hopper = found->compute_capability == 90;
  // Rough rates suffice here; the probe's own time is measured.
  const int groups = hopper ? kThreads / 128 : kThreads / 32;
  const double flops_per_iteration = (hopper ? kWgmmaFlops : kMmaFlops) * groups * found->multiprocessors;
  const double guess = hopper ? 7e14 : 1.5e12 * found->multiprocessors;
  const int iterations = static_cast<int>(seconds * guess / flops_per_iteration) + 1;
  const MatrixArguments arguments{iterations, reinterpret_cast<float*>(never->data())};
  const Grid grid{.blocks = {found->multiprocessors, 1, 1},
                  .threads = kThreads,
                  .cluster = 1,
                  .shared_bytes = hopper ? kTileBytes : std::size_t{0}};
  return Probe{[arguments, grid, hopper, never](Stream stream) -> Status {
                 return launch("matrix ceiling", hopper ? wgmma_loop : mma_loop, grid, Target{stream},
                               arguments);
               },
               flops_per_iteration* iterations};
}

Result<Probe> read_probe(int device, std::span<const std::span<const std::byte>> parts) {
  const Result<Machine> found = machine(device);
  if (!found.ok()) return found.status();
  Result<Memory> allocated = Memory::allocate(sizeof(std::uint32_t));
  if (!allocated.ok()) return allocated.status();
  const auto never = std::make_shared<Memory>(std::move(allocated).value());
  std::vector<ReadArguments> launches;
  double bytes = 0;
  for (const std::span<const std::byte> part : parts) {
    // Whole chunks inside of the part: a few bytes at its ends do not matter.
    const auto begin = (reinterpret_cast<std::uintptr_t>(part.data()) + 15) / 16 * 16;
    const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size()) / 16 * 16;
    if (end <= begin) continue;
    launches.push_back({reinterpret_cast<const ptx::Bytes16*>(begin),
                        static_cast<std::int64_t>((end - begin) / 16),
                        reinterpret_cast<std::uint32_t*>(never->data())});
    bytes += static_cast<double>(end - begin);
  }
  const Grid grid{.blocks = {8 * found->multiprocessors, 1, 1}, .threads = kThreads};
  return Probe{[launches, grid, never](Stream stream) -> Status {
                 for (const ReadArguments& arguments : launches) {
                   if (Status status = launch("read ceiling", read_loop, grid, Target{stream}, arguments);
                       !status.ok()) {
                     return status;
                   }
                 }
                 return {};
               },
               bytes};
}

}  // namespace saccade::device
