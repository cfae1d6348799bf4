#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "verify/fuzz.h"

namespace saccade {
namespace {

using Edit = std::function<void(Problem&)>;

constexpr int kMaxAttempts = 2000;

/// Sets every stride that has its packed value to the packed value of the sizes after `edit`; odd strides
/// stay, since they may be what the failure needs.
void resize(Problem& p, const Edit& edit) {
  const Problem before = p;
  edit(p);
  for (const Order order : {Order::blhd, Order::bhld}) {
    const Problem old = Problem(before).pack(order);
    const Problem fresh = Problem(p).pack(order);
    for (const auto tensor : {&Problem::q, &Problem::k, &Problem::v, &Problem::o}) {
      if (before.*tensor == old.*tensor) p.*tensor = fresh.*tensor;
    }
    if (before.mask_strides == old.mask_strides) p.mask_strides = fresh.mask_strides;
    if (before.lse_strides == old.lse_strides) p.lse_strides = fresh.lse_strides;
  }
}

/// What is tried, the greatest simplifications first.
std::vector<Edit> simplifications() {
  const Problem plain;
  std::vector<Edit> edits = {
      [](Problem& p) { p.pack(), p.alibi_batch_stride = 0; },
      [plain](Problem& p) { p.mask = MaskKind::none, p.mask_dtype = plain.mask_dtype; },
      [](Problem& p) { p.alibi = false, p.alibi_batch_stride = 0; },
      [](Problem& p) { p.sinks = false; },
      [](Problem& p) { p.softcap = 0; },
      [](Problem& p) { p.scale.reset(); },
      [](Problem& p) { p.causal = false; },
      [](Problem& p) { p.window_left = kUnbounded; },
      [](Problem& p) { p.window_right = kUnbounded; },
      [](Problem& p) { p.alignment = Alignment::top_left; },
      [](Problem& p) { p.lse = false; },
      [](Problem& p) { p.kv_lengths = false; },
      [](Problem& p) { resize(p, [](Problem& r) { r.ragged_q = false, r.total_q = 0; }); },
      [](Problem& p) {
        resize(p, [](Problem& r) {
          r.kv_layout = KvLayout::dense;
          r.total_kv = r.page_size = r.num_pages = r.pages_per_sequence = 0;
        });
      },
      [](Problem& p) {
        if (p.kv_layout == KvLayout::paged) {
          p.pages_per_sequence = (p.len_kv + p.page_size - 1) / p.page_size;
          p.num_pages = p.batch * p.pages_per_sequence;
        }
      },
      [](Problem& p) { p.q = Problem(p).pack().q; },
      [](Problem& p) { p.k = Problem(p).pack().k; },
      [](Problem& p) { p.v = Problem(p).pack().v; },
      [](Problem& p) { p.o = Problem(p).pack().o; },
      [](Problem& p) { p.mask_strides = Problem(p).pack().mask_strides; },
      [](Problem& p) { p.lse_strides = Problem(p).pack().lse_strides; },
      [](Problem& p) { resize(p, [](Problem& r) { r.heads_q = r.heads_kv; }); },
      [](Problem& p) {
        resize(p,
               [](Problem& r) { r.heads_q = r.group(), r.heads_kv = std::min<std::int64_t>(r.heads_kv, 1); });
      },
  };
  for (const auto size : {&Problem::len_q, &Problem::len_kv, &Problem::dim_qk, &Problem::dim_v,
                          &Problem::batch, &Problem::total_q, &Problem::total_kv, &Problem::page_size}) {
    for (const auto smaller :
         {+[](std::int64_t n) { return std::min<std::int64_t>(n, 1); }, +[](std::int64_t n) { return n / 2; },
          +[](std::int64_t n) { return n * 3 / 4; },
          +[](std::int64_t n) { return std::max<std::int64_t>(n - 1, 0); }}) {
      edits.emplace_back(
          [size, smaller](Problem& p) { resize(p, [&](Problem& r) { r.*size = smaller(r.*size); }); });
    }
  }
  return edits;
}

}  // namespace

Problem shrink(const Problem& problem, const std::function<bool(const Problem&)>& still_fails) {
  const std::vector<Edit> edits = simplifications();
  Problem smallest = problem;
  int attempts = 0;
  for (bool progress = true; progress && attempts < kMaxAttempts;) {
    progress = false;
    for (const Edit& edit : edits) {
      // A simplification that works once (halving, one fewer) is tried again at once.
      for (;;) {
        Problem candidate = smallest;
        edit(candidate);
        if (candidate == smallest || !validate(candidate).ok() || ++attempts > kMaxAttempts) break;
        if (!still_fails(candidate)) break;
        smallest = candidate;
        progress = true;
      }
    }
  }
  return smallest;
}

}  // namespace saccade
