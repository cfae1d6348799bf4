// Probes of what came with Hopper: the copy engine, clusters, warpgroups. Included by probes.cu alone.
#pragma once

#include "cuda/ptx/barrier.h"
#include "cuda/ptx/cluster.h"
#include "cuda/ptx/dependent_launch.h"
#include "cuda/ptx/fence.h"
#include "cuda/ptx/mbarrier.h"
#include "cuda/ptx/memory.h"
#include "cuda/ptx/registers.h"
#include "cuda/ptx/tma.h"
#include "cuda/ptx/warp.h"
#include "cuda/ptx/wgmma.h"
#include "probes_of_warps.h"

namespace saccade::SACCADE_MACHINE {
namespace {

SACCADE_DEVICE void start_barrier(Mbarrier* barrier, int arrivals) {
  if (thread_index() == 0) {
    init_mbarrier(barrier, arrivals);
    fence_mbarrier_init();
  }
  sync_block();
}

// Two runs of bytes come in by the copy engine, are changed, and go out by it.
SACCADE_KERNEL(64, 1) bulk_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  auto* barrier = reinterpret_cast<Mbarrier*>(shared_memory());
  auto* words = reinterpret_cast<std::uint32_t*>(shared_memory() + 128);
  start_barrier(barrier, 1);
  const int thread = thread_index();
  if (thread == 0) {
    expect_bytes(barrier, 128);
    arrive_and_expect_bytes(barrier, 128);
    load_bytes(words, arguments.in, 128, barrier);
    load_bytes(words + 32, arguments.in + 32, 128, barrier);
  }
  wait_mbarrier(barrier, 0);
  store(words + thread, load(words + thread) * 3 + 1);
  fence_shared_to_async();
  sync_block();
  if (thread == 0) {
    store_bytes(arguments.out, words + 32, 128);
    commit_stores();
    store_bytes(arguments.out + 32, words, 128);
    commit_stores();
    wait_stores_read<1>();
    wait_stores<0>();
  }
}

// A box of the tensor, as it lies in shared memory.
template <int kRank>
SACCADE_KERNEL(128, 1)
tensor_load_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  auto* barrier = reinterpret_cast<Mbarrier*>(shared_memory() + (40 << 10));
  auto* words = reinterpret_cast<std::uint32_t*>(shared_memory());
  start_barrier(barrier, 1);
  const int count = static_cast<int>(load(arguments.in));  // words of the box
  if (thread_index() == 0) {
    prefetch_map(arguments.map);
    std::int32_t at[kRank];
    for (int n = 0; n < kRank; ++n) at[n] = arguments.at[n];
    arrive_and_expect_bytes(barrier, 4 * count);
    load_box(words, arguments.map, at, barrier);
  }
  wait_mbarrier(barrier, 0);
  for (int n = thread_index(); n < count; n += 128) store(arguments.out + n, load(words + n));
}

// Shared memory, written in order, as a box of the tensor `out`.
template <int kRank>
SACCADE_KERNEL(128, 1)
tensor_store_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  auto* words = reinterpret_cast<std::uint32_t*>(shared_memory());
  const int count = static_cast<int>(load(arguments.in));
  for (int n = thread_index(); n < count; n += 128) store(words + n, load(arguments.in + n));
  fence_to_async();
  sync_block();
  if (thread_index() == 0) {
    std::int32_t at[kRank];
    for (int n = 0; n < kRank; ++n) at[n] = arguments.at[n];
    store_box(arguments.map, at, words);
    commit_stores();
    wait_stores<0>();
  }
}

// Two blocks: each reads the other's memory, writes into it and arrives at its barrier, or lets what it
// writes count there; and block 0 loads a box (32 rows of 64 numbers) into both.
SACCADE_KERNEL(64, 1) cluster_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  auto* box = reinterpret_cast<std::uint32_t*>(shared_memory());
  auto* words = reinterpret_cast<std::uint32_t*>(shared_memory() + 4096);
  auto* gifts = words + 64;
  auto* barriers = reinterpret_cast<Mbarrier*>(shared_memory() + 8192);
  const int thread = thread_index();
  const int rank = cluster_rank();
  const int other = cluster_size() - 1 - rank;
  if (thread == 0) {
    init_mbarrier(barriers, 64);
    init_mbarrier(barriers + 1, 1);
    init_mbarrier(barriers + 2, 1);
    arrive_and_expect_bytes(barriers + 2, 64 * 16);
    fence_mbarrier_init();
  }
  const std::uint32_t word = load(arguments.in + 64 * rank + thread);
  store(words + thread, word);
  arrive_cluster();
  wait_cluster();
  std::uint32_t* out = arguments.out + (128 + 1024 + 256) * rank;
  auto* parcels = reinterpret_cast<Bytes16*>(shared_memory() + 6144);
  store_to_block(parcels + thread, {{word, word + 1, word ^ 2, word * 3}}, barriers + 2, other);
  store(out + thread, load(in_block(words + (thread ^ 1), other)));
  store(in_block(gifts + thread, other), word + 5);
  arrive_remote_mbarrier(barriers, other);
  wait_mbarrier_of_cluster(barriers, 0);
  store(out + 64 + thread, load(gifts + (63 - thread)));
  if (thread == 0) arrive_and_expect_bytes(barriers + 1, 4096);
  if (thread == 0 && rank == 0) {
    const std::int32_t at[2] = {arguments.at[0], arguments.at[1]};
    load_box_to_blocks(box, arguments.map, at, barriers + 1, 3);
  }
  wait_mbarrier(barriers + 1, 0);
  for (int n = thread; n < 1024; n += 64) store(out + 128 + n, load(box + n));
  wait_mbarrier(barriers + 2, 0);
  store(reinterpret_cast<Bytes16*>(out + 1152) + thread, load(parcels + (thread ^ 7)));
  arrive_cluster_relaxed();
  wait_cluster();
}

