// The warpgroup's matrix product: D(64 x N, f32) = A(64 x 16) * B(16 x N) [+ D], 16-bit inputs (sm_90a).
//
// All four warps of a warpgroup issue it together; it runs on its own until wait_products. Warp w holds rows
// 16w.. of D: with g = lane / 4 and t = lane % 4, register 4c + 2h + i is (16w + g + 8h, 8c + 2t + i). A in
// registers lies as for mma: (g, 2t..), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..), two numbers each.
//
// Matrices in shared memory are given by descriptors: start, two strides, and the swizzle of the copy engine
// (xor of address bits, so that the start may lie inside of the pattern; the pattern itself begins at a
// multiple of 1024, 512 or 256 bytes). A chunk is 16 bytes, 8 numbers.
//   K-major (rows of numbers along K), swizzle of s bytes: row r at (r / 8) * stride + (r % 8) * s; the
//   second chunk
//     16 bytes on. `leading` is not used.
//   K-major, no swizzle: row r at (r / 8) * stride + (r % 8) * 16; the second chunk `leading` bytes on.
//   MN-major (rows of numbers along M or N, one for each k), swizzle of s bytes: row k at (k / 8) * stride +
//     (k % 8) * s; every s bytes along the row, `leading` bytes on.
//   MN-major, no swizzle: row k at (k / 8) * leading + (k % 8) * 16; every chunk along the row, `stride`
//   bytes on.
//
// The emulator shows accumulators as NaN until their wait. It cannot see registers of A that change before
// it.
#pragma once

#include <type_traits>

#include "core/dtypes.h"
#include "cuda/ptx/machine.h"
#include "cuda/ptx/shared.h"

