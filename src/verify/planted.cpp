#include "verify/planted.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <memory>
#include <numbers>

#include "core/dtypes.h"
#include "core/sequence.h"
#include "verify/bounds.h"
#include "verify/random.h"

namespace saccade {
namespace {

/// The correct answer, which most bugs get for a slightly different question.
Status honest(const Problem& p, const Tensors& t) {
  return attend(p, t, {.kernel = "cpu_reference"});
}

/// Answers a changed problem correctly.
Runner answering(void (*change)(Problem&)) {
  return [change](const Problem& p, const Tensors& t) {
    Problem changed = p;
    change(changed);
    return honest(changed, t);
  };
}

/// Answers correctly, then spoils the outputs.
Runner spoiling(std::function<void(const Problem&, const Tensors&)> spoil) {
  return [spoil = std::move(spoil)](const Problem& p, const Tensors& t) {
    Status status = honest(p, t);
    if (status.ok()) spoil(p, t);
    return status;
  };
}

template <class F>
void for_each_row(const Problem& p, const Tensors& t, const F& f) {
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const Sequence s = sequence(p, t, b);
    for (std::int64_t h = 0; h < p.heads_q; ++h) {
      for (std::int64_t i = 0; i < s.len_q; ++i) f(s, h, i);
    }
  }
}

/// Multiplies every element of o by 1 + relative * (noise of random sign and mean square 1).
void add_noise(const Problem& p, const Tensors& t, double relative) {
  Random random(7);
  for_each_row(p, t, [&](const Sequence& s, std::int64_t h, std::int64_t i) {
    const std::int64_t row = query_offset(p, p.o, s, h, i);
    for (std::int64_t d = 0; d < p.dim_v; ++d) {
      const double factor = 1 + (random.chance(50) ? relative : -relative);
      store(p.dtype, t.o, row + d, static_cast<float>(load(p.dtype, t.o, row + d) * factor));
    }
  });
}

Status swap_two_heads(const Problem& p, const Tensors& t) {
  Problem swapped = p;
  Tensors tensors = t;
  swapped.o.head = -p.o.head;
  tensors.o = static_cast<std::byte*>(t.o) + p.o.head * static_cast<std::int64_t>(size_of(p.dtype));
  return honest(swapped, tensors);
}

Status leave_a_row_unwritten(const Problem& p, const Tensors& t) {
  const Sequence s = sequence(p, t, p.batch - 1);
  std::byte* row = static_cast<std::byte*>(t.o) +
                   query_offset(p, p.o, s, 0, s.len_q / 2) * static_cast<std::int64_t>(size_of(p.dtype));
  const std::vector<std::byte> before(row, row + p.dim_v * static_cast<std::int64_t>(size_of(p.dtype)));
  Status status = honest(p, t);
  std::ranges::copy(before, row);
  return status;
}

Status take_key_heads_in_turn(const Problem& p, const Tensors& t) {
  const auto element = static_cast<std::int64_t>(size_of(p.dtype));
  for (std::int64_t h = 0; h < p.heads_q; ++h) {
    Problem one = p;
    one.heads_q = one.heads_kv = 1;
    Tensors tensors = t;
    tensors.q = static_cast<const std::byte*>(t.q) + h * p.q.head * element;
    tensors.k = static_cast<const std::byte*>(t.k) + h % p.heads_kv * p.k.head * element;
    tensors.v = static_cast<const std::byte*>(t.v) + h % p.heads_kv * p.v.head * element;
    tensors.o = static_cast<std::byte*>(t.o) + h * p.o.head * element;
    if (Status status = honest(one, tensors); !status.ok()) return status;
  }
  return {};
}

/// Online softmax over tiles of 16 keys of a plain dense problem. When a tile raises the maximum, the sum of
/// weights is corrected for it and the output accumulated so far is not.
Status skip_the_rescale(const Problem& p, const Tensors& t) {
  constexpr std::int64_t kTile = 16;
  std::vector<double> scores(kTile);
  std::vector<double> o(static_cast<std::size_t>(p.dim_v));
  for_each_row(p, t, [&](const Sequence& s, std::int64_t h, std::int64_t i) {
    std::ranges::fill(o, 0.0);
    double max = -std::numeric_limits<double>::infinity();
    double sum = 0;
    for (std::int64_t tile = 0; tile < s.len_kv; tile += kTile) {
      const std::int64_t keys = std::min(kTile, s.len_kv - tile);
      double new_max = max;
      for (std::int64_t j = 0; j < keys; ++j) {
        double dot = 0;
        for (std::int64_t d = 0; d < p.dim_qk; ++d) {
          dot += static_cast<double>(load(p.dtype, t.q, query_offset(p, p.q, s, h, i) + d)) *
                 load(p.dtype, t.k, key_offset(p, t, p.k, s, h, tile + j) + d);
        }
        scores[static_cast<std::size_t>(j)] = dot * p.effective_scale();
        new_max = std::max(new_max, scores[static_cast<std::size_t>(j)]);
      }
      sum *= std::exp(max - new_max);
      max = new_max;
      for (std::int64_t j = 0; j < keys; ++j) {
        const double weight = std::exp(scores[static_cast<std::size_t>(j)] - max);
        sum += weight;
        for (std::int64_t d = 0; d < p.dim_v; ++d) {
          o[static_cast<std::size_t>(d)] +=
              weight * load(p.dtype, t.v, key_offset(p, t, p.v, s, h, tile + j) + d);
        }
      }
    }
    for (std::int64_t d = 0; d < p.dim_v; ++d) {
      store(p.dtype, t.o, query_offset(p, p.o, s, h, i) + d,
            static_cast<float>(o[static_cast<std::size_t>(d)] / sum));
    }
  });
  return {};
}

std::ptrdiff_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

/// Flips the last bit of one element while the process has more threads than at the first call: a stand-in
/// for work that is cut into as many parts as there are idle cores.
Runner depends_on_load() {
  return spoiling([quiet = std::make_shared<std::ptrdiff_t>(0)](const Problem&, const Tensors& t) {
    const std::ptrdiff_t now = threads_of_this_process();
    if (*quiet == 0) *quiet = now;
    if (now > *quiet) static_cast<std::uint8_t*>(t.o)[0] ^= 1U;
  });
}

/// Flips the last bit of one element in every second call.
Runner flicker() {
  return spoiling([calls = std::make_shared<int>(0)](const Problem&, const Tensors& t) {
    if (++*calls % 2 == 0) static_cast<std::uint8_t*>(t.o)[0] ^= 1U;
  });
}

void spoil_one_element(const Problem& p, const Tensors& t) {
  // Several times its bound, and nothing among the thousands of others: far from the end of any row or tile.
  const double excess = p.dtype == DType::f32 ? 200 * 0x1p-24 : 4 * unit_roundoff(p.dtype);
  const std::int64_t at = query_offset(p, p.o, sequence(p, t, 0), 1, p.len_q / 3) + p.dim_v / 3;
  store(p.dtype, t.o, at, static_cast<float>(load(p.dtype, t.o, at) + excess));
}

void forget_empty_rows(const Problem& p, const Tensors& t) {
  for_each_row(p, t, [&](const Sequence& s, std::int64_t h, std::int64_t i) {
    const KeyRange keys = visible_keys(p, s, i);
    if (keys.begin < keys.end) return;
    const std::int64_t row = query_offset(p, p.o, s, h, i);
    for (std::int64_t d = 0; d < p.dim_v; ++d) {
      store(p.dtype, t.o, row + d, std::numeric_limits<float>::quiet_NaN());  // 0 / 0
    }
  });
}

}  // namespace

