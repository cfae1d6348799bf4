#include "measure/ceilings.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <vector>

#include "measure/ceiling_kernels.h"

namespace saccade::measure {
namespace {

struct alignas(64) Block {
  std::uint32_t words[kReadBlock / sizeof(std::uint32_t)] = {};
};

std::uint32_t read_all(const std::vector<Block>& blocks, int streams, Prefetch prefetch) {
  return read_loop(reinterpret_cast<const std::byte*>(blocks.data()), blocks.size() * sizeof(Block), streams,
                   prefetch);
}

// A ceiling that skips some of the memory would be too high.
TEST(ReadLoop, ReadsEveryWord) {
  std::vector<Block> blocks(3);
  for (int way = 0; way < 12; ++way) {
    const int streams = 1 << (way / 3);
    const auto prefetch = static_cast<Prefetch>(way % 3);
    EXPECT_EQ(read_all(blocks, streams, prefetch), 0U);
    for (Block& block : blocks) {
      for (std::uint32_t& word : block.words) {
        word = 1;
        ASSERT_NE(read_all(blocks, streams, prefetch), 0U) << "streams " << streams;
        word = 0;
      }
    }
  }
}

TEST(CopyLoop, CopiesEverything) {
  std::vector<Block> from(3);
  std::uint32_t next = 1;
  for (Block& block : from) {
    for (std::uint32_t& word : block.words) word = next++;
  }
  for (const bool streaming : {false, true}) {
    std::vector<Block> to(3);
    copy_loop(reinterpret_cast<const std::byte*>(from.data()), reinterpret_cast<std::byte*>(to.data()),
              from.size() * sizeof(Block), streaming);
    EXPECT_EQ(std::memcmp(from.data(), to.data(), from.size() * sizeof(Block)), 0);
  }
}

// All chains have the fixed point b / (1 - a) = 1, so the sum tells how many there are: fewer than counted
// would make the ceiling too high. (That the compiler keeps them apart is the business of their different
// starts.)
TEST(FmaLoop, HasAsManyChainsAsItCounts) {
  for (const bool wide : {false, true}) {
    const double chains = fma_flops_per_iteration(wide) / 2;
    EXPECT_NEAR(fma_loop(wide, 100'000), chains, 0.01 * chains);
    EXPECT_GT(fma_loop(wide, 1), 1.5 * chains);
  }
}

TEST(Ceilings, AreFiniteAndPositive) {
  const FmaCeiling fma = measure_fma(1, 1);
  EXPECT_TRUE(std::isfinite(fma.flops_per_second));
  EXPECT_GT(fma.flops_per_second, 0);
  EXPECT_EQ(fma.threads, 1);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100'000}, std::size_t{8} << 20}) {
    const BandwidthOptions options{.bytes = bytes, .threads = 2, .budget_seconds = 0.01};
    EXPECT_GT(measure_read(options), 0);
    EXPECT_GT(measure_copy(options), 0);
    EXPECT_TRUE(std::isfinite(measure_read(options)));
  }
}

TEST(Ceilings, ColdReadsEvictBeforeEveryRepetition) {
  int evictions = 0;
  BandwidthOptions options{.bytes = 1 << 16, .threads = 1, .budget_seconds = 0};
  options.before_repetition = [&] { ++evictions; };
  EXPECT_GT(measure_read(options), 0);
  EXPECT_GE(evictions, 18);  // six ways, three turns each at least
}

}  // namespace
}  // namespace saccade::measure