namespace saccade::SACCADE_MACHINE::ptx {

/// Along which dimension a matrix in shared memory is contiguous.
enum class Major { k, mn };

namespace detail {
SACCADE_DEVICE std::uint64_t encode_descriptor(std::uint32_t start, int leading, int stride, int swizzle) {
  const std::uint64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
  return std::uint64_t{(start >> 4) & 0x3fffU} |
         std::uint64_t{(static_cast<std::uint32_t>(leading) >> 4) & 0x3fffU} << 16 |
         std::uint64_t{(static_cast<std::uint32_t>(stride) >> 4) & 0x3fffU} << 32 | mode << 62;
}
}  // namespace detail
/// The same matrix `bytes` bytes further on: the next step along K, or another tile.
SACCADE_DEVICE std::uint64_t advance_descriptor(std::uint64_t descriptor, int bytes) {
  return descriptor + static_cast<std::uint64_t>(bytes >> 4);
}

#ifdef __CUDACC__
/// The descriptor of a matrix in shared memory. `leading` and `stride` in bytes, `swizzle` 0, 32, 64 or 128.
SACCADE_DEVICE std::uint64_t matrix_descriptor(const void* start, int leading, int stride, int swizzle) {
  return detail::encode_descriptor(SharedPointer(start).address, leading, stride, swizzle);
}
/// Orders this warpgroup's use of accumulators and registers of A before the products that follow.
SACCADE_DEVICE void fence_products() {
  SACCADE_ONLY_SM90A(asm volatile("wgmma.fence.sync.aligned;" ::: "memory"));
}
/// Closes the group of products that were issued since the last one.
SACCADE_DEVICE void commit_products() {
  SACCADE_ONLY_SM90A(asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"));
}
/// Waits until at most kLeft of the newest groups are unfinished.
template <int kLeft>
SACCADE_DEVICE void wait_products() {
  SACCADE_ONLY_SM90A(asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory"));
}
/// Keeps the compiler from moving uses of these registers across this place; it does not know that a product
/// has them.
template <int kCount>
SACCADE_DEVICE void hold_registers(float (&d)[kCount]) {
  SACCADE_UNROLL
  for (int n = 0; n < kCount; ++n) asm volatile("" : "+f"(d[n])::"memory");
}

namespace detail {
#define SACCADE_WGMMA_PLACES_4 "%0, %1, %2, %3"
#define SACCADE_WGMMA_PLACES_8 \
  SACCADE_WGMMA_PLACES_4       \
  ", %4, %5, %6, %7"
#define SACCADE_WGMMA_PLACES_16 \
  SACCADE_WGMMA_PLACES_8        \
  ", %8, %9, %10, %11, %12, %13, %14, %15"
#define SACCADE_WGMMA_PLACES_32 \
  SACCADE_WGMMA_PLACES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SACCADE_WGMMA_PLACES_40 \
  SACCADE_WGMMA_PLACES_32       \
  ", %32, %33, %34, %35, %36, %37, %38, %39"
#define SACCADE_WGMMA_PLACES_48 \
  SACCADE_WGMMA_PLACES_32       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define SACCADE_WGMMA_PLACES_64 \
  SACCADE_WGMMA_PLACES_48       \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SACCADE_WGMMA_PLACES_80 \
  SACCADE_WGMMA_PLACES_64       \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define SACCADE_WGMMA_PLACES_88 \
  SACCADE_WGMMA_PLACES_80       \
  ", %80, %81, %82, %83, %84, %85, %86, %87"
#define SACCADE_WGMMA_PLACES_96                                                      \
  SACCADE_WGMMA_PLACES_64                                                            \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define SACCADE_WGMMA_PLACES_128                                                                 \
  SACCADE_WGMMA_PLACES_96                                                                        \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SACCADE_WGMMA_FOUR(n) "+f"(d[n]), "+f"(d[(n) + 1]), "+f"(d[(n) + 2]), "+f"(d[(n) + 3])
#define SACCADE_WGMMA_SIXTEEN(n)                                                   \
  SACCADE_WGMMA_FOUR(n), SACCADE_WGMMA_FOUR((n) + 4), SACCADE_WGMMA_FOUR((n) + 8), \
      SACCADE_WGMMA_FOUR((n) + 12)
#define SACCADE_WGMMA_D_4 SACCADE_WGMMA_FOUR(0)
#define SACCADE_WGMMA_D_8 SACCADE_WGMMA_FOUR(0), SACCADE_WGMMA_FOUR(4)
#define SACCADE_WGMMA_D_16 SACCADE_WGMMA_SIXTEEN(0)
#define SACCADE_WGMMA_D_32 SACCADE_WGMMA_D_16, SACCADE_WGMMA_SIXTEEN(16)
#define SACCADE_WGMMA_D_40 SACCADE_WGMMA_D_32, SACCADE_WGMMA_FOUR(32), SACCADE_WGMMA_FOUR(36)
#define SACCADE_WGMMA_D_48 SACCADE_WGMMA_D_32, SACCADE_WGMMA_SIXTEEN(32)
#define SACCADE_WGMMA_D_64 SACCADE_WGMMA_D_48, SACCADE_WGMMA_SIXTEEN(48)
#define SACCADE_WGMMA_D_80 SACCADE_WGMMA_D_64, SACCADE_WGMMA_SIXTEEN(64)
#define SACCADE_WGMMA_D_88 SACCADE_WGMMA_D_80, SACCADE_WGMMA_FOUR(80), SACCADE_WGMMA_FOUR(84)
#define SACCADE_WGMMA_D_96 SACCADE_WGMMA_D_64, SACCADE_WGMMA_SIXTEEN(64), SACCADE_WGMMA_SIXTEEN(80)
#define SACCADE_WGMMA_D_128 SACCADE_WGMMA_D_96, SACCADE_WGMMA_SIXTEEN(96), SACCADE_WGMMA_SIXTEEN(112)
/// One product with A in shared memory, and one with A in registers. p0.. are the numbers of the operands
/// after D's.
#define SACCADE_WGMMA_SHARED(n, count, type, p0, p1, p2, p3, p4)                                           \
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #p2 ", 0;\n\twgmma.mma_async.sync.aligned.m64n" #n \
               "k16.f32." type "." type " {" SACCADE_WGMMA_PLACES_##count                                  \
               "}, %" #p0 ", %" #p1 ", p, 1, 1, %" #p3 ", %" #p4 ";\n\t}"                                  \
               : SACCADE_WGMMA_D_##count                                                                   \
               : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kA), "n"(kB))
#define SACCADE_WGMMA_REGISTERS(n, count, type, p0, p1, p2, p3, p4, p5, p6)                                \
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #p5 ", 0;\n\twgmma.mma_async.sync.aligned.m64n" #n \
               "k16.f32." type "." type " {" SACCADE_WGMMA_PLACES_##count                                  \
               "}, {%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4 ", p, 1, 1, %" #p6 ";\n\t}"            \
               : SACCADE_WGMMA_D_##count                                                                   \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)),    \
                 "n"(kB))
#define SACCADE_WGMMA(n, count, p0, p1, p2, p3, p4, p5, p6)                                              \
  template <>                                                                                            \
  struct Wgmma<n> {                                                                                      \
    template <class T, int kA, int kB>                                                                   \
    static SACCADE_DEVICE void multiply(float (&d)[count], std::uint64_t a, std::uint64_t b,             \
                                        bool accumulate) {                                               \
      if constexpr (std::is_same_v<T, F16>) {                                                            \
        SACCADE_ONLY_SM90A(SACCADE_WGMMA_SHARED(n, count, "f16", p0, p1, p2, p3, p4));                   \
      } else {                                                                                           \
        SACCADE_ONLY_SM90A(SACCADE_WGMMA_SHARED(n, count, "bf16", p0, p1, p2, p3, p4));                  \
      }                                                                                                  \
    }                                                                                                    \
    template <class T, int kB>                                                                           \
    static SACCADE_DEVICE void multiply(float (&d)[count], const std::uint32_t (&a)[4], std::uint64_t b, \
                                        bool accumulate) {                                               \
      if constexpr (std::is_same_v<T, F16>) {                                                            \
        SACCADE_ONLY_SM90A(SACCADE_WGMMA_REGISTERS(n, count, "f16", p0, p1, p2, p3, p4, p5, p6));        \
      } else {                                                                                           \
        SACCADE_ONLY_SM90A(SACCADE_WGMMA_REGISTERS(n, count, "bf16", p0, p1, p2, p3, p4, p5, p6));       \
      }                                                                                                  \
    }                                                                                                    \
  };
template <int kColumns>
struct Wgmma;
SACCADE_WGMMA(8, 4, 4, 5, 6, 7, 8, 9, 10)
SACCADE_WGMMA(16, 8, 8, 9, 10, 11, 12, 13, 14)
SACCADE_WGMMA(32, 16, 16, 17, 18, 19, 20, 21, 22)
SACCADE_WGMMA(64, 32, 32, 33, 34, 35, 36, 37, 38)
SACCADE_WGMMA(80, 40, 40, 41, 42, 43, 44, 45, 46)
SACCADE_WGMMA(96, 48, 48, 49, 50, 51, 52, 53, 54)
SACCADE_WGMMA(128, 64, 64, 65, 66, 67, 68, 69, 70)
SACCADE_WGMMA(160, 80, 80, 81, 82, 83, 84, 85, 86)
SACCADE_WGMMA(176, 88, 88, 89, 90, 91, 92, 93, 94)
SACCADE_WGMMA(192, 96, 96, 97, 98, 99, 100, 101, 102)
SACCADE_WGMMA(256, 128, 128, 129, 130, 131, 132, 133, 134)
#undef SACCADE_WGMMA
}  // namespace detail

