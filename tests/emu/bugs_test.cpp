// Small kernels with one known bug each: the emulator must name it, with kernel, block, thread, line and
// seed. The bugs of Hopper's instructions are in tests/cuda/ptx.
#include <gtest/gtest.h>
#include <numeric>
#include <regex>

#include "cuda/ptx/barrier.h"
#include "cuda/ptx/cp_async.h"
#include "cuda/ptx/memory.h"
#include "cuda/ptx/warp.h"
#include "emu/machine.h"

namespace saccade {
namespace {

namespace ptx = emulated::ptx;

constexpr int kThreads = 64;
constexpr int kSeeds = 20;

/// A global array of 64 numbers that hold their index, and an output of the same size.
struct Memory {
  alignas(16) std::array<float, kThreads> in{};
  std::array<float, kThreads> between{};  // one past the end must be nobody's
  alignas(16) std::array<float, kThreads> out{};
  emu::GlobalMemory ranges;

  Memory() {
    std::iota(in.begin(), in.end(), 0.0F);
    ranges.add("in", in.data(), sizeof in, emu::Rights::read);
    ranges.add("out", out.data(), sizeof out, emu::Rights::write);
  }
};

/// What the emulator says of a kernel with two warps and 1 KB of shared memory; empty when it says nothing.
std::string complaint(const std::function<void(Memory&)>& kernel, std::uint64_t seed = 1) {
  Memory memory;
  const emu::Shape shape{
      .kernel = "planted", .grid = {}, .block = kThreads, .cluster = 1, .shared_bytes = 1024};
  try {
    emu::launch(shape, memory.ranges, {.seed = seed}, [&] { kernel(memory); });
  } catch (const emu::Error& error) {
    return error.what();
  }
  return {};
}

/// Fails unless every seed finds it.
void expect_caught(const std::function<void(Memory&)>& kernel, const std::string& words) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::string said = complaint(kernel, seed);
    EXPECT_NE(said.find(words), std::string::npos) << "seed " << seed << " said: " << said;
  }
}

float* shared() {
  return reinterpret_cast<float*>(ptx::shared_memory());
}

/// Every thread writes its slot and reads its mirror image's; `between` is what orders the two.
template <class Between>
void exchange(Memory& memory, Between between) {
  const int thread = ptx::thread_index();
  ptx::store(shared() + thread, ptx::load_constant(memory.in.data() + thread));
  between();
  ptx::store(memory.out.data() + thread, ptx::load(shared() + kThreads - 1 - thread));
}

TEST(PlantedKernelBugs, NothingIsSaidOfAKernelWithoutOne) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    EXPECT_EQ(complaint([](Memory& m) { exchange(m, [] { ptx::sync_block(); }); }, seed), "");
  }
}

TEST(PlantedKernelBugs, MissingBarrier) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::string said = complaint([](Memory& m) { exchange(m, [] {}); }, seed);
    // Whoever comes first meets unwritten bytes, whoever comes later unordered ones.
    EXPECT_TRUE(said.find("nobody has written") != std::string::npos ||
                said.find("nothing that orders") != std::string::npos ||
                said.find("no warp barrier") != std::string::npos)
        << said;
  }
}

TEST(PlantedKernelBugs, AWarpBarrierDoesNotOrderTwoWarps) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    EXPECT_NE(complaint([](Memory& m) { exchange(m, [] { ptx::sync_warp(); }); }, seed), "");
  }
}

TEST(PlantedKernelBugs, MissingBarrierBeforeOverwriting) {
  expect_caught(
      [](Memory& m) {
        exchange(m, [] { ptx::sync_block(); });
        if (ptx::thread_index() / 32 == 0)
          ptx::arrive_some(1, kThreads);  // the second warp waits for the first only
        if (ptx::thread_index() / 32 == 1) ptx::sync_some(1, kThreads);
        if (ptx::thread_index() == 0) ptx::store(shared(), 1.0F);
      },
      "with nothing that orders the two");
}

/// Copies 16 bytes a thread of the first 16 and reads what a neighbour copied.
void copy_and_read(Memory& memory, bool wait) {
  const int thread = ptx::thread_index();
  if (thread < 16) {
    ptx::copy_async_16(ptx::SharedPointer<float>(shared() + 4 * thread), memory.in.data() + 4 * thread);
    ptx::commit_copies();
    if (wait) ptx::wait_copies<0>();
  }
  ptx::sync_block();
  ptx::store(memory.out.data() + thread, ptx::load(shared() + kThreads - 1 - thread));
}

TEST(PlantedKernelBugs, MissingWaitForACopy) {
  EXPECT_EQ(complaint([](Memory& m) { copy_and_read(m, true); }), "");
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::string said = complaint([](Memory& m) { copy_and_read(m, false); }, seed);
    EXPECT_NE(said.find("an asynchronous copy of thread"), std::string::npos) << said;
  }
}

