// The warp's matrix product: D(16 x 8, f32) += A(16 x 16) * B(16 x 8), 16-bit inputs (Ampere and later).
//
// With g = lane / 4 and t = lane % 4, a lane holds
//   A: (g, 2t..), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..)      two numbers a register
//   B: (2t.., g), (2t + 8.., g)                                        two numbers (of one column) a register
//   D: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
#pragma once

#include <type_traits>

#include "core/dtypes.h"
#include "cuda/ptx/machine.h"

namespace saccade::SACCADE_MACHINE::ptx {

#ifdef __CUDACC__
/// d += a * b with inputs of type T (F16 or BF16).
template <class T>
SACCADE_DEVICE void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                 std::uint32_t b1) {
  if constexpr (std::is_same_v<T, F16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}
#else
namespace detail {
/// The 16-bit number in the lower or upper half of a register.
template <class T>
float half_of(std::uint32_t packed, std::size_t which) {
  return saccade::to_float(T{static_cast<std::uint16_t>(packed >> (16 * which))});
}
}  // namespace detail
template <class T>
SACCADE_DEVICE void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                 std::uint32_t b1 SACCADE_WHERE) {
  struct Lane {
    float* d;
    const std::uint32_t* a;
    std::uint32_t b[2];
  } mine{d, a, {b0, b1}};
  emu::Thread& thread = emu::this_thread();
  thread.meet("mma", kAllLanes, mine, where, [&](const std::array<Lane*, 32>& lanes) {
    thread.block.cluster.counters.matrix_flops += 2 * 16 * 8 * 16;
    float left[16][16];
    float right[16][8];
    for (std::size_t lane = 0; lane < 32; ++lane) {
      const std::size_t g = lane / 4;
      const std::size_t t = 2 * (lane % 4);
      for (std::size_t n = 0; n < 4; ++n) {
        for (std::size_t h = 0; h < 2; ++h) {
          left[g + n % 2 * 8][t + n / 2 * 8 + h] = detail::half_of<T>(lanes[lane]->a[n], h);
          if (n < 2) right[t + n * 8 + h][g] = detail::half_of<T>(lanes[lane]->b[n], h);
        }
      }
    }
    for (std::size_t lane = 0; lane < 32; ++lane) {
      for (std::size_t n = 0; n < 4; ++n) {
        const std::size_t row = lane / 4 + n / 2 * 8;
        const std::size_t column = lane % 4 * 2 + n % 2;
        float sum = 0;
        for (std::size_t k = 0; k < 16; ++k) sum += left[row][k] * right[k][column];
        lanes[lane]->d[n] += sum;
      }
    }
  });
}
#endif

}  // namespace saccade::SACCADE_MACHINE::ptx
