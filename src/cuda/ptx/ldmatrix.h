// 8 x 8 matrices of 16-bit numbers between shared memory and the registers of a warp.
//
// Lane i holds elements (i / 4, 2 * (i % 4)) and the next one of each matrix, in one register. Lane 8 * m + r
// passes the address of row r (16 bytes) of matrix m. Transposed, lane i gets (2 * (i % 4), i / 4) and the
// one below.
#pragma once

#include <cstring>

#include "cuda/ptx/machine.h"
#include "cuda/ptx/shared.h"

namespace saccade::SACCADE_MACHINE::ptx {

#ifdef __CUDACC__
/// Four matrices.
template <class T>
SACCADE_DEVICE void load_matrices(std::uint32_t (&to)[4], SharedPointer<T> row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row.address)
               : "memory");
}
/// Four matrices, each transposed.
template <class T>
SACCADE_DEVICE void load_matrices_transposed(std::uint32_t (&to)[4], SharedPointer<T> row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row.address)
               : "memory");
}
/// Stores four matrices (Hopper).
template <class T>
SACCADE_DEVICE void store_matrices(SharedPointer<T> row, const std::uint32_t (&from)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row.address),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
#else
  __trap();
#endif
}
#else
namespace detail {

inline void load_matrices(std::uint32_t* to, const void* row, bool transposed, const emu::Where& where) {
  emu::Thread& thread = emu::this_thread();
  thread.read(row, 16, where);
  std::uint16_t numbers[8];
  std::memcpy(numbers, row, sizeof numbers);
  struct Lane {
    std::uint32_t* to;
    const std::uint16_t* row;
  } mine{to, numbers};
  thread.meet("ldmatrix", kAllLanes, mine, where, [&](const std::array<Lane*, 32>& lanes) {
    for (std::size_t lane = 0; lane < 32; ++lane) {
      for (std::size_t m = 0; m < 4; ++m) {
        const std::size_t a = lane / 4;
        const std::size_t b = lane % 4 * 2;
        const auto at = [&](std::size_t r, std::size_t c) { return std::uint32_t{lanes[8 * m + r]->row[c]}; };
        lanes[lane]->to[m] = transposed ? at(b, a) | at(b + 1, a) << 16 : at(a, b) | at(a, b + 1) << 16;
      }
    }
  });
}
}  // namespace detail
template <class T>
SACCADE_DEVICE void load_matrices(std::uint32_t (&to)[4], SharedPointer<T> row SACCADE_WHERE) {
  detail::load_matrices(to, row.address, false, where);
}
template <class T>
SACCADE_DEVICE void load_matrices_transposed(std::uint32_t (&to)[4], SharedPointer<T> row SACCADE_WHERE) {
  detail::load_matrices(to, row.address, true, where);
}
template <class T>
SACCADE_DEVICE void store_matrices(SharedPointer<T> row, const std::uint32_t (&from)[4] SACCADE_WHERE) {
  struct Lane {
    const std::uint32_t* from;
    std::uint16_t row[8];
  } mine{from, {}};
  emu::Thread& thread = emu::this_thread();
  thread.meet("stmatrix", kAllLanes, mine, where, [&](const std::array<Lane*, 32>& lanes) {
    for (std::size_t m = 0; m < 4; ++m) {
      for (std::size_t lane = 0; lane < 32; ++lane) {
        std::uint16_t* row_of = lanes[8 * m + lane / 4]->row + lane % 4 * 2;
        row_of[0] = static_cast<std::uint16_t>(lanes[lane]->from[m]);
        row_of[1] = static_cast<std::uint16_t>(lanes[lane]->from[m] >> 16);
      }
    }
  });
  thread.write(row.address, 16, where);
  std::memcpy(row.address, mine.row, 16);
}
#endif

}  // namespace saccade::SACCADE_MACHINE::ptx