/// d = a * b, or d += a * b when `accumulate`; both matrices in shared memory, T F16 or BF16.
template <class T, int kColumns, Major kA, Major kB>
SACCADE_DEVICE void warpgroup_multiply(float (&d)[kColumns / 2], std::uint64_t a, std::uint64_t b,
                                       bool accumulate) {
  detail::Wgmma<kColumns>::template multiply<T, static_cast<int>(kA), static_cast<int>(kB)>(d, a, b,
                                                                                            accumulate);
}
/// The same with A in registers.
template <class T, int kColumns, Major kB>
SACCADE_DEVICE void warpgroup_multiply(float (&d)[kColumns / 2], const std::uint32_t (&a)[4], std::uint64_t b,
                                       bool accumulate) {
  detail::Wgmma<kColumns>::template multiply<T, static_cast<int>(kB)>(d, a, b, accumulate);
}
#else
SACCADE_DEVICE std::uint64_t matrix_descriptor(const void* start, int leading, int stride,
                                               int swizzle SACCADE_WHERE) {
  emu::Thread& thread = emu::this_thread();
  const std::size_t offset = thread.shared_offset(start, where);
  thread.require(offset % 16 == 0 && leading % 16 == 0 && stride % 16 == 0,
                 "a matrix descriptor with an offset that is no multiple of 16", where);
  thread.require(leading >= 0 && leading < 1 << 18 && stride >= 0 && stride < 1 << 18,
                 "a matrix descriptor with an offset beyond 2^18", where);
  thread.require(swizzle == 0 || swizzle == 32 || swizzle == 64 || swizzle == 128,
                 "a matrix descriptor with a swizzle that does not exist", where);
  return detail::encode_descriptor(static_cast<std::uint32_t>(offset), leading, stride, swizzle);
}
SACCADE_DEVICE void fence_products(SACCADE_ONLY_WHERE) {
  emu::this_thread().fence_products(where);
}
SACCADE_DEVICE void commit_products(SACCADE_ONLY_WHERE) {
  emu::this_thread().commit_products(where);
}
template <int kLeft>
SACCADE_DEVICE void wait_products(SACCADE_ONLY_WHERE) {
  emu::this_thread().wait_products(kLeft, where);
}
template <int kCount>
SACCADE_DEVICE void hold_registers(float (&)[kCount]) {}

