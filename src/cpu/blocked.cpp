// The blocked kernel's host side: its configuration and its row of the registry.
#include <algorithm>

#include "core/config.h"
#include "cpu/blocked_simd.h"
#include "cpu/kernels.h"
#include "cpu/row_blocks.h"
#include "cpu/threads.h"

namespace saccade {
namespace {

constexpr std::int64_t kMaxPanels = 8;

/// Rows per block: four panels share each converted tile of keys, unless that leaves threads without work.
int choose_rows(const Problem& p, int threads, int panel_rows) {
  std::int64_t panels = 4;
  while (panels > 1 && row_blocks(p, panels * panel_rows) < std::int64_t{4} * threads) panels /= 2;
  const std::int64_t needed = divide_up(std::max<std::int64_t>(p.group() * p.len_q, 1), panel_rows);
  return static_cast<int>(std::min(panels, needed)) * panel_rows;
}

Result<Prepared> prepare(const Problem& p, const Machine& machine, std::string_view text) {
  const int panel_rows = blocked::geometry().panel_rows;
  Config given(text);
  RowBlockConfig config{};
  config.threads = given.take("threads", worthwhile_threads(p, machine.threads), 1, machine.threads);
  config.rows = given.take("rows", choose_rows(p, config.threads, panel_rows), 1,
                           static_cast<int>(kMaxPanels) * panel_rows);
  config.key_tile = given.take("key_tile", 128, 1, kMaxKeyTile);
  config.splits =
      given.take("splits", choose_splits(p, config.threads, config.rows, config.key_tile), 1, kMaxKeySplits);
  if (Status status = given.finish("cpu_blocked"); !status.ok()) return status;

  const blocked::Sizes sizes(p, config.rows, config.key_tile);
  RowBlockRun blocked_run(p, config, sizes, sizes.scratch, blocked::attend);
  const std::size_t bytes = blocked_run.workspace_bytes();
  return Prepared{to_string(config), bytes,
                  [blocked_run](const Tensors& t, std::byte* workspace, Stream) -> Status {
                    blocked_run(t, reinterpret_cast<float*>(workspace));
                    return {};
                  }};
}

}  // namespace

const Kernel& cpu_blocked() {
  static const Kernel kRow{
      .name = "cpu_blocked",
      .summary = "SIMD over query rows, blocked online softmax",
      .device = DeviceKind::cpu,
      .reject = [](const Problem&, const Machine&) -> std::optional<std::string> { return std::nullopt; },
      .prepare = prepare};
  return kRow;
}

}  // namespace saccade
