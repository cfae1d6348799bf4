#include "cuda/ladder/products.h"
#include "cuda/ptx/memory.h"
#include "cuda/ptx/numbers.h"
#ifdef __CUDACC__
#include <cublas_v2.h>
#include <dlfcn.h>
#endif

namespace saccade::SACCADE_MACHINE::ladder {

#ifdef __CUDACC__
namespace {

/// cuBLAS, loaded when it is first needed: most users never do, and it has hundreds of megabytes.
struct Cublas {
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
  // Overloaded in the header, so its type is spelled out.
  cublasStatus_t (*multiply)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                             const void*, cudaDataType, int, long long, const void*, cudaDataType, int,
                             long long, const void*, void*, cudaDataType, int, long long, int,
                             cublasComputeType_t, cublasGemmAlgo_t) = nullptr;
  std::string missing;

  Cublas() {
    const std::string name = "libcublas.so." + std::to_string(CUBLAS_VER_MAJOR);
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays loaded as long as the program
    if (library == nullptr) {
      missing = name + " is not installed";
      return;
    }
    const auto find = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
      if (function == nullptr) missing = name + " has no " + symbol;
    };
    find(create, "cublasCreate_v2");
    find(destroy, "cublasDestroy_v2");
    find(set_stream, "cublasSetStream_v2");
    find(set_workspace, "cublasSetWorkspace_v2");
    find(multiply, "cublasGemmStridedBatchedEx");
  }
};

const Cublas& cublas() {
  static const Cublas library;
  return library;
}

}  // namespace

struct Products::State {
  cublasHandle_t handle = nullptr;
  cublasStatus_t created = CUBLAS_STATUS_NOT_INITIALIZED;
};

Products::Products() : state_(std::make_unique<State>()) {
  if (cublas().missing.empty()) state_->created = cublas().create(&state_->handle);
}

Products::~Products() {
  if (state_->handle != nullptr) (void)cublas().destroy(state_->handle);
}

Status Products::status() const {
  if (!cublas().missing.empty())
    return {Code::device_unavailable, "cuBLAS is not available: " + cublas().missing};
  if (state_->created == CUBLAS_STATUS_SUCCESS) return {};
  return {Code::internal, "cuBLAS could not be started: error " + std::to_string(state_->created)};
}

Status Products::multiply(const Product& p, std::byte* scratch, const Target& target) const {
  // cuBLAS thinks in columns: C^T = B^T A^T, every matrix in memory being its own transpose.
  const float one = 1;
  const float zero = 0;
  cublasStatus_t status = cublas().set_stream(state_->handle, static_cast<cudaStream_t>(target.stream));
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublas().set_workspace(state_->handle, scratch, kScratchBytes);
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = cublas().multiply(state_->handle, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N,
                               p.columns, p.rows, p.depth, &one, p.b, CUDA_R_16F, static_cast<int>(p.b_row),
                               p.b_next, p.a, CUDA_R_16F, static_cast<int>(p.a_row), p.a_next, &zero, p.c,
                               p.f32_result ? CUDA_R_32F : CUDA_R_16F, static_cast<int>(p.c_row), p.c_next,
                               p.count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  }
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return {Code::internal, "a cuBLAS product failed: error " + std::to_string(status)};
}
#else
namespace {

/// A thread for each element of C, which is all that a stand-in needs.
void plain_product(const Product p) {
  const int n = ptx::block_index().y;
  for (int at = ptx::block_index().x * ptx::block_threads() + ptx::thread_index(); at < p.rows * p.columns;
       at += ptx::grid_size().x * ptx::block_threads()) {
    const int row = at / p.columns;
    const int column = at % p.columns;
    float sum = 0;
    for (int k = 0; k < p.depth; ++k) {
      const std::int64_t b = p.b_transposed ? column * p.b_row + k : k * p.b_row + column;
      sum = ptx::fma(ptx::to_float(ptx::load(p.a + n * p.a_next + row * p.a_row + k)),
                     ptx::to_float(ptx::load(p.b + n * p.b_next + b)), sum);
    }
    const std::int64_t c = n * p.c_next + row * p.c_row + column;
    if (p.f32_result) {
      ptx::store(static_cast<float*>(p.c) + c, sum);
    } else {
      ptx::store(static_cast<F16*>(p.c) + c, ptx::from_float<F16>(sum));
    }
  }
}

}  // namespace

struct Products::State {};
Products::Products() = default;
Products::~Products() = default;

Status Products::status() const {
  return {};
}

Status Products::multiply(const Product& product, std::byte*, const Target& target) const {
  return launch("a plain product", &plain_product, {.blocks = {4, product.count, 1}, .threads = 128}, target,
                product);
}
#endif

}  // namespace saccade::SACCADE_MACHINE::ladder
