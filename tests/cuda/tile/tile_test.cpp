// The shared parts of the kernels, on the host.
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <set>
#include <utility>

#include <saccade/problem.h>

#include "cuda/tile/divisor.h"
#include "cuda/tile/keys.h"
#include "cuda/tile/philox.h"
#include "cuda/tile/queue.h"
#include "cuda/tile/scheduler.h"
#include "cuda/tile/softmax.h"
#include "cuda/tile/swizzle.h"
#include "cuda/tile/tensor.h"
#include "emu/machine.h"

namespace saccade {
namespace {

namespace tile = emulated::tile;

/// Whether eight chunks of 16 bytes (what goes over the banks in one pass) lie in different bank groups.
template <class Offset>
constexpr bool one_pass(Offset offset) {
  unsigned groups = 0;
  for (int n = 0; n < 8; ++n) groups |= 1U << (offset(n) / 8 % 8);
  return groups == 0xffU;
}

template <int kColumns>
constexpr bool conflict_free() {
  using Tile = tile::SwizzledTile<kColumns>;
  for (int row = 0; row < 64; row += 8) {
    for (int column = 0; column < kColumns; column += 8) {  // ldmatrix: eight rows of one column
      if (!one_pass([&](int n) { return Tile::offset(row + n, column); })) return false;
    }
  }
  for (int first = 0; first < 64 * Tile::kChunks; first += 8) {  // copies and stores: eight neighbours
    const auto offset = [&](int n) {
      return Tile::offset((first + n) / Tile::kChunks, (first + n) % Tile::kChunks * 8);
    };
    if (!one_pass(offset)) return false;
  }
  return true;
}

static_assert(conflict_free<32>() && conflict_free<64>() && conflict_free<96>() && conflict_free<128>() &&
              conflict_free<160>() && conflict_free<192>() && conflict_free<256>());

template <int kColumns>
void expect_places_of_their_own() {
  using Tile = tile::SwizzledTile<kColumns>;
  std::set<int> places;
  for (int row = 0; row < 64; ++row) {
    for (int column = 0; column < kColumns; column += 8) {
      const int offset = Tile::offset(row, column);
      EXPECT_EQ(offset / kColumns, row);
      EXPECT_EQ(offset % 8, 0);
      EXPECT_TRUE(places.insert(offset).second);
    }
  }
}

TEST(SwizzledTile, EveryChunkHasAPlaceOfItsOwn) {
  expect_places_of_their_own<32>();
  expect_places_of_their_own<96>();
  expect_places_of_their_own<128>();
  expect_places_of_their_own<192>();
}

TEST(Divisor, DividesAsTheOperatorDoes) {
  constexpr int kMost = std::numeric_limits<int>::max();
  std::mt19937 random(3);
  std::uniform_int_distribution<int> any(0, kMost);
  const auto expect_right = [](int n, int d) {
    const tile::Divisor divisor = tile::Divisor::of(d);
    ASSERT_EQ(n / divisor, n / d) << n << " / " << d;
    ASSERT_EQ(n % divisor, n % d) << n << " % " << d;
    ASSERT_EQ(static_cast<int>(divisor), d);
  };
  for (int power = 0; power < 31; ++power) {  // where rounding goes wrong first: around powers and multiples
    for (const int d : {(1 << power) - 1, 1 << power, (1 << power) + 1, 1 + any(random) % (1 << power)}) {
      if (d < 1) continue;
      for (const int multiple : {0, 1, 2, kMost / d, any(random) / d}) {
        const auto n = static_cast<std::int64_t>(multiple) * d;
        for (const std::int64_t near : {n - 1, n, n + 1, n + d - 1}) {
          if (near >= 0 && near <= kMost) expect_right(static_cast<int>(near), d);
        }
      }
      for (int k = 0; k < 200; ++k) expect_right(any(random), d);
    }
  }
  expect_right(kMost, kMost);
  expect_right(kMost - 1, kMost);
}

TEST(TileRange, PartsAreNeighboursOfAlmostOneSize) {
  const tile::TileRange range{.first = 3, .last = 20, .whole_first = 5, .whole_last = 18};
  for (const int parts : {1, 2, 5, 17, 30}) {
    int next = range.first;
    for (int n = 0; n < parts; ++n) {
      const tile::TileRange part = range.part(n, parts);
      EXPECT_EQ(range.part(n, tile::Divisor::of(parts)).last, part.last);
      EXPECT_EQ(part.first, next);
      EXPECT_GE(part.last - part.first, 17 / parts);
      EXPECT_LE(part.last - part.first, (17 + parts - 1) / parts);
      for (int t = part.first; t < part.last; ++t) EXPECT_EQ(part.coverage(t), range.coverage(t));
      next = part.last;
    }
    EXPECT_EQ(next, range.last);
  }
}

TEST(KeySpan, TilesAreEmptyPartialOrFullExactlyAsTheirPairsAre) {
  constexpr int kKeys = 16;
  for (const int len_kv : {0, 1, 15, 16, 17, 40, 64}) {
    for (const int diagonal : {-20, -1, 0, 3, 40}) {
      for (const int left : {0, 5, 30, tile::KeySpan::kFar}) {
        for (const int right : {0, 7, tile::KeySpan::kFar}) {
          const auto span = tile::KeySpan::of(len_kv, diagonal, left, right);
          for (const int first : {0, 8, 24}) {
            const int last = first + 7;
            const tile::TileRange range = tile::tiles_of<kKeys>(span, first, last);
            for (int t = 0; t <= len_kv / kKeys; ++t) {
              int visible = 0;
              for (int i = first; i <= last; ++i) {
                for (int j = t * kKeys; j < (t + 1) * kKeys; ++j) {
                  const int distance = j - (i + diagonal);
                  const bool sees = j < len_kv && distance <= right && -distance <= left;
                  visible += sees ? 1 : 0;
                  EXPECT_EQ(j >= span.begin(i) && j < span.end(i), sees) << i << " " << j;
                }
              }
              const tile::Coverage coverage = range.coverage(t);
              if (visible > 0) {
                EXPECT_NE(coverage, tile::Coverage::empty);
              }
              if (visible < 8 * kKeys) {
                EXPECT_NE(coverage, tile::Coverage::full);
              }
              if (visible == 8 * kKeys) {
                EXPECT_EQ(coverage, tile::Coverage::full);
              }
            }
          }
        }
      }
    }
  }
}

// The largest problems and windows: sums of rows and distances stay within 32 bits.
TEST(KeySpan, HoldsAtTheEndsOfItsRange) {
  constexpr int kFar = tile::KeySpan::kFar;
  constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();
  constexpr int kLast = kFar - 1;
  for (const std::int64_t wide : {std::int64_t{kFar}, kUnbounded}) {
    const auto all = tile::KeySpan::of(kLast, 0, wide, wide);
    for (const int row : {0, kLast - 1, kLast + 255}) EXPECT_EQ(all.end(row), kLast) << row;
    for (const int row : {0, kLast - 1}) EXPECT_EQ(all.begin(row), 0) << row;
    EXPECT_FALSE(all.hides_first());
  }
  const auto diagonal = tile::KeySpan::of(kLast, 0, 0, 0);
  EXPECT_EQ(diagonal.begin(kLast - 1), kLast - 1);
  EXPECT_EQ(diagonal.end(kLast - 1), kLast);
  // More queries than keys, and more keys than queries, aligned at the end.
  const auto few_keys = tile::KeySpan::of(1, 1 - kLast, kUnbounded, 0);
  EXPECT_EQ(few_keys.end(0), 0);
  EXPECT_EQ(few_keys.end(kLast - 1), 1);
  const auto few_queries = tile::KeySpan::of(kLast, kLast - 1, 5, kLast);
  EXPECT_EQ(few_queries.begin(0), kLast - 6);
  EXPECT_EQ(few_queries.end(0), kLast);
}

TEST(Schedulers, DealEveryUnitOnceAndLongestFirst) {
  constexpr int kTiles = 5;
  constexpr int kHeads = 3;
  std::set<std::pair<int, int>> by_head;
  std::set<std::pair<int, int>> by_length;
  int before = kTiles;
  for (int number = 0; number < kTiles * kHeads; ++number) {
    const tile::Work a = tile::head_by_head(number, kTiles);
    const tile::Work b = tile::longest_first(number, kTiles, kHeads);
    EXPECT_TRUE(by_head.insert({a.tile, a.head}).second && by_length.insert({b.tile, b.head}).second);
    EXPECT_LE(b.tile, before);
    before = b.tile;
  }
}

TEST(GridQueue, TakesEveryShareOnceAndLongestFirst) {
  struct Case {
    const char* shape;
    int sharing;
    bool by_axes, plain;
  };
  for (const Case& c :
       {Case{"b1 h8 l512 d64 f16", 1, true, true}, Case{"b3 h5 l130 d64 f16", 1, true, true},
        Case{"b3 h5 l130 d64 f16", 4, true, false}, Case{"b1 h8 l512 d64 f16 causal", 1, true, true},
        Case{"b3 h6/2 l130 d64 f16 causal", 1, true, false},
        Case{"b2 h3 l200 d64 f16 window=9,2", 3, true, false}, Case{"b70000 h1 l8 d8 f16", 1, false, false},
        Case{"b2 h66000 l8 d8 f16", 2, false, false}, Case{"b70000 h1 l8 d8 f16 causal", 1, true, false},
        Case{"b1 h2 lq2200000 lk8 d8 f16 causal", 1, false, false}}) {
    const Problem p = parse_problem(c.shape).value();
    constexpr int kRows = 32;
    const auto numbers = tile::GridQueue::numbers(p, kRows, tile::Divisor::of(c.sharing));
    const auto queue = tile::GridQueue::of(p, numbers);
    EXPECT_EQ(queue.by_axes, c.by_axes) << c.shape;
    EXPECT_EQ(queue.plain, c.plain) << c.shape;
    const emulated::ptx::Index3 grid = queue.grid(p, numbers);
    EXPECT_TRUE(grid.y <= 65535 && grid.z <= 65535) << c.shape;
    const std::int64_t tiles = p.batch * p.heads_q * queue.tiles;
    ASSERT_EQ(std::int64_t{grid.x} * grid.y * grid.z, tiles * c.sharing) << c.shape;
    std::vector<bool> seen(static_cast<std::size_t>(tiles * c.sharing));
    int before = queue.tiles;
    for (int z = 0; z < grid.z; ++z) {
      for (int y = 0; y < grid.y; ++y) {
        for (int x = 0; x < grid.x; ++x) {  // as blocks are handed out
          const tile::Share share = queue.take({x, y, z}, numbers);
          ASSERT_TRUE(share.batch >= 0 && share.batch < p.batch && share.head >= 0 &&
                      share.head < p.heads_q && share.tile >= 0 && share.tile < queue.tiles &&
                      share.block >= 0 && share.block < c.sharing)
              << c.shape;
          const auto number =
              static_cast<std::size_t>(queue.number(share, numbers) * c.sharing + share.block);
          ASSERT_FALSE(seen[number]) << c.shape;
          seen[number] = true;
          if (!queue.longest_first) continue;
          ASSERT_LE(share.tile, before) << c.shape;
          before = share.tile;
        }
      }
    }
  }
}

tile::BandedQueue queue_of(const char* shape, int rows) {
  return tile::BandedQueue::of(parse_problem(shape).value(), rows);
}

TEST(BandedQueue, TakesEveryTileOnceBandByBand) {
  for (const char* shape :
       {"b8 h16 l2048 d128 f16 causal", "b1 h128/8 l2048 d192 f16 causal", "b4 h16 l4096 d64 f16 causal br",
        "b1 h7 l300 d64 f16 causal", "b1 h96 l2048 d128 f16 causal", "b1 h128/16 l16384 d128 f16 causal",
        "b3 h41 l2000 d256 f16 window=inf,9", "b1 h8 l20000 d256 f16 causal", "b2 h3 l600 d64 f16",
        "b1 h1 lq1 lk100000 d256 f16 causal"}) {
    const Problem problem = parse_problem(shape).value();
    const tile::BandedQueue queue = queue_of(shape, 128);
    const auto tiles = static_cast<int>(queue.tiles);
    const auto heads = static_cast<int>(queue.heads);
    ASSERT_EQ(queue.size(), problem.batch * problem.heads_q * tiles) << shape;
    std::set<std::pair<int, int>> seen;
    int before = -1;
    for (int number = 0; number < queue.size(); ++number) {
      const tile::Work work = queue.take(number);
      EXPECT_TRUE(work.tile >= 0 && work.tile < tiles && work.head >= 0 &&
                  work.head < problem.batch * problem.heads_q)
          << shape;
      seen.emplace(work.head, work.tile);
      if (!queue.longest_first()) continue;
      const int band = work.head / heads;
      ASSERT_EQ(band, number / (heads * tiles)) << shape;
      const int number_in_band = number % (heads * tiles);
      if (number_in_band > 0) {  // down in the last band, up in the one before it
        const bool down = (queue.bands - 1 - band) % 2 == 0;
        ASSERT_TRUE(down ? work.tile <= before : work.tile >= before) << shape;
      }
      before = work.tile;
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(queue.size())) << shape;
  }
}

TEST(BandedQueue, BandsAreWhatTheCacheHolds) {
  EXPECT_EQ(queue_of("b8 h16 l2048 d128 f16 causal", 192).bands, 4);  // of 1 MiB a head
  EXPECT_EQ(queue_of("b1 h96 l2048 d128 f16 causal", 192).bands, 3);
  EXPECT_EQ(queue_of("b1 h128/8 l2048 d128 f16 causal", 192).bands, 1);  // shared by 16 heads
  EXPECT_EQ(queue_of("b1 h128/16 l16384 d128 f16 causal", 192).bands, 4);
  EXPECT_EQ(static_cast<int>(queue_of("b1 h128/16 l16384 d128 f16 causal", 192).heads), 32);  // whole groups
  EXPECT_EQ(queue_of("b1 h40 l2048 d128 f16 causal", 192).bands, 1);  // hardly more than fits
  EXPECT_EQ(queue_of("b8 h16 l2048 d128 f16", 192).bands, 0);         // goes head by head
  EXPECT_EQ(queue_of("b1 h8 l512 d64 f16 causal", 64).bands, 1);
  EXPECT_EQ(queue_of("b1 h127 l2048 d128 f16 causal", 192).bands, 1);     // is not to be divided
  EXPECT_EQ(queue_of("b1 h8 l100000 d256 f16 causal", 128).bands, 1);     // one head is too much
  EXPECT_EQ(queue_of("b1 h64/8 l100000 d128 f16 causal", 128).bands, 1);  // and one key head of eight
}

TEST(Philox, GivesThePublishedNumbers) {
  const auto words = [](const tile::Philox& p) {
    return std::vector<std::uint32_t>(std::begin(p.words), std::end(p.words));
  };
  using Words = std::vector<std::uint32_t>;
  constexpr std::uint32_t kOnes = 0xffffffffU;
  EXPECT_EQ(words(tile::Philox::at(0, 0, 0, 0, 0, 0)),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(tile::Philox::at(kOnes, kOnes, kOnes, kOnes, kOnes, kOnes)),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words(tile::Philox::at(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0)),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

/// Runs on one emulated thread: the special-function unit counts there.
template <class F>
void on_a_thread(F body) {
  emu::Shape shape;
  shape.kernel = "softmax";
  emu::launch(shape, {}, {.seed = 1, .cores = 1}, [&] {
    if (emulated::ptx::thread_index() == 0) body();
  });
}

TEST(RowState, AgreesWithTheWholeSoftmaxWhereverItIsCut) {
  on_a_thread([] {
    const float scores[] = {-tile::kInfinity, 3, -200, 7.5F, 7.5F, -tile::kInfinity, 120, 119};
    double sum = 0;
    for (const float s : scores) sum += std::exp2(double{s} - 120);
    for (int cut = 1; cut < 8; ++cut) {
      tile::RowState state;
      for (int n = 0; n < 8; n += cut) {
        float max = -tile::kInfinity;
        for (int j = n; j < std::min(n + cut, 8); ++j) max = tile::larger(scores[j], max);
        state.l *= state.raise(max);
        for (int j = n; j < std::min(n + cut, 8); ++j) state.l += std::exp2(scores[j] - state.base());
      }
      EXPECT_EQ(state.m, 120);
      EXPECT_NEAR(state.l, sum, 1e-6 * sum);
      EXPECT_NEAR(state.lse(), (120 + std::log2(sum)) * std::log(2.0), 1e-4);
    }
  });
}

TEST(RowState, ARowThatSeesNothingIsEmptyAndMakesNoNan) {
  on_a_thread([] {
    tile::RowState state;
    const float keep = state.raise(-tile::kInfinity);
    EXPECT_EQ(keep, 1);  // 0 * keep stays 0, where exp2(-inf + inf) would be NaN
    EXPECT_EQ(std::exp2(-tile::kInfinity - state.base()), 0);
    EXPECT_EQ(state.weight(), 0);
    EXPECT_EQ(state.lse(), -tile::kInfinity);
    EXPECT_EQ(state.raise(5), 0) << "what came before the first key is worth nothing";
  });
}

// Counted in chunks, a row is where its strides say, and what chunks cannot count is refused.
TEST(NearTensor, FindsEveryRow) {
  std::mt19937_64 random(3);
  const auto pick = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  int taken = 0;
  for (int n = 0; n < 1000; ++n) {
    const std::int64_t batches = pick(1, 4), heads = pick(1, 4), rows = pick(1, 300);
    const auto stride = [&] {
      return 8 * pick(-(std::int64_t{1} << pick(0, 33)), std::int64_t{1} << pick(0, 33));
    };
    const Strides s{.batch = stride(), .head = stride(), .row = stride()};
    if (!tile::NearTensor4<std::uint16_t>::fits(s, batches, heads, rows)) continue;
    ++taken;
    const auto near = tile::NearTensor4<std::uint16_t>::of(nullptr, s, batches, heads, rows);
    const std::int64_t b = pick(0, batches - 1), h = pick(0, heads - 1), i = pick(0, rows - 1);
    EXPECT_EQ(near.chunks_to(static_cast<int>(b), static_cast<int>(h), static_cast<int>(i)) * std::int64_t{8},
              b * s.batch + h * s.head + i * s.row);
  }
  EXPECT_GT(taken, 100);
  const Strides far{.batch = std::int64_t{1} << 34, .head = 8, .row = 8};
  EXPECT_FALSE(tile::NearTensor4<std::uint16_t>::fits(far, 2, 1, 1));
  EXPECT_TRUE(tile::NearTensor4<std::uint16_t>::fits(far, 1, 1, 1));
}

}  // namespace
}  // namespace saccade
