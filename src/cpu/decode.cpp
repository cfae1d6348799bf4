// The decode kernel's host side: each key head is a unit, cut into parts of its keys when there are too few
// of them.
#include <algorithm>
#include <fmt/format.h>
#include <omp.h>

#include "core/config.h"
#include "cpu/decode_pairs.h"
#include "cpu/decode_simd.h"
#include "cpu/kernels.h"
#include "cpu/threads.h"

namespace saccade {
namespace {

class DecodeRun {
 public:
  DecodeRun(const Problem& problem, int threads, int splits, decode::Reading reading, bool pairs)
      : p_(problem),
        threads_(threads),
        splits_(splits),
        reading_(reading),
        pairs_(pairs),
        sizes_(problem),
        heads_(p_.batch * p_.heads_kv) {}

  [[nodiscard]] std::size_t workspace_bytes() const {
    const std::int64_t states = splits_ > 1 ? heads_ * splits_ : threads_;
    return static_cast<std::size_t>(threads_ * sizes_.scratch + states * sizes_.state) * sizeof(float);
  }

  void operator()(const Tensors& t, float* workspace) const {
    float* states = workspace + threads_ * sizes_.scratch;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads_) if (threads_ > 1)
    for (std::int64_t index = 0; index < heads_ * splits_; ++index) {
      const std::int64_t thread = omp_get_thread_num();
      const decode::Unit unit = part(t, index / splits_, index % splits_);
      if (unit.rows == 0) continue;
      const std::int64_t slot = splits_ > 1 ? index : thread;
      const decode::State state = decode::state_at(sizes_, states + slot * sizes_.state);
      (pairs_ ? decode::attend_by_pairs : decode::attend)(unit, sizes_, workspace + thread * sizes_.scratch,
                                                          state);
      if (splits_ == 1) decode::finish(unit, sizes_, state);
    }
    if (splits_ == 1) return;
    // Small work, always in the same order, so that the bits do not depend on who finished first.
    for (std::int64_t head = 0; head < heads_; ++head) {
      const decode::Unit unit = part(t, head, 0);
      if (unit.rows == 0) continue;
      const auto state = [&](std::int64_t n) {
        return decode::state_at(sizes_, states + (head * splits_ + n) * sizes_.state);
      };
      for (std::int64_t n = 1; n < splits_; ++n) decode::merge(unit, sizes_, state(n), state(0));
      decode::finish(unit, sizes_, state(0));
    }
  }

 private:
  [[nodiscard]] decode::Unit part(const Tensors& t, std::int64_t head, std::int64_t n) const {
    decode::Unit unit{.problem = &p_, .tensors = &t, .sequence = sequence(p_, t, head / p_.heads_kv)};
    unit.reading = reading_;
    unit.head_kv = head % p_.heads_kv;
    unit.rows = p_.group() * unit.sequence.len_q;
    const std::int64_t len = unit.sequence.len_kv;
    const std::int64_t share = (len + splits_ - 1) / splits_;
    unit.keys = {std::min(n * share, len), std::min((n + 1) * share, len)};
    return unit;
  }

  Problem p_;
  int threads_;
  std::int64_t splits_;
  decode::Reading reading_;
  bool pairs_;
  decode::Sizes sizes_;
  std::int64_t heads_;
};

constexpr int kMaxSplits = 1024;

/// Enough parts to keep the threads evenly busy, none with few keys.
int choose_splits(const Problem& p, int threads) {
  const std::int64_t heads = p.batch * p.heads_kv;
  if (threads == 1 || heads == 0 || heads >= std::int64_t{4} * threads) return 1;
  const std::int64_t wanted = (std::int64_t{4} * threads + heads - 1) / heads;
  constexpr std::int64_t kFewKeys = 512;
  const std::int64_t worth = std::max<std::int64_t>(p.len_kv / kFewKeys, 1);
  return static_cast<int>(std::min<std::int64_t>({wanted, worth, kMaxSplits}));
}

/// Whether products of pairs are faster: where they were measured, and one row waits for memory all the same.
bool pays_by_pairs(const Problem& p, int reading) {
  return decode::Reading{reading} == decode::Reading::zen4 && p.group() * p.len_q > 1;
}

std::optional<std::string> reject(const Problem& p, const Machine&) {
  const std::int64_t rows = p.group() * p.len_q;
  if (rows <= decode::kMaxRows) return std::nullopt;
  return fmt::format("{} query rows share a key head; it takes up to {}", rows, decode::kMaxRows);
}

Result<Prepared> prepare(const Problem& p, const Machine& machine, std::string_view text) {
  Config given(text);
  const int threads = given.take("threads", worthwhile_threads(p, machine.threads), 1, machine.threads);
  const int splits = given.take("splits", choose_splits(p, threads), 1, kMaxSplits);
  const int reading = given.take("reading", static_cast<int>(decode::reading_of_this_machine()), 0,
                                 static_cast<int>(decode::Reading::turns));
  const bool can_pair = p.dtype == DType::bf16 && decode::has_pairs();
  const int pairs = given.take("pairs", can_pair && pays_by_pairs(p, reading) ? 1 : 0, 0, 1);
  if (Status status = given.finish("cpu_decode"); !status.ok()) return status;
  if (pairs != 0 && !can_pair) {
    return Status(
        Code::unsupported,
        fmt::format("config for cpu_decode: pairs is 1, but the problem is {}{}", to_string(p.dtype),
                    p.dtype != DType::bf16 ? ", not bf16" : " and this machine has no AVX512-BF16"));
  }
  DecodeRun decode_run(p, threads, splits, decode::Reading{reading}, pairs != 0);
  const std::size_t bytes = decode_run.workspace_bytes();
  return Prepared{fmt::format("threads={} splits={} reading={} pairs={}", threads, splits, reading, pairs),
                  bytes, [decode_run](const Tensors& t, std::byte* workspace, Stream) -> Status {
                    decode_run(t, reinterpret_cast<float*>(workspace));
                    return {};
                  }};
}

}  // namespace

const Kernel& cpu_decode() {
  static const Kernel kRow{.name = "cpu_decode",
                           .summary = "SIMD over the head dimension, for few query rows against many keys",
                           .device = DeviceKind::cpu,
                           .reject = reject,
                           .prepare = prepare};
  return kRow;
}

}  // namespace saccade
