#include <chrono>
#include <thread>

#include "cuda/launch/tensor_map.h"
#include "cuda/ptx/barrier.h"
#include "cuda/ptx/cluster.h"
#include "cuda/ptx/cp_async.h"
#include "cuda/ptx/dependent_launch.h"
#include "cuda/ptx/fence.h"
#include "cuda/ptx/ldmatrix.h"
#include "cuda/ptx/mbarrier.h"
#include "cuda/ptx/memory.h"
#include "cuda/ptx/mma.h"
#include "cuda/ptx/numbers.h"
#include "cuda/ptx/registers.h"
#include "cuda/ptx/tma.h"
#include "cuda/ptx/warp.h"
#include "cuda/ptx/wgmma.h"
#include "cuda/ptx/wmma.h"
#include "probes.h"

namespace saccade::SACCADE_MACHINE {
namespace {

using namespace ptx;

struct Arguments {
  TensorMap map;  ///< over `in`, or over `out` for stores
  const std::uint32_t* in;
  std::uint32_t* out;
  std::int32_t at[5];
};

/// A small whole number, so that sums of products are exact in any order.
SACCADE_DEVICE float small(std::uint32_t word) {
  return static_cast<float>(static_cast<int>(word % 9) - 4);
}
template <class T>
SACCADE_DEVICE T small_as(std::uint32_t word) {
  return from_float<T>(small(word));
}
SACCADE_DEVICE std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

SACCADE_KERNEL(32, 1) memory_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  const int lane = thread_index();
  auto* shared = reinterpret_cast<Bytes16*>(shared_memory());
  const auto wide = load(reinterpret_cast<const Bytes16*>(arguments.in) + lane);
  store(shared + lane, wide);
  sync_warp();
  const auto half = load(reinterpret_cast<const Bytes8*>(shared) + (lane ^ 5));
  store(reinterpret_cast<Bytes8*>(arguments.out) + lane, half);
  const auto constant = load_constant(reinterpret_cast<const Bytes16*>(arguments.in) + (31 - lane));
  store(reinterpret_cast<Bytes16*>(arguments.out + 64) + lane, constant);
  const std::uint32_t narrow = load_constant(reinterpret_cast<const std::uint16_t*>(arguments.in) + lane);
  const std::uint32_t byte = load(reinterpret_cast<const std::uint8_t*>(arguments.in) + lane);
  store(arguments.out + 192 + lane, narrow << 8 | byte);
  fence_device();
  (void)atomic_add(arguments.out + 224, wide.words[1]);
}

SACCADE_KERNEL(32, 1) conversions_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  const int lane = thread_index();
  std::uint32_t* out = arguments.out + 8 * lane;
  const std::uint32_t word = load(arguments.in + lane);
  const float x = static_cast<float>(static_cast<int>(word)) * 0x1p-20F;  // needs rounding in 16 bits
  const std::uint16_t finite = static_cast<std::uint16_t>(word) & 0xbfffU;
  store(out, bits_of(ptx::to_float(F16{finite})));
  store(out + 1, bits_of(ptx::to_float(BF16{finite})));
  store(out + 2, std::uint32_t{ptx::from_float<F16>(x).bits});
  store(out + 3, std::uint32_t{ptx::from_float<BF16>(x).bits});
  store(out + 4, pack<F16>(x, -2 * x));
  store(out + 5, pack<BF16>(x, -2 * x));
  store(out + 6, bits_of(ptx::fma(x, x, -x)));
  store(out + 7, bits_of(ptx::from_float<float>(x)));
}

SACCADE_KERNEL(32, 1) functions_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  const int lane = thread_index();
  std::uint32_t* out = arguments.out + 6 * lane;
  const float x = static_cast<float>(load(arguments.in + lane) % 2048) * 0x1p-6F + 1.25F;
  store(out, bits_of(fast_exp2(-x)));
  store(out + 1, bits_of(fast_log2(x)));
  store(out + 2, bits_of(fast_reciprocal(x)));
  store(out + 3, bits_of(accurate_tanh(x * 0.125F)));
  store(out + 4, bits_of(accurate_exp2(x)));
  store(out + 5, bits_of(accurate_log2(x)));
}

