#include <algorithm>
#include <array>
#include <numeric>

#include "verify/fuzz.h"
#include "verify/random.h"

namespace saccade {
namespace {

constexpr double kMaxFlops = 20e6;

/// A size with a taste for edges: 0, 1, powers of two and their neighbours, and anything in between.
std::int64_t random_size(Random& random, std::int64_t largest) {
  const std::int64_t dice = random.below(100);
  if (dice < 2) return 0;
  if (dice < 15) return 1;
  if (dice < 50) return random.between(2, std::min<std::int64_t>(largest, 17));
  if (dice < 75) {
    const std::int64_t power = std::int64_t{1} << random.between(3, 8);
    return std::clamp<std::int64_t>(power + random.between(-1, 1), 1, largest);
  }
  if (dice < 95) return random.between(1, std::min<std::int64_t>(largest, 130));
  return random.between(1, largest);
}

void choose_sizes(Problem& p, Random& random) {
  p.dtype = std::array{DType::f16, DType::bf16, DType::f32}[static_cast<std::size_t>(random.below(3))];
  p.batch = random.chance(2) ? 0 : random.between(1, 4);
  p.heads_kv = random.between(1, 3);
  p.heads_q = random.chance(2) ? 0 : p.heads_kv * (random.chance(60) ? 1 : random.between(2, 8));
  p.len_q = random_size(random, 300);
  p.len_kv = random.chance(40) ? p.len_q : random_size(random, 300);
  p.dim_qk = random_size(random, kMaxHeadDim);
  p.dim_v = random.chance(70) ? p.dim_qk : random_size(random, kMaxHeadDim);
  // The largest size gives way, so that what remains is still of every kind.
  while (flops(p) > kMaxFlops) {
    std::int64_t* largest = &p.len_q;
    for (std::int64_t* size : {&p.len_kv, &p.dim_qk, &p.dim_v}) {
      if (*size > *largest) largest = size;
    }
    *largest = *largest / 2 + 1;
  }
}

void choose_scores(Problem& p, Random& random) {
  const auto hundredths = [&](std::int64_t low, std::int64_t high) {
    return static_cast<float>(random.between(low, high)) / 100.0F;
  };
  if (random.chance(30)) p.scale = random.chance(15) ? 0.0F : hundredths(-30, 70);
  if (random.chance(12)) p.softcap = hundredths(50, 3000);
  p.causal = random.chance(30);
  if (random.chance(40)) p.alignment = Alignment::bottom_right;
  const auto window = [&] {
    return random.chance(30) ? kUnbounded : random.below(random.chance(50) ? 6 : 80);
  };
  if (random.chance(20)) p.window_left = window(), p.window_right = window();
  p.sinks = random.chance(15);
  p.lse = random.chance(60);
  p.alibi = random.chance(15);
}

void choose_layout(Problem& p, Random& random) {
  p.ragged_q = random.chance(20);
  const auto rows = [&](std::int64_t len) {
    return random.chance(70) ? p.batch * len + random.below(4) : random.between(0, p.batch * len);
  };
  if (p.ragged_q) p.total_q = rows(p.len_q);
  const std::int64_t kind = random.below(100);
  if (kind < 20) {
    p.kv_layout = KvLayout::ragged;
    p.total_kv = rows(p.len_kv);
  } else if (kind < 40) {
    p.kv_layout = KvLayout::paged;
    p.page_size = std::array<std::int64_t, 6>{1, 3, 4, 16, 32, 64}[static_cast<std::size_t>(random.below(6))];
    const std::int64_t pages = (p.len_kv + p.page_size - 1) / p.page_size;
    p.pages_per_sequence = pages + (random.chance(30) ? random.below(3) : 0);
    p.num_pages = p.batch * pages + random.below(3);
    if (random.chance(20)) p.num_pages = random.between(1, p.batch * pages + 1);  // sequences share pages
  }
  p.kv_lengths = p.kv_layout != KvLayout::ragged && random.chance(p.kv_layout == KvLayout::paged ? 80 : 25);
  // Without lengths every sequence has len_kv keys, and they need a page to be in.
  if (p.kv_layout == KvLayout::paged && !p.kv_lengths) p.num_pages = std::max<std::int64_t>(p.num_pages, 1);
}

/// Strides for axes of these sizes: any order of nesting, sometimes with gaps, backwards or (inputs)
/// broadcast.
template <std::size_t N>
std::array<std::int64_t, N> random_strides(Random& random, std::array<std::int64_t, N> sizes,
                                           std::int64_t run, bool may_broadcast) {
  std::array<std::size_t, N> order{};
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t n = N; n > 1; --n) {
    std::swap(order[n - 1], order[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(n)))]);
  }
  std::array<std::int64_t, N> strides{};
  std::int64_t next = run;
  for (const std::size_t axis : order) {
    if (may_broadcast && random.chance(12)) continue;
    if (random.chance(40)) next += random.below(9);
    strides[axis] = random.chance(15) ? -next : next;
    next *= std::max<std::int64_t>(sizes[axis], 1);
  }
  return strides;
}

