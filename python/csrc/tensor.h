// A torch tensor as the stable C interface shows it: a handle, and what attention asks of it, read once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>

namespace saccade_torch {

struct DeleteHandle {
  void operator()(AtenTensorHandle handle) const { aoti_torch_delete_tensor_object(handle); }
};
/// Owns one reference. torch::stable::Tensor would do, at the price of a shared_ptr's allocation a tensor.
using Handle = std::unique_ptr<AtenTensorOpaque, DeleteHandle>;

/// Codes of this libtorch, asked once: the numbers are not part of its stable interface.
struct Codes {
  std::int32_t f16 = aoti_torch_dtype_float16();
  std::int32_t bf16 = aoti_torch_dtype_bfloat16();
  std::int32_t f32 = aoti_torch_dtype_float32();
  std::int32_t boolean = aoti_torch_dtype_bool();
  std::int32_t i32 = aoti_torch_dtype_int32();
  std::int32_t u8 = aoti_torch_dtype_uint8();
  std::int32_t cpu = aoti_torch_device_type_cpu();
  std::int32_t cuda = aoti_torch_device_type_cuda();
};
inline const Codes& codes() {
  static const Codes kCodes;
  return kCodes;
}

/// An input: owned, with its sizes and strides borrowed from torch.
class Tensor {
 public:
  Tensor() = default;
  /// Takes over a reference, as the boxed calling convention hands them out.
  explicit Tensor(AtenTensorHandle handle) : handle_(handle) {}
  /// Asks torch for all that follows; throws where a tensor has no such thing.
  void read() {
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(handle_.get(), &dim_));
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(handle_.get(), &sizes_));
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(handle_.get(), &strides_));
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(handle_.get(), &dtype_));
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(handle_.get(), &data_));
  }

  explicit operator bool() const { return handle_ != nullptr; }
  [[nodiscard]] std::int64_t dim() const { return dim_; }
  [[nodiscard]] std::int64_t size(std::int64_t axis) const { return sizes_[axis]; }
  /// 0 along an axis of one element that stands for `wanted` of them.
  [[nodiscard]] std::int64_t stride(std::int64_t axis, std::int64_t wanted) const {
    return sizes_[axis] == 1 && wanted != 1 ? 0 : strides_[axis];
  }
  [[nodiscard]] std::int64_t stride(std::int64_t axis) const { return strides_[axis]; }
  [[nodiscard]] std::int32_t dtype() const { return dtype_; }
  [[nodiscard]] bool empty() const { return std::find(sizes_, sizes_ + dim_, 0) != sizes_ + dim_; }

  [[nodiscard]] const void* data() const { return data_; }
  [[nodiscard]] std::int32_t device_type() const {
    std::int32_t type = 0;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(handle_.get(), &type));
    return type;
  }
  [[nodiscard]] std::int32_t device_index() const {
    std::int32_t index = 0;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(handle_.get(), &index));
    return index;
  }

  /// Replaces the tensor by a contiguous copy, unless it is contiguous.
  void make_contiguous();
  /// Kernels read rows whole: a last dimension with gaps costs a copy.
  void make_rows_contiguous() {
    if (sizes_[dim_ - 1] > 1 && strides_[dim_ - 1] != 1) make_contiguous();
  }

 private:
  Handle handle_;
  std::int64_t dim_ = 0;
  std::int64_t* sizes_ = nullptr;
  std::int64_t* strides_ = nullptr;
  void* data_ = nullptr;
  std::int32_t dtype_ = 0;
};

}  // namespace saccade_torch