SACCADE_KERNEL(32, 1) warp_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  const int lane = lane_index();
  const std::uint32_t word = load(arguments.in + lane);
  std::uint32_t sum = word;
  for (int distance = 1; distance < 32; distance *= 2) sum = 3 * sum + shuffle_xor(sum, distance);
  const std::uint32_t taken = shuffle(word, static_cast<int>(word % 32));
  std::uint32_t elected = elect_one() ? 1 : 0;
  for (int distance = 1; distance < 32; distance *= 2) elected += shuffle_xor(elected, distance);
  const std::uint32_t votes =
      (any_lane(word % 64 == 0) ? 1 : 0) + (any_lane(lane == 9) ? 2 : 0) + (any_lane(false) ? 4 : 0);
  store(arguments.out + lane, sum);
  store(arguments.out + 32 + lane, taken);
  store(arguments.out + 64 + lane, elected);
  store(arguments.out + 96 + lane, votes);
}

// Warps 0 and 1 exchange by one barrier of 64 threads; warp 2 gives to warp 3 by another, without waiting.
SACCADE_KERNEL(128, 1) barriers_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  const int thread = thread_index();
  auto* shared = reinterpret_cast<std::uint32_t*>(shared_memory());
  const std::uint32_t word = load(arguments.in + thread);
  std::uint32_t got = word;
  if (warp_index() < 2) {
    store(shared + thread, word);
    sync_some(1, 64);
    got = load(shared + (thread ^ 32));
  } else if (warp_index() == 2) {
    store(shared + thread, word);
    arrive_some(2, 64);
  } else {
    sync_some(2, 64);
    got = load(shared + (thread - 32));
  }
  sync_block();
  store(shared + thread, got);
  sync_block();
  store(arguments.out + thread, load(shared + (thread + 1) % 128));
}

SACCADE_KERNEL(128, 1) cp_async_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  const int thread = thread_index();
  auto* shared = reinterpret_cast<Bytes16*>(shared_memory());
  const auto* in = reinterpret_cast<const Bytes16*>(arguments.in);
  auto* out = reinterpret_cast<Bytes16*>(arguments.out);
  for (int stage = 0; stage < 3; ++stage) {
    copy_async_16(SharedPointer(shared + 128 * stage + thread), in + 128 * stage + thread,
                  thread % 3 != stage);
    commit_copies();
  }
  wait_copies<2>();
  store(out + thread, load(shared + thread));
  wait_copies<0>();
  sync_block();
  for (int stage = 1; stage < 3; ++stage)
    store(out + 128 * stage + thread, load(shared + 128 * stage + (thread ^ 77)));
}

template <bool kTransposed>
SACCADE_KERNEL(32, 1)
ldmatrix_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  const int lane = lane_index();
  auto* shared = reinterpret_cast<Bytes16*>(shared_memory());
  store(shared + lane, load(reinterpret_cast<const Bytes16*>(arguments.in) + lane));
  sync_warp();
  std::uint32_t registers[4];
  if constexpr (kTransposed) {
    load_matrices_transposed(registers, SharedPointer(shared + lane));
  } else {
    load_matrices(registers, SharedPointer(shared + lane));
  }
  for (int n = 0; n < 4; ++n) store(arguments.out + 4 * lane + n, registers[n]);
}

SACCADE_KERNEL(32, 1) stmatrix_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  const int lane = lane_index();
  auto* shared = reinterpret_cast<Bytes16*>(shared_memory());
  std::uint32_t registers[4];
  for (int n = 0; n < 4; ++n) registers[n] = load(arguments.in + 4 * lane + n);
  store_matrices(SharedPointer(shared + lane), registers);
  sync_warp();
  store(reinterpret_cast<Bytes16*>(arguments.out) + lane, load(shared + lane));
}

template <class T>
SACCADE_KERNEL(32, 1)
mma_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  const int lane = lane_index();
  const std::uint32_t* in = arguments.in + 16 * lane;
  const auto two = [&](int n) { return pack<T>(small(load(in + n)), small(load(in + n + 1))); };
  const std::uint32_t a[4] = {two(0), two(2), two(4), two(6)};
  float d[4];
  for (int n = 0; n < 4; ++n) d[n] = small(load(in + 12 + n));
  multiply_add<T>(d, a, two(8), two(10));
  for (int n = 0; n < 4; ++n) store(arguments.out + 4 * lane + n, bits_of(d[n]));
}

