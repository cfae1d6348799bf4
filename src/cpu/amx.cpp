// The AMX kernel's host side: whether the machine has the tiles, the configuration, and the row of the
// registry.
#include <algorithm>
#include <fmt/format.h>
// clang-format off
#include "cpu/simd_targets.h"
#include <hwy/targets.h>
// clang-format on

#include "core/config.h"
#include "cpu/amx_tiles.h"
#include "cpu/blocked_simd.h"
#include "cpu/kernels.h"
#include "cpu/row_blocks.h"
#include "cpu/threads.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace saccade {
namespace {

#if defined(__x86_64__) && defined(__linux__)

__attribute__((target("xsave"))) std::uint64_t enabled_states() {
  return _xgetbv(0);
}

/// What the hardware or the operating system lacks for tiles of bf16; nothing when they are ready. Asks for
/// the permission to use them, which holds for the whole process.
std::optional<std::string> find_missing() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kOsXsave = 1U << 27;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsXsave) == 0) return "the machine has no AMX";
  constexpr unsigned kAmxBf16 = 1U << 22;
  constexpr unsigned kAmxTile = 1U << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAmxBf16) == 0 || (d & kAmxTile) == 0) {
    return "the machine has no AMX tiles of bf16";
  }
  constexpr unsigned kAvx512Bf16 = 1U << 5;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0 || (a & kAvx512Bf16) == 0) {
    return "the machine has no AVX-512 conversions to bf16";
  }
  constexpr std::uint64_t kTileStates = std::uint64_t{3} << 17;
  if ((enabled_states() & kTileStates) != kTileStates) return "the operating system does not save AMX tiles";
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) {
    return "the operating system gives no permission for AMX tiles";
  }
  return std::nullopt;
}

#else

std::optional<std::string> find_missing() {
  return "AMX is for x86-64 machines under Linux";
}

#endif

/// Why this machine, or the instruction sets that a test leaves, cannot run the kernel.
std::optional<std::string> missing() {
  if (!amx::compiled()) return "it was built by a compiler without AMX";
  if ((hwy::SupportedTargets() & HWY_AVX3) == 0) return "it needs AVX-512";
  static const std::optional<std::string> kMissing = find_missing();  // a process asks once
  return kMissing;
}

constexpr std::int64_t kMaxPanels = 64;

/// Rows per block: the more rows, the more often a packed tile of keys is used; but every thread needs
/// blocks, and some more to even out their lengths.
int choose_rows(const Problem& p, int threads) {
  constexpr std::int64_t kPanelRows = amx::kPanelRows;
  std::int64_t panels = 16;
  while (panels > 2 && row_blocks(p, panels * kPanelRows) < std::int64_t{4} * threads) panels /= 2;
  const std::int64_t needed = divide_up(std::max<std::int64_t>(p.group() * p.len_q, 1), kPanelRows);
  return static_cast<int>(std::min(panels, needed) * kPanelRows);
}

/// Keys and values of a tile beside scores and output in the first-level cache (8% at dim 64); for wider
/// heads the output's way to the tiles and back counts for more.
int choose_key_tile(const Problem& p) {
  return p.dtype == DType::bf16 && std::max(p.dim_qk, p.dim_v) <= 64 ? 64 : 128;
}

std::optional<std::string> reject(const Problem& p, const Machine&) {
  if (p.dim_qk == 0) return "dim_qk is 0: there is nothing to multiply";
  return missing();
}

/// Where cpu_blocked was measured to be as fast or faster (docs/kernels/cpu.md).
std::optional<std::string> decline(const Problem& p, const Machine&) {
  if (p.dtype == DType::f32) {
    return "six products make one of f32, and a neighbour on the core slows them more than it slows FMAs";
  }
  const std::int64_t rows = p.group() * p.len_q;
  constexpr std::int64_t kLeast = 16;
  if (rows >= kLeast) return std::nullopt;
  return fmt::format("{} query rows share a key head; packing pays from {} on", rows, kLeast);
}

Result<Prepared> prepare(const Problem& p, const Machine& machine, std::string_view text) {
  Config given(text);
  RowBlockConfig config{};
  config.threads = given.take("threads", worthwhile_threads(p, machine.threads), 1, machine.threads);
  config.rows =
      given.take("rows", choose_rows(p, config.threads), 1, static_cast<int>(kMaxPanels * amx::kPanelRows));
  config.key_tile = given.take("key_tile", choose_key_tile(p), 1, kMaxKeyTile);
  config.splits =
      given.take("splits", choose_splits(p, config.threads, config.rows, config.key_tile), 1, kMaxKeySplits);
  if (Status status = given.finish("cpu_amx"); !status.ok()) return status;

  const blocked::Sizes sizes(p, config.rows, config.key_tile, amx::kPanelRows, amx::kUnit);
  RowBlockRun amx_run(p, config, sizes, amx::scratch_floats(p, sizes), amx::attend);
  const std::size_t bytes = amx_run.workspace_bytes();
  return Prepared{to_string(config), bytes,
                  [amx_run](const Tensors& t, std::byte* workspace, Stream) -> Status {
                    amx_run(t, reinterpret_cast<float*>(workspace));
                    return {};
                  }};
}

}  // namespace

const Kernel& cpu_amx() {
  static const Kernel kRow{
      .name = "cpu_amx",
      .summary = "matrix tiles of bf16 parts, SIMD over query rows, blocked online softmax",
      .device = DeviceKind::cpu,
      .reject = reject,
      .prepare = prepare,
      .decline = decline};
  return kRow;
}

}  // namespace saccade
