// Makes the tensor maps of the bulk copy engine, on either machine.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <saccade/status.h>

#include "cuda/launch/launch.h"
#include "cuda/ptx/tma.h"

namespace saccade::SACCADE_MACHINE {

/// A tensor in global memory, the innermost dimension first, and the box that copies move.
struct TensorLayout {
  const void* base = nullptr;  ///< a multiple of 16
  int rank = 2;                ///< 2 to 5
  int element_bytes = 2;       ///< 1, 2 or 4
  std::array<std::uint64_t, 5> sizes{};
  std::array<std::uint64_t, 5> strides{};  ///< bytes, multiples of 16; strides[0] is not used
  std::array<std::uint32_t, 5> box{};      ///< up to 256 each; the innermost a multiple of 16 bytes
  int swizzle = 0;                         ///< bytes of the box's rows (32, 64 or 128), or 0

  friend bool operator==(const TensorLayout&, const TensorLayout&) = default;
};

namespace detail {
/// What the copy engine would not take; empty when all is well. A box narrower than its swizzle leaves gaps
/// in shared memory, which nobody here wants.
[[nodiscard]] inline std::string wrong_with(const TensorLayout& layout) {
  if (layout.rank < 2 || layout.rank > 5) return "a tensor map has 2 to 5 dimensions";
  if (layout.element_bytes != 1 && layout.element_bytes != 2 && layout.element_bytes != 4)
    return "a tensor map's elements have 1, 2 or 4 bytes";
  if (reinterpret_cast<std::uintptr_t>(layout.base) % 16 != 0)
    return "a tensor map's base is not aligned to 16 bytes";
  for (std::size_t n = 0; n < static_cast<std::size_t>(layout.rank); ++n) {
    if (layout.sizes[n] == 0 || layout.sizes[n] > std::uint64_t{1} << 32)
      return "a tensor map's sizes are 1 to 2^32";
    if (layout.box[n] == 0 || layout.box[n] > 256)
      return "a tensor map's box has 1 to 256 elements a dimension";
    if (n > 0 && (layout.strides[n] % 16 != 0 || layout.strides[n] >= std::uint64_t{1} << 40))
      return "a tensor map's strides are multiples of 16 bytes below 2^40";
  }
  const std::uint64_t row = std::uint64_t{layout.box[0]} * static_cast<std::uint64_t>(layout.element_bytes);
  if (row % 16 != 0) return "a tensor map's box is no multiple of 16 bytes wide";
  if (layout.swizzle != 0 && layout.swizzle != 32 && layout.swizzle != 64 && layout.swizzle != 128)
    return "a tensor map's swizzle is 0, 32, 64 or 128";
  if (layout.swizzle != 0 && row != static_cast<std::uint64_t>(layout.swizzle))
    return "a tensor map's box is not as wide as its swizzle";
  return {};
}
}  // namespace detail

#ifdef __CUDACC__
/// Fills in `map`. The encoder is asked of the driver, so that nothing links it; each thread remembers the
/// last maps it made, which depend on nothing but the layout.
[[nodiscard]] inline Status make_tensor_map(ptx::TensorMap& map, const TensorLayout& layout) {
  struct Known {
    TensorLayout layout;
    ptx::TensorMap map;
  };
  thread_local std::array<Known, 16> known;
  thread_local std::size_t oldest = 0;
  for (const Known& one : known) {
    if (layout.base != nullptr && one.layout == layout) {
      map = one.map;
      return {};
    }
  }
  if (const std::string wrong = detail::wrong_with(layout); !wrong.empty()) return {Code::internal, wrong};
  static const auto kEncode =
      device::driver_function<PFN_cuTensorMapEncodeTiled_v12000>("cuTensorMapEncodeTiled", 12000);
  if (kEncode == nullptr) return {Code::internal, "the driver knows no tensor maps (CUDA 12.0)"};
  const CUtensorMapDataType type = layout.element_bytes == 1   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                   : layout.element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16
                                                               : CU_TENSOR_MAP_DATA_TYPE_UINT32;
  const CUtensorMapSwizzle swizzle = layout.swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : layout.swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                     : layout.swizzle == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                                            : CU_TENSOR_MAP_SWIZZLE_NONE;
  const std::array<cuuint64_t, 5> sizes = {layout.sizes[0], layout.sizes[1], layout.sizes[2], layout.sizes[3],
                                           layout.sizes[4]};
  const std::array<cuuint64_t, 4> strides = {layout.strides[1], layout.strides[2], layout.strides[3],
                                             layout.strides[4]};
  const std::array<cuuint32_t, 5> every = {1, 1, 1, 1, 1};
  // Boxes with rows of 128 bytes, asked for 256 at a time, come out of memory 8% slower.
  constexpr CUtensorMapL2promotion kAtOnce = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
  CUcontext context = nullptr;
  if (Status status = device::current_context(context); !status.ok()) return status;
  const CUresult result =
      kEncode(&map, type, static_cast<cuuint32_t>(layout.rank), const_cast<void*>(layout.base), sizes.data(),
              strides.data(), layout.box.data(), every.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
              kAtOnce, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return device::to_status(result, "cuTensorMapEncodeTiled");
  known[oldest] = {layout, map};
  oldest = (oldest + 1) % known.size();
  return {};
}
#else
[[nodiscard]] inline Status make_tensor_map(ptx::TensorMap& map, const TensorLayout& layout) {
  if (const std::string wrong = detail::wrong_with(layout); !wrong.empty()) return {Code::internal, wrong};
  map.base = static_cast<std::byte*>(const_cast<void*>(layout.base));
  map.rank = static_cast<std::uint32_t>(layout.rank);
  map.element_bytes = static_cast<std::uint32_t>(layout.element_bytes);
  map.sizes = layout.sizes;
  map.strides = layout.strides;
  map.strides[0] = map.element_bytes;
  map.box = layout.box;
  map.swizzle = static_cast<std::uint32_t>(layout.swizzle);
  return {};
}
#endif

}  // namespace saccade::SACCADE_MACHINE