// d = d * 1 + a * b with fragments, b's rows or columns lying in memory. in: a, b (256 numbers each), then d.
template <bool kTransposed>
SACCADE_KERNEL(32, 1)
wmma_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  auto* a = reinterpret_cast<F16*>(shared_memory());
  F16* b = a + 256;
  auto* d = reinterpret_cast<float*>(shared_memory() + 1024);
  for (int n = lane_index(); n < 256; n += 32) {
    store(a + n, small_as<F16>(load(arguments.in + n)));
    store(b + n, small_as<F16>(load(arguments.in + 256 + n)));
    store(d + n, small(load(arguments.in + 512 + n)));
  }
  sync_warp();
  FragmentA left;
  FragmentB<kTransposed> right;
  FragmentD sum;
  FragmentD zero;
  load_fragment(left, a, 16);
  load_fragment(right, b, 16);
  load_fragment(sum, d, 16);
  clear_fragment(zero);
  multiply_add(sum, left, right);
  multiply_add(zero, left, right);
  sync_warp();
  store_fragment(d, sum, 16);
  store_fragment(d + 256, zero, 16);
  sync_warp();
  for (int n = lane_index(); n < 512; n += 32) store(arguments.out + n, bits_of(load(d + n)));
}

// Warp 0 fills a ring of two stages, warp 1 empties it, six times.
SACCADE_KERNEL(64, 1) mbarrier_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  auto* full = reinterpret_cast<Mbarrier*>(shared_memory());
  Mbarrier* empty = full + 2;
  auto* stages = reinterpret_cast<std::uint32_t*>(shared_memory() + 128);
  if (thread_index() == 0) {
    for (int n = 0; n < 2; ++n) {
      init_mbarrier(full + n, 32);
      init_mbarrier(empty + n, 1);
    }
    fence_mbarrier_init();
  }
  sync_block();
  const int lane = lane_index();
  for (int round = 0; round < 6; ++round) {
    const int stage = round % 2;
    const int parity = round / 2 % 2;
    if (warp_index() == 0) {
      wait_mbarrier(empty + stage, parity ^ 1);
      store(stages + 32 * stage + lane, load(arguments.in + 32 * round + lane));
      arrive_mbarrier(full + stage);
    } else {
      while (!test_mbarrier(full + stage, parity)) {
      }
      store(arguments.out + 32 * round + lane, load(stages + 32 * stage + (lane ^ 3)));
      sync_warp();
      if (lane == 0) arrive_mbarrier(empty + stage);
    }
  }
  sync_block();
  if (thread_index() == 0) invalidate_mbarrier(full);
}

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

// Two blocks: each reads the other's memory, writes into it and arrives at its barrier; then block 0 loads a
// box (32 rows of 64 numbers) into both.
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
    fence_mbarrier_init();
  }
  const std::uint32_t word = load(arguments.in + 64 * rank + thread);
  store(words + thread, word);
  arrive_cluster();
  wait_cluster();
  std::uint32_t* out = arguments.out + (128 + 1024) * rank;
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

/// A probe with what it takes to launch it.
struct Row {
  Probe probe;
  void (*kernel)(Arguments);
  Grid grid;
};

constexpr int kShared = 48 << 10;

Row row_of(std::string name, void (*kernel)(Arguments), int threads, std::size_t in_words,
           std::size_t out_words, int capability) {
  return {{name, name, in_words, out_words, capability, 0, {}}, kernel, {{1, 1, 1}, threads, 1, kShared}};
}

template <class T, int kColumns, bool kRegisters, Major kA, Major kB, int kSwizzle>
void add_wgmma(std::vector<Row>& rows) {
  const bool bf16 = std::is_same_v<T, BF16>;
  const std::string a = kRegisters ? "registers" : kA == Major::k ? "k" : "mn";
  Row row =
      row_of(std::string("wgmma_") + (bf16 ? "bf16" : "f16") + "_n" + std::to_string(kColumns) + "_a_" + a +
                 "_b_" + (kB == Major::k ? "k" : "mn") + "_" + std::to_string(kSwizzle),
             wgmma_probe<T, kColumns, kRegisters, kA, kB, kSwizzle>, 128,
             static_cast<std::size_t>((64 + kColumns) * kDepth), static_cast<std::size_t>(64 * kColumns), 90);
  row.probe.family = "wgmma";
  row.probe.shape = {bf16, kB == Major::mn, kRegisters, kA == Major::mn, kColumns, 0, kSwizzle};
  rows.push_back(std::move(row));
}

template <int kColumns>
void add_width(std::vector<Row>& rows) {
  add_wgmma<F16, kColumns, true, Major::k, Major::k, 128>(rows);
  add_wgmma<F16, kColumns, true, Major::k, Major::mn, 128>(rows);
  add_wgmma<F16, kColumns, false, Major::k, Major::k, 128>(rows);
  add_wgmma<F16, kColumns, false, Major::k, Major::mn, 128>(rows);
  add_wgmma<BF16, kColumns, true, Major::k, Major::mn, 128>(rows);
  add_wgmma<BF16, kColumns, false, Major::k, Major::k, 128>(rows);
}

