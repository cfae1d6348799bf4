#include "cpu/row_blocks.h"

#include <algorithm>
#include <fmt/format.h>
#include <omp.h>

namespace saccade {

std::string to_string(const RowBlockConfig& config) {
  return fmt::format("threads={} rows={} key_tile={} splits={}", config.threads, config.rows, config.key_tile,
                     config.splits);
}

int choose_splits(const Problem& p, int threads, int rows, int key_tile) {
  const std::int64_t blocks = row_blocks(p, rows);
  if (blocks == 0 || blocks >= threads) return 1;
  const std::int64_t worth = std::max<std::int64_t>(p.len_kv / (std::int64_t{2} * key_tile), 1);
  return static_cast<int>(std::min({divide_up(threads, blocks), worth, kMaxKeySplits}));
}

RowBlockRun::RowBlockRun(const Problem& problem, const RowBlockConfig& config, const blocked::Sizes& sizes,
                         std::int64_t scratch, Attend attend)
    : p_(problem),
      config_(config),
      sizes_(sizes),
      scratch_(scratch),
      attend_(attend),
      tiles_(divide_up(p_.group() * p_.len_q, config.rows)),
      blocks_(row_blocks(p_, config.rows)) {}

std::size_t RowBlockRun::workspace_bytes() const {
  const std::int64_t states = config_.splits > 1 ? blocks_ * config_.splits : config_.threads;
  return static_cast<std::size_t>(config_.threads * scratch_ + states * sizes_.state) * sizeof(float);
}

void RowBlockRun::operator()(const Tensors& t, float* workspace) const {
  float* states = workspace + config_.threads * scratch_;
  const std::int64_t splits = config_.splits;
#pragma omp parallel for schedule(dynamic, 1) num_threads(config_.threads) if (config_.threads > 1)
  for (std::int64_t unit = 0; unit < blocks_ * splits; ++unit) {
    const std::int64_t thread = omp_get_thread_num();
    blocked::RowBlock block = row_block(t, unit / splits);
    if (block.rows <= 0) continue;
    block.keys = part_of_keys(block, unit % splits);
    const std::int64_t slot = splits > 1 ? unit : thread;
    const blocked::State state = blocked::state_at(sizes_, states + slot * sizes_.state);
    float* scratch = workspace + thread * scratch_;
    attend_(block, sizes_, scratch, state);
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
    float* scratch = workspace + omp_get_thread_num() * scratch_;
    blocked::finish(block, sizes_, scratch, part(0));
  }
}

blocked::RowBlock RowBlockRun::row_block(const Tensors& t, std::int64_t index) const {
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

KeyRange RowBlockRun::part_of_keys(const blocked::RowBlock& block, std::int64_t part) const {
  const std::int64_t len = block.sequence.len_kv;
  const std::int64_t share = divide_up(divide_up(len, config_.splits), config_.key_tile) * config_.key_tile;
  return {std::min(part * share, len), std::min((part + 1) * share, len)};
}

}  // namespace saccade