namespace detail {
template <class T>
float number_of(std::uint16_t bits) {
  return saccade::to_float(T{bits});
}
template <class T, int kColumns>
emu::MatrixProduct product_of(float* d, std::uint64_t b, Major major, bool accumulate) {
  static_assert(kColumns == 8 || kColumns == 16 || kColumns == 32 || kColumns == 64 || kColumns == 80 ||
                kColumns == 96 || kColumns == 128 || kColumns == 160 || kColumns == 176 || kColumns == 192 ||
                kColumns == 256);
  emu::MatrixProduct product;
  product.d = d;
  product.columns = kColumns;
  product.accumulate = accumulate;
  product.b_descriptor = b;
  product.b_transposed = major == Major::mn;
  product.to_float = number_of<T>;
  return product;
}
}  // namespace detail
template <class T, int kColumns, Major kA, Major kB>
SACCADE_DEVICE void warpgroup_multiply(float (&d)[kColumns / 2], std::uint64_t a, std::uint64_t b,
                                       bool accumulate SACCADE_WHERE) {
  emu::MatrixProduct product = detail::product_of<T, kColumns>(d, b, kB, accumulate);
  product.a_descriptor = a;
  product.a_transposed = kA == Major::mn;
  emu::this_thread().multiply(product, where);
}
template <class T, int kColumns, Major kB>
SACCADE_DEVICE void warpgroup_multiply(float (&d)[kColumns / 2], const std::uint32_t (&a)[4], std::uint64_t b,
                                       bool accumulate SACCADE_WHERE) {
  emu::MatrixProduct product = detail::product_of<T, kColumns>(d, b, kB, accumulate);
  product.a_in_registers = true;
  for (std::size_t n = 0; n < 4; ++n) product.a[n] = a[n];
  emu::this_thread().multiply(product, where);
}
#endif

}  // namespace saccade::SACCADE_MACHINE::ptx
