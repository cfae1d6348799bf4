// The model of a chip: published rates, one unit at a time, tails and the roofline.
#include "emu/model.h"

#include <gtest/gtest.h>
#include <vector>

namespace saccade::emu {
namespace {

/// `blocks` blocks of 128 threads.
Launched launched(std::uint32_t blocks, std::size_t shared_bytes = 0) {
  Launched result;
  result.shape = {.kernel = "test", .grid = {blocks, 1, 1}, .block = 128, .shared_bytes = shared_bytes};
  result.counters.blocks = blocks;
  return result;
}

Breakdown model_one(const Launched& one, const Chip& chip, const Work& work = {}) {
  return model(std::vector<Launched>{one}, chip, work);
}

TEST(Model, ChipsHaveTheDataSheetsMatrixRates) {
  const auto tflops = [](const char* name) {
    const Chip& chip = *find_chip(name);
    return chip.matrix_flops * chip.multiprocessors * chip.clock_ghz * 1e-3;
  };
  EXPECT_NEAR(tflops("l4"), 121, 1);
  EXPECT_NEAR(tflops("a100"), 312, 1);
  EXPECT_NEAR(tflops("h100"), 989, 2);
  EXPECT_NEAR(tflops("h200"), 989, 2);
  EXPECT_EQ(find_chip("L4"), nullptr);
  EXPECT_EQ(chips().size(), 4U);
}

TEST(Model, EachUnitIsItsCountOverItsRate) {
  const Chip& chip = *find_chip("h100");
  const double clocks_per_us = 1830;
  Launched one = launched(132);
  one.counters.matrix_flops = 132ULL * 4096 * 1830;
  one.counters.mufu = 132ULL * 16 * 1830 * 2;
  one.counters.lines[{"a.cu", 1, Traffic::shared_load}] = {.transactions = 132ULL * 1830 * 2};
  one.counters.lines[{"a.cu", 2, Traffic::shared_store}] = {.transactions = 132ULL * 1830};
  one.counters.shuffles = 132ULL * 1830;
  one.counters.block_barriers = 132ULL * 4 * 61;  // 61 meetings of the 4 warps of each block
  one.counters.lines[{"a.cu", 3, Traffic::global_load}] = {.transactions = 160ULL * 1830 * 5};
  const Breakdown b = model_one(one, chip, {.flops = 0, .min_bytes = 3350e3 * 6});
  EXPECT_NEAR(b.of(Unit::matrix), 1, 1e-9);
  EXPECT_NEAR(b.of(Unit::scalar), 0, 1e-9);
  EXPECT_NEAR(b.of(Unit::mufu), 2, 1e-9);
  EXPECT_NEAR(b.of(Unit::shared), 4, 1e-9);
  EXPECT_NEAR(b.of(Unit::barriers), 61 * kBarrierCycles / clocks_per_us, 1e-9);
  EXPECT_NEAR(b.of(Unit::l2), 5, 1e-9);
  EXPECT_NEAR(b.of(Unit::dram), 6, 1e-9);
  EXPECT_NEAR(b.overlapped, 6, 1e-9);
  EXPECT_NEAR(b.serial, 19, 1e-9);
  EXPECT_NEAR(b.launches, kLaunchMicroseconds, 1e-9);
}

TEST(Model, TheCopyEngineUsesL2AndSharedMemory) {
  const Chip& chip = *find_chip("h100");
  Launched one = launched(132);
  one.counters.bulk_bytes = 5120ULL * 1830;
  const Breakdown b = model_one(one, chip);
  EXPECT_NEAR(b.of(Unit::l2), 1, 1e-9);
  EXPECT_NEAR(b.of(Unit::shared), 5120 / (132 * kSharedBytesPerPass), 1e-9);
}

TEST(Model, TheBusiestMultiprocessorDecides) {
  const Chip& chip = *find_chip("a100");  // 108 of them
  const auto matrix = [&](std::uint32_t blocks) {
    Launched one = launched(blocks);
    one.counters.matrix_flops = std::uint64_t{blocks} * 2048 * 1410;  // a microsecond for each block
    return model_one(one, chip);
  };
  EXPECT_NEAR(matrix(1).of(Unit::matrix), 1, 1e-9);
  EXPECT_NEAR(matrix(108).of(Unit::matrix), 1, 1e-9);
  EXPECT_NEAR(matrix(108).tail, 1, 1e-9);
  EXPECT_NEAR(matrix(109).of(Unit::matrix), 2, 1e-9);
  EXPECT_NEAR(matrix(109).tail, 216.0 / 109, 1e-9);
}

TEST(Model, SharedMemoryAndThreadsLimitTheBlocksOfAMultiprocessor) {
  const Chip& chip = *find_chip("l4");
  EXPECT_EQ(model_one(launched(58), chip).resident_blocks, 12);  // 1536 threads
  EXPECT_EQ(model_one(launched(58, 32 << 10), chip).resident_blocks, 3);
  EXPECT_EQ(model_one(launched(58, 99 << 10), chip).resident_blocks, 1);
  EXPECT_EQ(model_one(launched(58, 200 << 10), chip).resident_blocks, 0);
  EXPECT_NEAR(model_one(launched(58 * 6, 32 << 10), chip).waves, 2, 1e-9);
}

TEST(Model, WhatMatrixUnitsDidNotDoIsScalar) {
  const Chip& chip = *find_chip("h200");
  Launched one = launched(132);
  one.counters.matrix_flops = 1000;
  const Breakdown b = model_one(one, chip, {.flops = 1000 + 132.0 * 256 * 1830});
  EXPECT_NEAR(b.of(Unit::scalar), 1, 1e-9);
}

TEST(Model, TheFloorIsTheRoofline) {
  const Chip& chip = *find_chip("l4");
  const Breakdown compute = model_one(launched(1), chip, {.flops = 121e9, .min_bytes = 1});
  EXPECT_NEAR(compute.floor, 1000, 5);
  EXPECT_FALSE(compute.memory_bound);
  const Breakdown memory = model_one(launched(1), chip, {.flops = 1, .min_bytes = 300e6});
  EXPECT_NEAR(memory.floor, 1000, 1e-6);
  EXPECT_TRUE(memory.memory_bound);
}

TEST(Model, LaunchesFollowEachOther) {
  Launched one = launched(132);
  one.counters.mufu = 132ULL * 16 * 1830;
  const Chip& chip = *find_chip("h100");
  const Breakdown b = model(std::vector<Launched>{one, one, one}, chip, {});
  EXPECT_NEAR(b.of(Unit::mufu), 3, 1e-9);
  EXPECT_NEAR(b.launches, 3 * kLaunchMicroseconds, 1e-9);
  EXPECT_EQ(model({}, chip, {}).blocks, 0U);
}

}  // namespace
}  // namespace saccade::emu