template <int kSwizzle>
void add_swizzle(std::vector<Row>& rows) {
  add_wgmma<F16, 64, false, Major::k, Major::k, kSwizzle>(rows);
  add_wgmma<F16, 64, false, Major::mn, Major::mn, kSwizzle>(rows);
  add_wgmma<BF16, 128, true, Major::k, Major::mn, kSwizzle>(rows);
  add_wgmma<F16, 192, false, Major::mn, Major::k, kSwizzle>(rows);
}

std::size_t elements(const std::array<int, 5>& sizes) {
  std::size_t count = 1;
  for (const int size : sizes) count *= static_cast<std::size_t>(size);
  return count;
}

template <int kRank>
void add_tensor(std::vector<Row>& rows, int swizzle) {
  const ProbeBox box = probe_box(kRank, swizzle, false);
  const std::string name = std::to_string(kRank) + "d_" + std::to_string(swizzle);
  const std::size_t tensor = elements(box.size) / 2;
  const std::size_t piece = elements(box.box) / 2;
  Row in = row_of("tensor_load_" + name, tensor_load_probe<kRank>, 128, tensor, piece, 90);
  Row out = row_of("tensor_store_" + name, tensor_store_probe<kRank>, 128, piece, tensor, 90);
  in.probe.family = "tensor_load";
  out.probe.family = "tensor_store";
  in.probe.shape.rank = out.probe.shape.rank = kRank;
  in.probe.shape.swizzle = out.probe.shape.swizzle = swizzle;
  rows.push_back(std::move(in));
  rows.push_back(std::move(out));
}

std::vector<Row> all_rows() {
  std::vector<Row> rows = {row_of("memory", memory_probe, 32, 128, 225, 80),
                           row_of("conversions", conversions_probe, 32, 32, 256, 80),
                           row_of("functions", functions_probe, 32, 32, 192, 80),
                           row_of("warp", warp_probe, 32, 32, 128, 80),
                           row_of("barriers", barriers_probe, 128, 128, 128, 80),
                           row_of("cp_async", cp_async_probe, 128, 1536, 1536, 80),
                           row_of("ldmatrix", ldmatrix_probe<false>, 32, 128, 128, 80),
                           row_of("ldmatrix_transposed", ldmatrix_probe<true>, 32, 128, 128, 80),
                           row_of("stmatrix", stmatrix_probe, 32, 128, 128, 90),
                           row_of("mma_f16", mma_probe<F16>, 32, 512, 128, 80),
                           row_of("mma_bf16", mma_probe<BF16>, 32, 512, 128, 80),
                           row_of("wmma", wmma_probe<false>, 32, 768, 512, 80),
                           row_of("wmma_transposed", wmma_probe<true>, 32, 768, 512, 80),
                           row_of("mbarrier", mbarrier_probe, 64, 192, 192, 90),
                           row_of("bulk", bulk_probe, 64, 64, 64, 90),
                           row_of("cluster", cluster_probe, 64, 1024, 2 * (128 + 1024), 90),
                           row_of("registers", registers_probe, 256, 256, 256, 90),
                           row_of("dependent", dependent_probe, 32, 32, 32, 90)};
  for (Row& row : rows) {
    if (row.probe.name == "functions") row.probe.tolerance = 4e-6F;
    if (row.probe.name == "wmma_transposed") row.probe.shape.transposed = true;
    if (row.probe.name == "ldmatrix_transposed") row.probe.shape.transposed = true;
    if (row.probe.name == "cluster") row.grid.cluster = row.grid.blocks.x = 2;
    if (row.probe.name == "registers") row.grid.registers = 128;
    if (row.probe.name == "dependent") row.grid.dependent = true;
  }
  for (const int swizzle : {0, 32, 64, 128}) {
    add_tensor<2>(rows, swizzle);
    add_tensor<3>(rows, swizzle);
  }
  add_tensor<4>(rows, 128);
  add_tensor<5>(rows, 0);
  add_width<8>(rows);
  add_width<16>(rows);
  add_width<32>(rows);
  add_width<64>(rows);
  add_width<96>(rows);
  add_width<128>(rows);
  add_width<192>(rows);
  add_width<256>(rows);
  add_swizzle<0>(rows);
  add_swizzle<32>(rows);
  add_swizzle<64>(rows);
  return rows;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows = all_rows();
  return kRows;
}

