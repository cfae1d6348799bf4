// The table of probes, and how one is launched.
#include <chrono>
#include <thread>

#include "cuda/launch/tensor_map.h"
#include "probes.h"
#include "probes_of_hopper.h"
#include "probes_of_warps.h"

namespace saccade::SACCADE_MACHINE {
namespace {

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
  std::vector<Row> rows = {row_of("memory", memory_probe, 32, 128, 228, 80),
                           row_of("conversions", conversions_probe, 32, 32, 256, 80),
                           row_of("functions", functions_probe, 32, 32, 192, 80),
                           row_of("warp", warp_probe, 32, 32, 128, 80),
                           row_of("barriers", barriers_probe, 128, 128, 128, 80),
                           row_of("cp_async", cp_async_probe, 128, 1536, 1536, 80),
                           row_of("copied", copied_probe, 64, 1024, 1024, 80),
                           row_of("ldmatrix", ldmatrix_probe<false>, 32, 128, 128, 80),
                           row_of("ldmatrix_transposed", ldmatrix_probe<true>, 32, 128, 128, 80),
                           row_of("stmatrix", stmatrix_probe, 32, 128, 128, 90),
                           row_of("mma_f16", mma_probe<F16>, 32, 512, 128, 80),
                           row_of("mma_bf16", mma_probe<BF16>, 32, 512, 128, 80),
                           row_of("wmma", wmma_probe<false>, 32, 768, 512, 80),
                           row_of("wmma_transposed", wmma_probe<true>, 32, 768, 512, 80),
                           row_of("mbarrier", mbarrier_probe, 64, 192, 192, 80),
                           row_of("bulk", bulk_probe, 64, 64, 64, 90),
                           row_of("cluster", cluster_probe, 64, 1024, 2 * (128 + 1024 + 256), 90),
                           row_of("registers", registers_probe, 256, 256, 256, 90),
                           row_of("dependent", dependent_probe, 32, 32, 32, 90)};
  for (Row& row : rows) {
    if (row.probe.name == "functions") row.probe.tolerance = 4e-6F;
    if (row.probe.name == "wmma_transposed") row.probe.shape.transposed = true;
    if (row.probe.name == "ldmatrix_transposed") row.probe.shape.transposed = true;
    if (row.probe.name == "cluster") row.grid.cluster = row.grid.blocks.x = 2;
    if (row.probe.name == "registers") row.grid.registers = 128;
    if (row.probe.name == "dependent") row.grid.overlap = Overlap::in_graphs_too;
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
