// The blocked kernel's host side: how a problem is cut into blocks of rows (and, when those are too few for
// the threads, into parts of the keys), and who runs which.
#include <algorithm>
#include <fmt/format.h>
#include <omp.h>

#include "core/config.h"
#include "cpu/blocked_simd.h"
#include "cpu/kernels.h"
#include "cpu/threads.h"

namespace saccade {
namespace {

struct BlockedConfig {
  int threads;
  int rows;      ///< query rows in a block
  int key_tile;  ///< keys that one pass of the softmax covers
  int splits;    ///< parts the keys are cut into
};

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// A problem cut into blocks: what run() needs besides the pointers.
class BlockedRun {
 public:
  BlockedRun(const Problem& problem, const BlockedConfig& config)
      : p_(problem),
        config_(config),
        sizes_(problem, config.rows, config.key_tile),
        tiles_(divide_up(p_.group() * p_.len_q, config.rows)),
        blocks_(p_.batch * p_.heads_kv * tiles_) {}

  [[nodiscard]] std::size_t workspace_bytes() const {
    const std::int64_t states = config_.splits > 1 ? blocks_ * config_.splits : config_.threads;
    return static_cast<std::size_t>(config_.threads * sizes_.scratch + states * sizes_.state) * sizeof(float);
  }

  void operator()(const Tensors& t, float* workspace) const {
    float* states = workspace + config_.threads * sizes_.scratch;
    const std::int64_t splits = config_.splits;
#pragma omp parallel for schedule(dynamic, 1) num_threads(config_.threads) if (config_.threads > 1)
    for (std::int64_t unit = 0; unit < blocks_ * splits; ++unit) {
      const std::int64_t thread = omp_get_thread_num();
      blocked::RowBlock block = row_block(t, unit / splits);
      if (block.rows <= 0) continue;
      block.keys = part_of_keys(block, unit % splits);
      const std::int64_t slot = splits > 1 ? unit : thread;
      const blocked::State state = blocked::state_at(sizes_, states + slot * sizes_.state);
      float* scratch = workspace + thread * sizes_.scratch;
      blocked::attend(block, sizes_, scratch, state);
      if (splits == 1) blocked::finish(block, sizes_, scratch, state);
    }
    if (splits == 1) return;
#pragma omp parallel for schedule(dynamic, 1) num_threads(config_.threads) if (config_.threads > 1)
    for (std::int64_t index = 0; index < blocks_; ++index) {
      const blocked::RowBlock block = row_block(t, index);
      if (block.rows <= 0) continue;
      const auto part = [&](std::int64_t n) {
        return blocked::state_at(sizes_, states + (index * splits + n) * sizes_.state);
      };
      // Always in the same order, so that the bits do not depend on who finished first.
      for (std::int64_t n = 1; n < splits; ++n) blocked::merge(block, sizes_, part(n), part(0));
      float* scratch = workspace + omp_get_thread_num() * sizes_.scratch;
      blocked::finish(block, sizes_, scratch, part(0));
    }
  }

 private:
  [[nodiscard]] blocked::RowBlock row_block(const Tensors& t, std::int64_t index) const {
    // All tiles of a head in a row, while its keys are in the cache; from the last, because under a causal
    // mask later rows see more keys and the shortest blocks should come at the end.
    const std::int64_t head = index / tiles_;
    const std::int64_t tile = tiles_ - 1 - index % tiles_;
    blocked::RowBlock block{.problem = &p_, .tensors = &t, .sequence = sequence(p_, t, head / p_.heads_kv)};
    block.head_kv = head % p_.heads_kv;
    block.first_row = tile * config_.rows;
    block.rows = std::min<std::int64_t>(config_.rows, p_.group() * block.sequence.len_q - block.first_row);
    block.keys = {0, block.sequence.len_kv};
    return block;
  }

  [[nodiscard]] KeyRange part_of_keys(const blocked::RowBlock& block, std::int64_t part) const {
    const std::int64_t len = block.sequence.len_kv;
    const std::int64_t share = divide_up(divide_up(len, config_.splits), config_.key_tile) * config_.key_tile;
    return {std::min(part * share, len), std::min((part + 1) * share, len)};
  }

  Problem p_;
  BlockedConfig config_;
  blocked::Sizes sizes_;
  std::int64_t tiles_;
  std::int64_t blocks_;
};

constexpr std::int64_t kMaxPanels = 8;
constexpr std::int64_t kMaxKeyTile = 4096;
constexpr std::int64_t kMaxSplits = 1024;

/// Rows per block: four panels share each converted tile of keys, unless that leaves threads without work.
int choose_rows(const Problem& p, int threads, int panel_rows) {
  std::int64_t panels = 4;
  const auto blocks = [&] {
    return p.batch * p.heads_kv * divide_up(p.group() * p.len_q, panels * panel_rows);
  };
  while (panels > 1 && blocks() < std::int64_t{4} * threads) panels /= 2;
  const std::int64_t needed = divide_up(std::max<std::int64_t>(p.group() * p.len_q, 1), panel_rows);
  return static_cast<int>(std::min(panels, needed)) * panel_rows;
}

int choose_splits(const Problem& p, int threads, int rows, int key_tile) {
  const std::int64_t blocks = p.batch * p.heads_kv * divide_up(p.group() * p.len_q, rows);
  if (blocks == 0 || blocks >= threads) return 1;
  const std::int64_t worth = std::max<std::int64_t>(p.len_kv / (2 * key_tile), 1);
  return static_cast<int>(std::min({divide_up(threads, blocks), worth, kMaxSplits}));
}

Result<Prepared> prepare(const Problem& p, const Machine& machine, std::string_view text) {
  const int panel_rows = blocked::geometry().panel_rows;
  Config given(text);
  BlockedConfig config{};
  config.threads = given.take("threads", worthwhile_threads(p, machine.threads), 1, machine.threads);
  config.rows = given.take("rows", choose_rows(p, config.threads, panel_rows), 1,
                           static_cast<int>(kMaxPanels) * panel_rows);
  config.key_tile = given.take("key_tile", 128, 1, kMaxKeyTile);
  config.splits =
      given.take("splits", choose_splits(p, config.threads, config.rows, config.key_tile), 1, kMaxSplits);
  if (Status status = given.finish("cpu_blocked"); !status.ok()) return status;

  BlockedRun blocked_run(p, config);
  const std::size_t bytes = blocked_run.workspace_bytes();
  return Prepared{fmt::format("threads={} rows={} key_tile={} splits={}", config.threads, config.rows,
                              config.key_tile, config.splits),
                  bytes, [blocked_run](const Tensors& t, std::byte* workspace, Stream) -> Status {
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