TEST(PlantedKernelBugs, WaitingForTheWrongGroup) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::string said = complaint(
        [](Memory& m) {
          if (ptx::thread_index() != 0) return;
          ptx::copy_async_16(ptx::SharedPointer<float>(shared()), m.in.data());
          ptx::commit_copies();
          ptx::copy_async_16(ptx::SharedPointer<float>(shared() + 4), m.in.data());
          ptx::commit_copies();
          ptx::wait_copies<1>();
          (void)ptx::load(shared());      // arrived
          (void)ptx::load(shared() + 4);  // not waited for
        },
        seed);
    EXPECT_NE(said.find("an asynchronous copy of thread 0"), std::string::npos) << said;
  }
}

TEST(PlantedKernelBugs, OffByOneBounds) {
  expect_caught([](Memory& m) { (void)ptx::load(m.in.data() + ptx::thread_index() + 1); },
                "of 'in', which has 256");
  expect_caught([](Memory& m) { ptx::store(m.out.data() + ptx::thread_index() + 1, 0.0F); },
                "of 'out', which has 256");
  expect_caught([](Memory&) { ptx::store(shared() + 256, 0.0F); }, "past the end of shared memory");
  expect_caught([](Memory& m) { ptx::store(m.in.data() + ptx::thread_index(), 0.0F); },
                "which may only be read");
}

TEST(PlantedKernelBugs, UnwrittenMemory) {
  expect_caught([](Memory&) { (void)ptx::load(shared() + ptx::thread_index()); }, "nobody has written");
  expect_caught([](Memory& m) { (void)ptx::load(m.out.data()); }, "may only be written");
}

TEST(PlantedKernelBugs, Misalignment) {
  expect_caught([](Memory& m) { (void)ptx::load(reinterpret_cast<const ptx::Bytes16*>(m.in.data() + 1)); },
                "16 bytes is not aligned");
  expect_caught([](Memory& m) { ptx::copy_async_16(ptx::SharedPointer<float>(shared() + 1), m.in.data()); },
                "not aligned");
}

TEST(PlantedKernelBugs, Deadlock) {
  expect_caught(
      [](Memory&) {
        if (ptx::thread_index() != 5) ptx::sync_block();
      },
      "63 threads from block 0 thread");
  expect_caught(
      [](Memory&) {
        if (ptx::lane_index() != 5) ptx::sync_warp();
      },
      "deadlocked");
  expect_caught([](Memory&) { ptx::sync_some(1, ptx::warp_index() == 0 ? 64 : 32); }, "at barrier 1");
}

TEST(PlantedKernelBugs, LanesAtDifferentInstructions) {
  expect_caught(
      [](Memory&) {
        if (ptx::lane_index() < 16) {
          (void)ptx::shuffle_xor(1, 1);
        } else {
          ptx::sync_warp();
        }
      },
      "while other lanes of its warp are at");
}

TEST(PlantedKernelBugs, AreNamedByKernelBlockThreadLineAndSeed) {
  const std::string said = complaint([](Memory& m) { (void)ptx::load(m.in.data() + 64); }, 42);
  EXPECT_TRUE(std::regex_match(
      said, std::regex("planted: block \\(0, 0, 0\\) thread [0-9]+ at tests/emu/bugs_test.cpp:[0-9]+: "
                       "reads 4 bytes at 256 of 'in', which has 256 \\(seed 42\\)")))
      << said;
}

TEST(PlantedKernelBugs, ASeedReplaysTheSameRun) {
  const auto racy = [](Memory& m) { exchange(m, [] {}); };
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed)
    EXPECT_EQ(complaint(racy, seed), complaint(racy, seed));
}

TEST(PlantedKernelBugs, ABankConflictIsCountedOnItsLine) {
  Memory memory;
  const emu::Shape shape{
      .kernel = "planted", .grid = {}, .block = 32, .cluster = 1, .shared_bytes = 32 * 33 * 4};
  const auto walk = [&](int stride) {
    const emu::Counters counters = emu::launch(shape, memory.ranges, {.seed = 1, .count = true}, [&] {
      ptx::store(shared() + ptx::thread_index() * stride, 1.0F);
    });
    return counters.total(emu::Traffic::shared_store);
  };
  const emu::LineCounts conflicted = walk(32);
  EXPECT_EQ(conflicted.instructions, 1U);
  EXPECT_EQ(conflicted.transactions, 32U);
  EXPECT_EQ(conflicted.ideal, 1U);
  EXPECT_EQ(walk(33).transactions, 1U);
}

}  // namespace
}  // namespace saccade
