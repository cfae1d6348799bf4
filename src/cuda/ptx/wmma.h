// WMMA: matrix products of a warp on opaque fragments, D(16 x 16, f32) += A(16 x 16, f16) * B(16 x 16, f16).
// Which lane holds which element is the hardware's secret (in the emulator: row by row, eight a lane).
#pragma once

#include "core/dtypes.h"
#include "cuda/ptx/machine.h"
#ifdef __CUDACC__
#include <mma.h>
#endif

namespace saccade::SACCADE_MACHINE::ptx {

#ifdef __CUDACC__
namespace wmma {
using nvcuda::wmma::accumulator;
using nvcuda::wmma::col_major;
using nvcuda::wmma::fragment;
using nvcuda::wmma::matrix_a;
using nvcuda::wmma::matrix_b;
using nvcuda::wmma::row_major;
}  // namespace wmma

/// A, row by row in memory.
struct FragmentA {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> data;
};
/// B, column by column (kTransposed: the rows in memory are B's columns) or row by row.
template <bool kTransposed>
struct FragmentB {
  using Order = std::conditional_t<kTransposed, wmma::col_major, wmma::row_major>;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, Order> data;
};
/// D.
struct FragmentD {
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> data;
};

/// Loads a fragment from memory (aligned to 32 bytes) whose rows are `stride` elements apart.
SACCADE_DEVICE void load_fragment(FragmentA& to, const F16* from, int stride) {
  nvcuda::wmma::load_matrix_sync(to.data, reinterpret_cast<const __half*>(from),
                                 static_cast<unsigned>(stride));
}
template <bool kTransposed>
SACCADE_DEVICE void load_fragment(FragmentB<kTransposed>& to, const F16* from, int stride) {
  nvcuda::wmma::load_matrix_sync(to.data, reinterpret_cast<const __half*>(from),
                                 static_cast<unsigned>(stride));
}
SACCADE_DEVICE void load_fragment(FragmentD& to, const float* from, int stride) {
  nvcuda::wmma::load_matrix_sync(to.data, from, static_cast<unsigned>(stride), nvcuda::wmma::mem_row_major);
}
SACCADE_DEVICE void store_fragment(float* to, const FragmentD& from, int stride) {
  nvcuda::wmma::store_matrix_sync(to, from.data, static_cast<unsigned>(stride), nvcuda::wmma::mem_row_major);
}
SACCADE_DEVICE void clear_fragment(FragmentD& d) {
  nvcuda::wmma::fill_fragment(d.data, 0.0F);
}
/// d += a * b.
template <bool kTransposed>
SACCADE_DEVICE void multiply_add(FragmentD& d, const FragmentA& a, const FragmentB<kTransposed>& b) {
  nvcuda::wmma::mma_sync(d.data, a.data, b.data, d.data);
}
#else
struct FragmentA {
  F16 data[8];
};
template <bool kTransposed>
struct FragmentB {
  F16 data[8];
};
struct FragmentD {
  float data[8];
};

namespace detail {
/// Lane n moves elements 8 * (n % 2).. of row n / 2.
template <class T>
const T* fragment_row(const T* matrix, int stride) {
  return matrix + lane_index() / 2 * stride + lane_index() % 2 * 8;
}
template <class T>
void load_fragment(T (&to)[8], const T* from, int stride, const emu::Where& where) {
  emu::Thread& thread = emu::this_thread();
  thread.require(reinterpret_cast<std::uintptr_t>(from) % 32 == 0,
                 "a WMMA fragment that is not aligned to 32 bytes", where);
  thread.require(stride * static_cast<int>(sizeof(T)) % 16 == 0,
                 "a WMMA stride that is no multiple of 16 bytes", where);
  const T* row = fragment_row(from, stride);
  for (int n = 0; n < 8; ++n) to[n] = thread.load(row + n, where);
  int nothing = 0;
  thread.meet("a WMMA load", kAllLanes, nothing, where, [](const auto&) {});
}
}  // namespace detail
SACCADE_DEVICE void load_fragment(FragmentA& to, const F16* from, int stride SACCADE_WHERE) {
  detail::load_fragment(to.data, from, stride, where);
}
template <bool kTransposed>
SACCADE_DEVICE void load_fragment(FragmentB<kTransposed>& to, const F16* from, int stride SACCADE_WHERE) {
  detail::load_fragment(to.data, from, stride, where);
}
SACCADE_DEVICE void load_fragment(FragmentD& to, const float* from, int stride SACCADE_WHERE) {
  detail::load_fragment(to.data, from, stride, where);
}
SACCADE_DEVICE void store_fragment(float* to, const FragmentD& from, int stride SACCADE_WHERE) {
  emu::Thread& thread = emu::this_thread();
  thread.require(reinterpret_cast<std::uintptr_t>(to) % 32 == 0,
                 "a WMMA fragment that is not aligned to 32 bytes", where);
  float* row = to + lane_index() / 2 * stride + lane_index() % 2 * 8;
  for (int n = 0; n < 8; ++n) thread.store(row + n, from.data[n], where);
  int nothing = 0;
  thread.meet("a WMMA store", kAllLanes, nothing, where, [](const auto&) {});
}
SACCADE_DEVICE void clear_fragment(FragmentD& d) {
  for (float& x : d.data) x = 0;
}
template <bool kTransposed>
SACCADE_DEVICE void multiply_add(FragmentD& d, const FragmentA& a,
                                 const FragmentB<kTransposed>& b SACCADE_WHERE) {
  struct Lane {
    float* d;
    const F16* a;
    const F16* b;
  } mine{d.data, a.data, b.data};
  emu::Thread& thread = emu::this_thread();
  thread.meet("a WMMA product", kAllLanes, mine, where, [&](const std::array<Lane*, 32>& lanes) {
    thread.block.cluster.counters.matrix_flops += 2 * 16 * 16 * 16;
    const auto at = [&](auto pick, std::size_t r, std::size_t c) {
      return saccade::to_float(pick(lanes[r * 2 + c / 8])[c % 8]);
    };
    for (std::size_t r = 0; r < 16; ++r) {
      for (std::size_t c = 0; c < 16; ++c) {
        float sum = 0;
        for (std::size_t k = 0; k < 16; ++k) {
          sum += at([](const Lane* l) { return l->a; }, r, k) *
                 at([](const Lane* l) { return l->b; }, kTransposed ? c : k, kTransposed ? k : c);
        }
        lanes[r * 2 + c / 8]->d[c % 8] += sum;
      }
    }
  });
}
#endif

}  // namespace saccade::SACCADE_MACHINE::ptx
