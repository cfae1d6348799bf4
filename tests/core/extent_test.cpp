#include "core/extent.h"

#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>

namespace saccade {
namespace {

/// Every byte the extent touches, with the number of different indices that reach it.
std::map<std::int64_t, int> touched(const Extent& e, std::int64_t base) {
  std::map<std::int64_t, int> bytes;
  const auto& a = e.axes;
  for (std::int64_t i = 0; i < a[0].size; ++i) {
    for (std::int64_t j = 0; j < a[1].size; ++j) {
      for (std::int64_t k = 0; k < a[2].size; ++k) {
        for (std::int64_t l = 0; l < a[3].size; ++l) {
          const std::int64_t start =
              base + i * a[0].stride + j * a[1].stride + k * a[2].stride + l * a[3].stride;
          for (std::int64_t byte = start; byte < start + e.run; ++byte) ++bytes[byte];
        }
      }
    }
  }
  return bytes;
}

class RandomExtents : public testing::Test {
 protected:
  std::int64_t in(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  Extent next() {
    Extent e{.axes = {}, .run = in(0, 9) == 0 ? 0 : in(1, 6)};
    for (Extent::Axis& axis : e.axes) axis = {in(0, 15) == 0 ? 0 : in(1, 3), in(-14, 14)};
    return e;
  }
  std::mt19937_64 random_{3};
};

TEST_F(RandomExtents, BoundsAreThoseOfTheBytesTouched) {
  for (int n = 0; n < 3000; ++n) {
    const Extent e = next();
    const auto bytes = touched(e, 0);
    const auto b = bounds(e);
    ASSERT_TRUE(b.has_value());
    ASSERT_EQ(e.empty(), bytes.empty());
    if (bytes.empty()) {
      ASSERT_EQ(b->begin, b->end);
    } else {
      ASSERT_EQ(b->begin, bytes.begin()->first);
      ASSERT_EQ(b->end, bytes.rbegin()->first + 1);
    }
  }
}

TEST_F(RandomExtents, OverlapIsExact) {
  int overlapping = 0;
  const int count = 20'000;
  for (int n = 0; n < count; ++n) {
    const Extent a = next();
    const Extent b = next();
    const std::int64_t a_base = 1000;
    const std::int64_t b_base = 1000 + in(-60, 60);
    const auto bytes_a = touched(a, a_base);
    bool expected = false;
    for (const auto& [byte, times] : touched(b, b_base)) expected = expected || bytes_a.contains(byte);
    const auto address = [](std::int64_t base) { return static_cast<std::uintptr_t>(base); };
    ASSERT_EQ(overlap(a, address(a_base), b, address(b_base)), expected) << "pair " << n;
    ASSERT_EQ(overlap(b, address(b_base), a, address(a_base)), expected) << "pair " << n << " swapped";
    overlapping += expected ? 1 : 0;
  }
  // Both answers must be common, or the test shows nothing.
  EXPECT_GT(overlapping, count / 10);
  EXPECT_LT(overlapping, count * 9 / 10);
}

TEST_F(RandomExtents, SelfOverlapIsNeverMissed) {
  int clean = 0;
  for (int n = 0; n < 20'000; ++n) {
    const Extent e = next();
    bool expected = false;
    for (const auto& [byte, times] : touched(e, 0)) expected = expected || times > 1;
    if (expected) {
      ASSERT_TRUE(overlaps_itself(e)) << "extent " << n;
    }
    clean += overlaps_itself(e) ? 0 : 1;
  }
  EXPECT_GT(clean, 1000) << "refusing everything would pass the check above";
}

TEST_F(RandomExtents, NestedLayoutsAreNotRefused) {
  for (int n = 0; n < 2000;
       ++n) {  // axes in random order, each stepping over the smaller ones with some padding
    Extent e{.axes = {}, .run = in(1, 5)};
    std::int64_t span = e.run;
    std::array<std::size_t, 4> order = {0, 1, 2, 3};
    std::shuffle(order.begin(), order.end(), random_);
    for (const std::size_t axis : order) {
      const std::int64_t size = in(1, 3);
      const std::int64_t stride = span + in(0, 3);
      e.axes[axis] = {size, in(0, 1) == 0 ? stride : -stride};
      span += stride * (size - 1);
    }
    ASSERT_FALSE(overlaps_itself(e)) << "extent " << n;
  }
}

TEST(Extents, InterleavedHeadsOfOneBufferDoNotOverlap) {
  // Two tensors [1024 rows][64 bytes] that share rows of 128 bytes.
  const Extent half{.axes = {{{1, 0}, {1, 0}, {1024, 128}, {1, 0}}}, .run = 64};
  EXPECT_FALSE(overlap(half, 4096, half, 4096 + 64));
  EXPECT_TRUE(overlap(half, 4096, half, 4096 + 63));
  EXPECT_TRUE(overlap(half, 4096, half, 4096 + 128));
  EXPECT_FALSE(overlap(half, 4096, half, 4096 + 1024 * 128));
}

TEST(Extents, OverflowIsReported) {
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_FALSE(bounds({.axes = {{{3, huge}, {1, 0}, {1, 0}, {1, 0}}}, .run = 1}).has_value());
  EXPECT_FALSE(bounds({.axes = {{{2, huge}, {2, huge}, {1, 0}, {1, 0}}}, .run = 1}).has_value());
  EXPECT_FALSE(bounds({.axes = {{{2, -huge}, {2, -huge}, {2, -huge}, {1, 0}}}, .run = 1}).has_value());
  EXPECT_FALSE(bounds({.axes = {{{2, huge}, {2, huge - 1}, {1, 0}, {1, 0}}}, .run = 2}).has_value());
  EXPECT_TRUE(bounds({.axes = {{{2, huge}, {2, huge - 1}, {1, 0}, {1, 0}}}, .run = 0}).has_value());
  EXPECT_TRUE(bounds({.axes = {{{2, huge}, {2, -huge}, {1, 0}, {1, 0}}}, .run = 1}).has_value());
}

}  // namespace
}  // namespace saccade