void choose_strides(Problem& p, Random& random) {
  p.pack(random.chance(50) ? Order::bhld : Order::blhd);
  if (random.chance(50)) {
    const auto choose = [&](Strides& strides, std::array<std::int64_t, 3> sizes, std::int64_t dim,
                            bool is_input) {
      if (random.chance(25)) return;
      const auto chosen = random_strides(random, sizes, dim, is_input);
      strides = {chosen[0], chosen[1], chosen[2], 1};
    };
    const bool paged = p.kv_layout == KvLayout::paged;
    const bool ragged_kv = p.kv_layout == KvLayout::ragged;
    const std::array queries{p.ragged_q ? 1 : p.batch, p.heads_q, p.ragged_q ? p.total_q : p.len_q};
    const std::array keys{ragged_kv ? 1
                          : paged   ? p.num_pages
                                    : p.batch,
                          p.heads_kv,
                          ragged_kv ? p.total_kv
                          : paged   ? p.page_size
                                    : p.len_kv};
    choose(p.q, queries, p.dim_qk, true);
    choose(p.k, keys, p.dim_qk, true);
    choose(p.v, keys, p.dim_v, true);
    choose(p.o, queries, p.dim_v, false);
    if (p.lse && random.chance(50)) {
      const auto chosen = random_strides(random, queries, 1, false);
      p.lse_strides = {chosen[0], chosen[1], chosen[2]};
    }
  }
  if (p.alibi && random.chance(50))
    p.alibi_batch_stride = (random.chance(80) ? 1 : -1) * (p.heads_q + random.below(3));
}

void choose_mask(Problem& p, Random& random) {
  if (!random.chance(35)) return;
  p.mask = random.chance(50) ? MaskKind::boolean : MaskKind::additive;
  if (p.mask == MaskKind::additive && random.chance(50)) p.mask_dtype = p.dtype;
  MaskStrides& m = p.mask_strides;
  if (random.chance(40)) {
    const auto chosen = random_strides(random, std::array{p.batch, p.heads_q, p.len_q, p.len_kv}, 1, true);
    m = {chosen[0], chosen[1], chosen[2], chosen[3]};
  } else if (random.chance(80)) {  // packed, with any of the axes broadcast
    std::int64_t next = 1;
    const auto stored = [&](std::int64_t& stride, std::int64_t size) {
      stride = random.chance(60) ? next : 0;
      if (stride != 0) next *= std::max<std::int64_t>(size, 1);
    };
    stored(m.key, p.len_kv);
    stored(m.row, p.len_q);
    stored(m.head, p.heads_q);
    stored(m.batch, p.batch);
  }
}

}  // namespace

Problem random_problem(std::uint64_t seed) {
  Random random(stream(seed, 0x66757a7a));
  Problem p;
  choose_sizes(p, random);
  choose_scores(p, random);
  choose_layout(p, random);
  choose_strides(p, random);
  choose_mask(p, random);
  return p;
}

}  // namespace saccade
