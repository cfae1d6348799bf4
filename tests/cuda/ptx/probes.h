// The probes of src/cuda/ptx: small kernels that send their input through one family of primitives. They are
// compiled twice, like every kernel; the tests compare each machine's output with a model, and the machines
// with each other.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace saccade {

/// How a model tells the probes of one family apart.
struct ProbeShape {
  bool bf16 = false;
  bool transposed = false;   ///< ldmatrix: each matrix; wgmma: B is N-major
  bool a_registers = false;  ///< wgmma
  bool a_transposed = false;
  int columns = 0;  ///< of a wgmma
  int rank = 0;     ///< of a tensor
  int swizzle = 0;
};

struct Probe {
  std::string name;
  std::string family;
  std::size_t in_words = 0, out_words = 0;
  int capability = 80;  ///< that a GPU needs
  float tolerance = 0;  ///< relative, of outputs that are floats; 0: every bit is the same
  ProbeShape shape;
};

/// The box of the tensor probes: where it lies, and the tensor, innermost dimension first.
struct ProbeBox {
  std::array<int, 5> at, box, size;
};
/// The tensor has 16-bit elements without gaps. Every box hangs over an edge; those of stores not over the
/// first, where the hardware traps.
inline ProbeBox probe_box(int rank, int swizzle, bool store) {
  const int wide = swizzle == 0 ? 24 : swizzle / 2;
  switch (rank) {
    case 2:
      return {{8, 9, 0, 0, 0}, {wide, 40, 1, 1, 1}, {64, 44, 1, 1, 1}};
    case 3:
      return {{store ? 48 : -8, 3, store ? 1 : -1, 0, 0}, {wide, 5, 4, 1, 1}, {64, 7, 3, 1, 1}};
    case 4:
      return {{0, store ? 3 : -2, 1, 1, 0}, {wide, 4, 2, 2, 1}, {64, 4, 4, 2, 1}};
    default:
      return {{40, 0, 1, 0, 1}, {wide, 3, 2, 2, 2}, {64, 3, 3, 2, 2}};
  }
}

namespace device {
[[nodiscard]] const std::vector<Probe>& probes();
/// Why this machine cannot run it; empty when it can.
[[nodiscard]] std::string why_not(const Probe& probe);
/// Runs the n-th probe. The message of what went wrong, or empty.
[[nodiscard]] std::string run_probe(std::size_t n, std::span<const std::uint32_t> in,
                                    std::span<std::uint32_t> out);
}  // namespace device

namespace emulated {
[[nodiscard]] const std::vector<Probe>& probes();
[[nodiscard]] std::string why_not(const Probe& probe);
[[nodiscard]] std::string run_probe(std::size_t n, std::span<const std::uint32_t> in,
                                    std::span<std::uint32_t> out);
}  // namespace emulated

}  // namespace saccade