/// Launches a probe on memory of its machine.
std::string launch_probe(const Row& row, const Target& target, const std::uint32_t* in, std::uint32_t* out) {
  Arguments arguments{};
  arguments.in = in;
  arguments.out = out;
  const ProbeShape& shape = row.probe.shape;
  TensorLayout layout;
  if (row.probe.family == "cluster") {
    layout = {in, 2, 2, {64, 32}, {0, 128}, {64, 32}, 128};
    arguments.at[1] = 3;
  } else if (shape.rank > 0) {
    const ProbeBox box = probe_box(shape.rank, shape.swizzle, row.probe.family == "tensor_store");
    layout.base = row.probe.family == "tensor_load" ? in : out;
    layout.rank = shape.rank;
    layout.swizzle = shape.swizzle;
    std::uint64_t stride = 2;
    for (std::size_t n = 0; n < 5; ++n) {
      layout.sizes[n] = static_cast<std::uint64_t>(box.size[n]);
      layout.box[n] = static_cast<std::uint32_t>(box.box[n]);
      layout.strides[n] = stride;
      stride *= layout.sizes[n];
      arguments.at[n] = box.at[n];
    }
  }
  if (layout.base != nullptr) {
    if (const Status made = make_tensor_map(arguments.map, layout); !made.ok()) return made.message();
  }
  return launch(row.probe.name.c_str(), row.kernel, row.grid, target, arguments).message();
}

}  // namespace

const std::vector<Probe>& probes() {
  static const std::vector<Probe> kProbes = [] {
    std::vector<Probe> found;
    for (const Row& row : rows()) found.push_back(row.probe);
    return found;
  }();
  return kProbes;
}

#ifdef __CUDACC__
namespace {
const std::string kHung = "the probe has not ended after 20 seconds";

/// Waits for the launch. A probe that hangs must not hang the test; what comes after it fails at once.
std::string wait_for_device() {
  static bool hung = false;
  if (hung) return kHung;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (;;) {
    const cudaError_t state = cudaStreamQuery(nullptr);
    if (state != cudaErrorNotReady) return to_status(state, "the probe").message();
    if (std::chrono::steady_clock::now() > end) break;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  hung = true;
  return kHung;
}
}  // namespace

std::string why_not(const Probe& probe) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    return "this machine has no CUDA GPU";
  }
  int major = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess)
    return "the GPU does not tell its compute capability";
  if (major != 8 && major != 9)
    return "the probes were built for compute capability 8.x and 9.0, the GPU has " + std::to_string(major) +
           ".x";
  if (probe.capability == 90 && major != 9)
    return "the probe needs compute capability 9.0, the GPU has " + std::to_string(major) + ".x";
  return {};
}

std::string run_probe(std::size_t n, std::span<const std::uint32_t> in, std::span<std::uint32_t> out) {
  std::uint32_t* memory = nullptr;
  const std::size_t gap = (in.size_bytes() + 255) / 256 * 256;
  if (const Status got = to_status(cudaMalloc(&memory, gap + out.size_bytes()), "cudaMalloc"); !got.ok())
    return got.message();
  std::uint32_t* results = memory + gap / 4;
  std::string wrong =
      to_status(cudaMemcpy(memory, in.data(), in.size_bytes(), cudaMemcpyDefault), "copy in").message();
  if (wrong.empty()) wrong = to_status(cudaMemset(results, 0, out.size_bytes()), "cudaMemset").message();
  if (wrong.empty()) wrong = launch_probe(rows()[n], Target{}, memory, results);
  if (wrong.empty()) wrong = wait_for_device();
  if (wrong == kHung) return wrong;  // to free memory would wait for it
  if (wrong.empty())
    wrong =
        to_status(cudaMemcpy(out.data(), results, out.size_bytes(), cudaMemcpyDefault), "copy out").message();
  (void)cudaFree(memory);
  return wrong;
}
#else
std::string why_not(const Probe&) {
  return {};
}

std::string run_probe(std::size_t n, std::span<const std::uint32_t> in, std::span<std::uint32_t> out) {
  std::fill(out.begin(), out.end(), 0);
  emu::GlobalMemory memory;
  memory.add("in", in.data(), in.size_bytes(), emu::Rights::read);
  memory.add("out", out.data(), out.size_bytes(), emu::Rights::read_write, true);
  return launch_probe(rows()[n], Target{&memory}, in.data(), out.data());
}
#endif

}  // namespace saccade::SACCADE_MACHINE