SACCADE_KERNEL(256, 2) registers_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  const int thread = thread_index();
  if (thread < 128) {
    give_registers<24>();
    store(arguments.out + thread, load(arguments.in + thread) + 1);
  } else {
    take_registers<232>();
    store(arguments.out + thread, load(arguments.in + thread) + 2);
  }
}

SACCADE_KERNEL(32, 1) dependent_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  store(arguments.out + thread_index(), load(arguments.in + thread_index()) ^ 0xffU);
}

constexpr int kDepth = 32;  // two products of 16

/// How the probe lays a matrix of `rows` (M or N) x kDepth out in shared memory: tiles of the swizzle's
/// width.
template <Major kMajor, int kSwizzle>
struct Layout {
  int rows;
  /// Bytes before the swizzle.
  SACCADE_DEVICE int plain(int row, int k) const {
    constexpr int kSpan = kSwizzle == 0 ? 16 : kSwizzle;  // bytes that lie together
    constexpr int kWidth = kSpan / 2;
    if constexpr (kMajor == Major::k) return k / kWidth * rows * kSpan + row * kSpan + k % kWidth * 2;
    return row / kWidth * kDepth * kSpan + k * kSpan + row % kWidth * 2;
  }
  SACCADE_DEVICE int operator()(int row, int k) const {
    const int at = plain(row, k);
    return kSwizzle == 0 ? at : at ^ ((at >> 7) & (kSwizzle / 16 - 1)) << 4;
  }
  SACCADE_DEVICE std::uint64_t descriptor(const std::byte* start, int k) const {
    int leading = 0;
    int stride = 8 * kSwizzle;
    if constexpr (kMajor == Major::k && kSwizzle == 0) {
      leading = rows * 16;
      stride = 128;
    } else if constexpr (kMajor == Major::mn && kSwizzle == 0) {
      leading = 128;
      stride = kDepth * 16;
    } else if constexpr (kMajor == Major::mn) {
      leading = kDepth * kSwizzle;
    }
    return advance_descriptor(matrix_descriptor(start, leading, stride, kSwizzle), plain(0, k));
  }
};

// D = A * B with K = 32, by two products. With A in registers, they add to what D holds.
template <class T, int kColumns, bool kRegisters, Major kA, Major kB, int kSwizzle>
SACCADE_KERNEL(128, 1)
wgmma_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  const int thread = thread_index();
  std::byte* a_start = shared_memory();
  std::byte* b_start = shared_memory() + 8192;
  const Layout<kA, kSwizzle> a_layout{64};
  const Layout<kB, kSwizzle> b_layout{kColumns};
  const std::uint32_t* b_in = arguments.in + 64 * kDepth;
  for (int n = thread; n < 64 * kDepth; n += 128) {
    store(reinterpret_cast<T*>(a_start + a_layout(n / kDepth, n % kDepth)),
          small_as<T>(load(arguments.in + n)));
  }
  for (int n = thread; n < kColumns * kDepth; n += 128) {
    store(reinterpret_cast<T*>(b_start + b_layout(n % kColumns, n / kColumns)), small_as<T>(load(b_in + n)));
  }
  fence_shared_to_async();
  sync_block();
  const int row = 16 * warp_index() + lane_index() / 4;
  const int column = lane_index() % 4 * 2;
  std::uint32_t a[2][4];
  for (int n = 0; n < 8; ++n) {
    const std::uint32_t* at = arguments.in + (row + n % 2 * 8) * kDepth + n / 4 * 16 + n / 2 % 2 * 8 + column;
    a[n / 4][n % 4] = pack<T>(small(load(at)), small(load(at + 1)));
  }
  float d[kColumns / 2];
  SACCADE_UNROLL
  for (int n = 0; n < kColumns / 2; ++n) d[n] = 1;
  hold_registers(d);
  fence_products();
  SACCADE_UNROLL
  for (int step = 0; step < 2; ++step) {
    const std::uint64_t b = b_layout.descriptor(b_start, 16 * step);
    if constexpr (kRegisters) {
      warpgroup_multiply<T, kColumns, kB>(d, a[step], b, true);
    } else {
      warpgroup_multiply<T, kColumns, kA, kB>(d, a_layout.descriptor(a_start, 16 * step), b, step > 0);
    }
    commit_products();
  }
  wait_products<0>();
  hold_registers(d);
  SACCADE_UNROLL
  for (int n = 0; n < kColumns / 2; ++n) {
    const int at = (row + n / 2 % 2 * 8) * kColumns + n / 4 * 8 + column + n % 2;
    store(arguments.out + at, bits_of(d[n]));
  }
}

}  // namespace
}  // namespace saccade::SACCADE_MACHINE
