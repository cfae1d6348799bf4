// Kernels that make a mistake with the asynchronous primitives, and what the emulator says of them. Each is
// run with its mistake and without: the right one must pass with every seed.
#pragma once

#include <array>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "cuda/ptx/barrier.h"
#include "cuda/ptx/mbarrier.h"
#include "cuda/ptx/memory.h"

namespace saccade {

using namespace emulated;
using namespace emulated::ptx;

inline constexpr std::uint64_t kSeeds = 24;

class Misuse : public testing::Test {
 protected:
  /// What the emulator said, seed by seed; empty strings for clean runs.
  std::vector<std::string> complaints(const std::function<void()>& kernel) {
    std::vector<std::string> said;
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      emu::GlobalMemory memory;
      memory.add("in", in.data(), sizeof in, emu::Rights::read);
      memory.add("out", out.data(), sizeof out, emu::Rights::read_write, true);
      try {
        emu::launch(shape, memory, {.seed = seed, .count = false, .cores = 1}, kernel);
        said.emplace_back();
      } catch (const emu::Error& error) {
        said.emplace_back(error.what());
      }
    }
    return said;
  }
  void expect_clean(const std::function<void()>& kernel) {
    for (const std::string& complaint : complaints(kernel)) ASSERT_EQ(complaint, "");
  }
  /// With every seed, one of the texts.
  void expect_always(const std::function<void()>& kernel, const std::vector<std::string>& texts) {
    for (const std::string& complaint : complaints(kernel))
      ASSERT_TRUE(holds_one(complaint, texts)) << complaint;
  }
  /// With some seeds, one of the texts, and nothing else with the others.
  void expect_sometimes(const std::function<void()>& kernel, const std::vector<std::string>& texts) {
    std::size_t caught = 0;
    for (const std::string& complaint : complaints(kernel)) {
      if (complaint.empty()) continue;
      ASSERT_TRUE(holds_one(complaint, texts)) << complaint;
      ++caught;
    }
    EXPECT_GT(caught, 0U);
  }
  static bool holds_one(const std::string& complaint, const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      if (complaint.find(text) != std::string::npos) return true;
    }
    return false;
  }

  emu::Shape shape{"misuse", {1, 1, 1}, 128, 1, 16384, 0};
  alignas(128) std::array<std::uint32_t, 4096> in{};
  alignas(128) std::array<std::uint32_t, 4096> out{};
};

/// The kernel's shared memory: a matrix of 64 x 64 (or a stage of a ring) first, barriers behind.
inline std::uint32_t* words() {
  return reinterpret_cast<std::uint32_t*>(shared_memory());
}
inline Mbarrier* barriers() {
  return reinterpret_cast<Mbarrier*>(shared_memory() + 8192);
}
inline void start(int count, int arrivals) {
  if (thread_index() == 0) {
    for (int n = 0; n < count; ++n) init_mbarrier(barriers() + n, arrivals);
    fence_mbarrier_init();
  }
  sync_block();
}
inline void fill(std::uint32_t word) {
  for (int n = thread_index(); n < 2048; n += block_threads()) store(words() + n, word);
}

}  // namespace saccade