Problem PlantedBug::problem(DType dtype) const {
  return parse_problem(fmt::format("{} {}", shape, to_string(dtype))).value();
}

std::vector<PlantedBug> planted_bugs() {
  return {
      {"mean_of_v", "returns the mean of V", "b1 h2 l64 d32", answering([](Problem& p) { p.scale = 0.0F; })},
      {"ignores_mask", "ignores the mask", "b1 h2 l64 d32 mask",
       answering([](Problem& p) { p.mask = MaskKind::none; })},
      {"ignores_bias", "ignores the additive mask", "b1 h2 l64 d32 bias",
       answering([](Problem& p) { p.mask = MaskKind::none; })},
      {"causal_off_by_one", "lets every query see one key of its future", "b1 h2 l64 d32 causal",
       answering([](Problem& p) { p.causal = false, p.window_right = 1; })},
      {"causal_wrong_corner", "aligns the causal mask with the wrong corner", "b1 h2 lq40 lk64 d32 causal-br",
       answering([](Problem& p) { p.alignment = Alignment::top_left; })},
      {"window_off_by_one", "makes the window one key too long", "b1 h2 l64 d32 window=8,8",
       answering([](Problem& p) { ++p.window_left; })},
      {"swaps_heads", "swaps two heads", "b2 h2 l64 d32", swap_two_heads},
      {"gqa_modulo", "pairs query head h with key head h % heads_kv", "b1 h4/2 l64 d32",
       take_key_heads_in_turn},
      {"drops_last_tile", "drops the last tile of 16 keys", "b1 h2 l200 d32",
       answering([](Problem& p) { p.len_kv -= 16; })},
      {"drops_last_key", "drops the last of 500 keys", "b1 h8 lq4 lk500 d64",
       answering([](Problem& p) { --p.len_kv; })},
      {"skips_rescale", "does not rescale the output when the maximum changes", "b1 h2 l64 d32",
       skip_the_rescale},
      {"key_past_end", "reads one key past the end", "b1 h2 l64 d32",
       answering([](Problem& p) { ++p.len_kv; })},
      {"ignores_lengths", "attends to the padding after a sequence's last key", "b4 h2 lq8 lk64 d32 kvlens",
       answering([](Problem& p) { p.kv_lengths = false; })},
      {"ignores_scale", "ignores the scale it is given", "b1 h2 l64 d32 scale=0.3",
       answering([](Problem& p) { p.scale.reset(); })},
      {"ignores_softcap", "ignores the softcap", "b1 h2 l64 d32 scale=1 softcap=5",
       answering([](Problem& p) { p.softcap = 0; })},
      {"ignores_sinks", "leaves the sink out of the denominator", "b1 h2 l64 d32 sinks",
       answering([](Problem& p) { p.sinks = false; })},
      {"ignores_alibi", "ignores the ALiBi slopes", "b1 h2 l64 d32 alibi",
       answering([](Problem& p) { p.alibi = false; })},
      {"row_unwritten", "leaves one row unwritten", "b1 h2 l64 d32", leave_a_row_unwritten},
      {"empty_row_nan", "divides 0 by 0 in rows without keys", "b1 h2 lq64 lk40 d32 causal-br",
       spoiling(forget_empty_rows)},
      {"lse_base_2", "gives the log-sum-exp to base 2", "b1 h2 l64 d32 lse",
       spoiling([](const Problem& p, const Tensors& t) {
         for_each_row(p, t, [&](const Sequence& s, std::int64_t h, std::int64_t i) {
           t.lse[lse_offset(p, s, h, i)] *= std::numbers::log2e_v<float>;
         });
       })},
      {"writes_past_end", "writes one element past the end of o", "b1 h2 l64 d32",
       spoiling([](const Problem& p, const Tensors& t) {
         store(p.dtype, t.o, p.heads_q * p.len_q * p.dim_v, 0.0F);
       })},
      {"writes_gap", "writes into the gap between two rows of o", "b1 h2 l64 d32 os=5120,2560,40",
       spoiling([](const Problem& p, const Tensors& t) { store(p.dtype, t.o, p.dim_v, 0.0F); })},
      {"changes_input", "scales q in place", "b1 h2 l64 d32",
       spoiling([](const Problem& p, const Tensors& t) {
         // q is memory of ours; a kernel that casts its constness away would do the same
         store(p.dtype, const_cast<void*>(t.q), 0, 2 * load(p.dtype, t.q, 0));
       })},
      {"one_element", "has one wrong element", "b2 h4 l200 d64", spoiling(spoil_one_element)},
      {"too_many_roundings", "makes an error below the dtype's bound and above twice the plain one's",
       "b2 h2 lq64 lk256 d64 scale=0.05", spoiling([](const Problem& p, const Tensors& t) {
         add_noise(p, t, p.dtype == DType::f32 ? 31 * 0x1p-24 : 1.4 * unit_roundoff(p.dtype));
       })},
      {"small_weights", "loses the small weights where the plain implementation loses even more",
       "b1 h4 lq4 lk41890 d16 scale=0", spoiling([](const Problem& p, const Tensors& t) {
         add_noise(p, t, p.dtype == DType::f32 ? 600 * 0x1p-24 : 3.6 * unit_roundoff(p.dtype));
       })},
      {"flickers", "changes its last bit from run to run", "b1 h2 l64 d32", flicker()},
      {"depends_on_load", "changes its last bit while the machine is busy", "b1 h2 l64 d32",
       depends_on_load()},
      {"reports_failure", "returns an error after all", "b1 h2 l64 d32",
       [](const Problem& p, const Tensors& t) -> Status {
         Status status = honest(p, t);
         return status.ok() ? Status(Code::internal, "a planted failure") : status;
       }},
  };
}

VerifyOptions self_test_options(std::uint64_t seed) {
  return {.seed = seed, .runs_under_load = 1, .past_end = PastEnd::band};
}

std::vector<SelfTestResult> self_test(DType dtype, std::uint64_t seed) {
  std::vector<SelfTestResult> results;
  for (const PlantedBug& bug : planted_bugs()) {
    const Problem problem = bug.problem(dtype);
    const Verdict verdict = verify(problem, bug.runner, self_test_options(seed));
    SelfTestResult result{bug.name, bug.description, problem, {}};
    for (const Failure& failure : verdict.failures) result.caught_by.push_back(failure.check);
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace saccade
