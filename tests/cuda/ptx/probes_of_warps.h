// Probes of what a warp or a block does by itself, on every chip from Ampere on. Included by probes.cu alone.
#pragma once

#include <limits>

#include "cuda/ptx/barrier.h"
#include "cuda/ptx/cp_async.h"
#include "cuda/ptx/ldmatrix.h"
#include "cuda/ptx/mbarrier.h"
#include "cuda/ptx/memory.h"
#include "cuda/ptx/mma.h"
#include "cuda/ptx/numbers.h"
#include "cuda/ptx/tma.h"
#include "cuda/ptx/warp.h"
#include "cuda/ptx/wmma.h"

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
  (void)atomic_add(reinterpret_cast<std::uint64_t*>(arguments.out + 224), std::uint64_t{wide.words[1]} << 8);
  // Every lane adds to a 64-bit number.
  auto* sum = reinterpret_cast<std::uint64_t*>(arguments.out + 226);
  std::uint64_t seen = 0, found = 0;
  while ((found = compare_and_swap(sum, seen, seen + wide.words[2])) != seen) seen = found;
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
  const float other = lane % 4 == 0 ? std::numeric_limits<float>::quiet_NaN() : 0.5F;
  store(out + 7, bits_of(ptx::larger(ptx::from_float<float>(x), other)));
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
  store(arguments.out + lane, static_cast<std::uint32_t>(pinned(static_cast<int>(sum))));
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
                  (5 * thread + stage) % 17);
    commit_copies();
  }
  wait_copies<2>();
  store(out + thread, load(shared + thread));
  wait_copies<0>();
  sync_block();
  for (int stage = 1; stage < 3; ++stage)
    store(out + 128 * stage + thread, load(shared + 128 * stage + (thread ^ 77)));
}

// Four copies a thread, two before each of two arrivals; nobody waits but at the barriers. One of each two is
// zeros.
SACCADE_KERNEL(64, 1) copied_probe(SACCADE_ARGUMENT(Arguments) arguments) {
  auto* barriers = reinterpret_cast<Mbarrier*>(shared_memory());
  auto* shared = reinterpret_cast<Bytes16*>(shared_memory() + 128);
  const int thread = thread_index();
  if (thread < 2) init_mbarrier(barriers + thread, 64);
  sync_block();
  for (int stage = 0; stage < 2; ++stage) {
    for (int n = 0; n < 2; ++n) {
      const int at = 128 * stage + 64 * n + thread;
      copy_async_16(SharedPointer(shared + at), reinterpret_cast<const Bytes16*>(arguments.in) + at,
                    (thread + n) % 2 * 16);
    }
    arrive_when_copied(barriers + stage);
  }
  for (int stage = 0; stage < 2; ++stage) {
    wait_mbarrier(barriers + stage, 0);
    for (int n = 0; n < 2; ++n) {
      const int at = 128 * stage + 64 * n + thread;
      store(reinterpret_cast<Bytes16*>(arguments.out) + at, load(shared + (at ^ 45)));
    }
  }
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

}  // namespace
}  // namespace saccade::SACCADE_MACHINE
