#include "emu/counters.h"

#include <gtest/gtest.h>

namespace saccade::emu {
namespace {

template <class F>
std::array<std::size_t, 32> lanes(F address) {
  std::array<std::size_t, 32> all;
  for (std::size_t lane = 0; lane < 32; ++lane) all[lane] = address(lane);
  return all;
}

TEST(BankPasses, OfWordsHalvesAndVectors) {
  EXPECT_EQ(bank_passes(lanes([](std::size_t n) { return 4 * n; }), 4), 1U);
  EXPECT_EQ(bank_passes(lanes([](std::size_t) { return std::size_t{64}; }), 4), 1U) << "a broadcast";
  EXPECT_EQ(bank_passes(lanes([](std::size_t n) { return 2 * n; }), 2), 1U) << "two lanes a word";
  EXPECT_EQ(bank_passes(lanes([](std::size_t n) { return 8 * n; }), 4), 2U);
  EXPECT_EQ(bank_passes(lanes([](std::size_t n) { return 128 * n; }), 4), 32U);
  EXPECT_EQ(bank_passes(lanes([](std::size_t n) { return 16 * n; }), 16), 4U)
      << "a quarter of the warp a pass";
  EXPECT_EQ(bank_passes(lanes([](std::size_t n) { return 128 * n; }), 16), 32U);
  EXPECT_EQ(fewest_passes(lanes([](std::size_t n) { return 128 * n; }), 16), 4U);
  EXPECT_EQ(bank_passes(lanes([](std::size_t n) { return n < 4 ? 4 * n : kNoAddress; }), 4), 1U);
}

TEST(Sectors, AreCountedOnce) {
  EXPECT_EQ(sectors(lanes([](std::size_t n) { return 4 * n; }), 4), 4U);
  EXPECT_EQ(sectors(lanes([](std::size_t n) { return 32 * n; }), 4), 32U);
  EXPECT_EQ(sectors(lanes([](std::size_t n) { return 16 * n; }), 16), 16U);
  EXPECT_EQ(sectors(lanes([](std::size_t) { return std::size_t{30}; }), 4), 2U) << "across a boundary";
}

TEST(WarpTraffic, LanesMeetByTheNumberOfTheirPass) {
  WarpTraffic traffic;
  const Where where{"k.cu", 7};
  for (int pass = 0; pass < 3; ++pass) {  // lane by lane, as fibers come
    for (int lane = 0; lane < 32; ++lane) {
      traffic.access(lane, Traffic::shared_load, static_cast<std::size_t>(lane) * 4, 4, where);
    }
  }
  traffic.access(0, Traffic::shared_load, 0, 4, where);  // one lane alone
  Counters counters;
  traffic.flush(counters);
  const LineCounts sum = counters.total(Traffic::shared_load);
  EXPECT_EQ(sum.instructions, 4U);
  EXPECT_EQ(sum.transactions, 4U);
  EXPECT_EQ(sum.bytes, 3 * 128U + 4);
  EXPECT_EQ(counters.bank_conflicts(), 0U);
}

}  // namespace
}  // namespace saccade::emu
