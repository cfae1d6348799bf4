// What a kernel can do wrong with the asynchronous primitives, and that the emulator says so. Each kernel is
// run with its mistake and without: the right one must pass with every seed.
#include <array>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <set>

#include "cuda/launch/tensor_map.h"
#include "cuda/ptx/barrier.h"
#include "cuda/ptx/cluster.h"
#include "cuda/ptx/cp_async.h"
#include "cuda/ptx/fence.h"
#include "cuda/ptx/mbarrier.h"
#include "cuda/ptx/memory.h"
#include "cuda/ptx/registers.h"
#include "cuda/ptx/tma.h"
#include "cuda/ptx/warp.h"
#include "cuda/ptx/wgmma.h"

namespace saccade {
namespace {

using namespace emulated;
using namespace emulated::ptx;

constexpr std::uint64_t kSeeds = 24;

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
std::uint32_t* words() {
  return reinterpret_cast<std::uint32_t*>(shared_memory());
}
Mbarrier* barriers() {
  return reinterpret_cast<Mbarrier*>(shared_memory() + 8192);
}
void start(int count, int arrivals) {
  if (thread_index() == 0) {
    for (int n = 0; n < count; ++n) init_mbarrier(barriers() + n, arrivals);
    fence_mbarrier_init();
  }
  sync_block();
}
void fill(std::uint32_t word) {
  for (int n = thread_index(); n < 2048; n += block_threads()) store(words() + n, word);
}
std::uint64_t descriptor() {
  return matrix_descriptor(words(), 0, 1024, 128);
}
void multiply(float (&d)[4]) {
  warpgroup_multiply<F16, 8, Major::k, Major::k>(d, descriptor(), descriptor(), false);
}

TEST_F(Misuse, ProductsNeedAProxyFenceAfterStores) {
  const auto kernel = [&](bool fence) {
    return [=] {
      fill(0x3c003c00);
      if (fence) fence_shared_to_async();
      sync_block();
      float d[4] = {};
      fence_products();
      multiply(d);
      commit_products();
      wait_products<0>();
      if (d[0] != 16) emu::this_thread().fail("wrong product", emu::Where::current());
    };
  };
  expect_clean(kernel(true));
  expect_always(kernel(false), {"no proxy fence after the write"});
}

TEST_F(Misuse, ProductsNeedAProxyFenceAfterCpAsync) {
  const auto kernel = [&](bool fence) {
    return [this, fence] {
      for (int n = thread_index(); n < 512; n += 128)
        copy_async_16(SharedPointer(words() + 4 * n), in.data() + 4 * n);
      commit_copies();
      wait_copies<0>();
      if (fence) fence_shared_to_async();
      sync_block();
      float d[4] = {};
      fence_products();
      multiply(d);
      commit_products();
      wait_products<0>();
    };
  };
  expect_clean(kernel(true));
  expect_always(kernel(false), {"no proxy fence after the write"});
}

TEST_F(Misuse, StoresNeedAProxyFence) {
  const auto kernel = [&](bool fence) {
    return [this, fence] {
      fill(5);
      if (fence) fence_shared_to_async();
      sync_block();
      if (thread_index() == 0) {
        store_bytes(out.data(), words(), 256);
        commit_stores();
        wait_stores<0>();
      }
    };
  };
  expect_clean(kernel(true));
  expect_always(kernel(false), {"no proxy fence after the write"});
}

TEST_F(Misuse, StoresReadUntilTheirWait) {
  const auto kernel = [&](bool wait, bool whole) {
    return [this, wait, whole] {
      if (thread_index() < 32) {
        store(words() + thread_index(), 5U);
        fence_shared_to_async();
        sync_warp();
        if (thread_index() == 0) {
          store_bytes(out.data(), words(), 128);
          commit_stores();
          if (wait) wait_stores_read<0>();
        }
        sync_warp();
        store(words() + thread_index(), 6U);
        if (whole && thread_index() == 0) wait_stores<0>();
      }
    };
  };
  expect_clean(kernel(true, true));
  expect_always(kernel(false, true), {"overwrites what a bulk store"});
}

TEST_F(Misuse, CopiesAreAligned) {
  const auto bytes = [&](int to, int from, int count) {
    return [=, this] {
      start(1, 1);
      if (thread_index() == 0) {
        arrive_and_expect_bytes(barriers(), count);
        load_bytes(words() + to, in.data() + from, count, barriers());
      }
      wait_mbarrier(barriers(), 0);
    };
  };
  expect_clean(bytes(4, 4, 48));
  expect_always(bytes(2, 4, 48), {"a bulk copy to an address that is not aligned to 16 bytes"});
  expect_always(bytes(4, 2, 48), {"a bulk copy from an address that is not aligned to 16 bytes"});
  expect_always(bytes(4, 4, 40), {"no multiple of 16"});

  TensorLayout layout{in.data(), 2, 2, {64, 32}, {0, 128}, {64, 16}, 128};
  emulated::ptx::TensorMap map;
  ASSERT_TRUE(make_tensor_map(map, layout).ok());
  const auto box = [&](int to) {
    return [&map, to] {
      start(1, 1);
      if (thread_index() == 0) {
        const std::int32_t at[2] = {0, 0};
        arrive_and_expect_bytes(barriers(), 2048);
        load_box(words() + to, map, at, barriers());
      }
      wait_mbarrier(barriers(), 0);
    };
  };
  expect_clean(box(32));
  expect_always(box(16), {"a tensor copy to an address that is not aligned to 128 bytes"});
  const auto refuses = [&](const auto& change) {
    TensorLayout wrong = layout;
    change(wrong);
    return !make_tensor_map(map, wrong).ok();
  };
  EXPECT_TRUE(refuses([&](TensorLayout& wrong) { wrong.base = in.data() + 1; }));
  EXPECT_TRUE(refuses([](TensorLayout& wrong) { wrong.strides[1] = 136; }));
  EXPECT_TRUE(refuses([](TensorLayout& wrong) { wrong.box[0] = 60; }));
  EXPECT_TRUE(refuses([](TensorLayout& wrong) { wrong.box[1] = 257; }));
  EXPECT_TRUE(refuses([](TensorLayout& wrong) { wrong.swizzle = 64; }));
  EXPECT_TRUE(refuses([](TensorLayout& wrong) { wrong.rank = 6; }));
}

TEST_F(Misuse, CopiesStayInsideOfTheirTensor) {
  const TensorLayout layout{out.data(), 2, 2, {64, 200}, {0, 128}, {64, 16}, 128};  // of 128 rows there are
  emulated::ptx::TensorMap map;
  ASSERT_TRUE(make_tensor_map(map, layout).ok());
  const auto kernel = [&](int row) {
    return [&map, row] {
      start(1, 1);
      if (thread_index() == 0) {
        const std::int32_t at[2] = {0, row};
        arrive_and_expect_bytes(barriers(), 2048);
        load_box(words(), map, at, barriers());
      }
      wait_mbarrier(barriers(), 0);
    };
  };
  expect_clean(kernel(112));
  expect_always(kernel(120), {"of 'out', which has"});
}

TEST_F(Misuse, StoresDoNotStartBeforeTheirTensor) {
  const TensorLayout layout{out.data(), 2, 2, {64, 128}, {0, 128}, {64, 16}, 128};
  emulated::ptx::TensorMap map;
  ASSERT_TRUE(make_tensor_map(map, layout).ok());
  const auto kernel = [&](int row) {
    return [&map, row] {
      for (int n = thread_index(); n < 512; n += block_threads()) store(words() + n, std::uint32_t{1});
      fence_shared_to_async();
      sync_block();
      if (thread_index() != 0) return;
      const std::int32_t at[2] = {0, row};
      store_box(map, at, words());
      commit_stores();
      wait_stores<0>();
    };
  };
  expect_clean(kernel(120));
  expect_always(kernel(-1), {"starts before its tensor"});
}

// A ring of one stage: thread 0 fills it by the copy engine, threads 32 to 63 read it, three times.
TEST_F(Misuse, PhasesMatter) {
  struct Mistake {
    int full = 0, empty = 0;  // what is added to the parity
    bool no_wait = false, no_empty = false;
    int bytes = 128;
  };
  shape.block = 64;
  const auto kernel = [&](Mistake mistake) {
    return [this, mistake] {
      if (thread_index() == 0) {
        init_mbarrier(barriers(), 1);
        init_mbarrier(barriers() + 1, 32);
        fence_mbarrier_init();
      }
      sync_block();
      for (int round = 0; round < 3; ++round) {
        if (thread_index() == 0) {
          if (!mistake.no_empty) wait_mbarrier(barriers() + 1, (round + 1 + mistake.empty) % 2);
          arrive_and_expect_bytes(barriers(), mistake.bytes);
          load_bytes(words(), in.data() + 32 * round, 128, barriers());
        } else if (thread_index() >= 32) {
          if (!mistake.no_wait) wait_mbarrier(barriers(), (round + mistake.full) % 2);
          store(out.data() + thread_index(), load(words() + lane_index()));
          arrive_mbarrier(barriers() + 1);
        }
      }
      sync_block();
    };
  };
  const std::vector<std::string> races = {"in flight",  "nothing that orders", "nobody has written",
                                          "deadlocked", "that expects 0 more", "overwrites"};
  expect_clean(kernel({}));
  expect_always(kernel({.full = 1}), races);
  expect_always(kernel({.empty = 1}), races);
  expect_always(kernel({.no_wait = true}), races);
  expect_always(kernel({.no_empty = true}), {"nothing that orders", "in flight", "expects 0 more"});
  expect_always(kernel({.bytes = 256}), {"deadlocked"});
  expect_sometimes(kernel({.bytes = 0}), races);
}

TEST_F(Misuse, ArrivalsAreCounted) {
  const auto kernel = [&](int arrivals) {
    return [=] {
      start(1, 2);
      if (thread_index() == 0) {
        for (int n = 0; n < arrivals; ++n) arrive_mbarrier(barriers());
        expect_bytes(barriers(), 16);
      }
      sync_block();
    };
  };
  expect_clean(kernel(1));
  const auto twice = [&] {  // the bytes hold the phase open, so that a third arrival belongs to it
    start(1, 2);
    if (thread_index() == 0) {
      expect_bytes(barriers(), 16);
      for (int n = 0; n < 3; ++n) arrive_mbarrier(barriers());
    }
  };
  expect_always(twice, {"expects 0 more arrivals"});
}

TEST_F(Misuse, BarriersNeedTheirInitialisationFirst) {
  const auto kernel = [&](bool fence, bool sync) {
    return [=, this] {
      if (thread_index() == 32) {
        init_mbarrier(barriers(), 1);
        if (fence) fence_mbarrier_init();
      }
      if (sync) sync_block();
      if (thread_index() == 0) {
        arrive_and_expect_bytes(barriers(), 128);
        load_bytes(words(), in.data(), 128, barriers());
        wait_mbarrier(barriers(), 0);
      }
    };
  };
  expect_clean(kernel(true, true));
  expect_always(kernel(false, true), {"with no fence after that"});
  expect_always(kernel(true, false), {"no initialised mbarrier", "with nothing that orders the two"});
}

TEST_F(Misuse, ProductsNeedTheirWait) {
  const auto kernel = [&](bool wait) {
    return [this, wait] {
      fill(0x3c003c00);
      fence_shared_to_async();
      sync_block();
      float d[4] = {};
      fence_products();
      multiply(d);
      commit_products();
      if (wait) wait_products<0>();
      store(out.data() + thread_index(), std::isnan(d[0]) ? 1U : 0U);
      wait_products<0>();
    };
  };
  for (const bool wait : {true, false}) {
    expect_clean(kernel(wait));
    EXPECT_EQ(out[0], wait ? 0U : 1U);
    EXPECT_EQ(out[127], wait ? 0U : 1U);
  }
  const auto overwrites = [&] {
    fill(0x3c003c00);
    fence_shared_to_async();
    sync_block();
    float d[4] = {};
    fence_products();
    multiply(d);
    commit_products();
    d[2] = 0;
    wait_products<0>();
  };
  expect_always(overwrites, {"accumulators were written while a product had them"});
}

TEST_F(Misuse, ProductsNeedTheirFence) {
  const auto kernel = [&](bool first, bool second) {
    return [=] {
      fill(0x3c003c00);
      fence_shared_to_async();
      sync_block();
      float d[4] = {};
      if (first) fence_products();
      multiply(d);
      commit_products();
      wait_products<0>();
      if (second) fence_products();
      multiply(d);
      commit_products();
      wait_products<0>();
    };
  };
  expect_clean(kernel(true, true));
  expect_always(kernel(false, true), {"no wgmma.fence"});
  expect_always(kernel(true, false), {"no wgmma.fence"});
}

TEST_F(Misuse, WarpgroupsActTogether) {
  const auto kernel = [&](bool agree) {
    return [=] {
      fill(0x3c003c00);
      fence_shared_to_async();
      sync_block();
      float d[4] = {};
      fence_products();
      const int further = !agree && warp_index() == 2 ? 32 : 0;
      warpgroup_multiply<F16, 8, Major::k, Major::k>(d, advance_descriptor(descriptor(), further),
                                                     descriptor(), false);
      commit_products();
      wait_products<0>();
    };
  };
  expect_clean(kernel(true));
  expect_always(kernel(false), {"disagree on a product"});
  shape.block = 96;
  expect_always(kernel(true), {"whose four the block has not"});
  shape.block = 128;
  const auto alone = [&] {
    if (warp_index() < 3) give_registers<24>();
  };
  expect_always(alone, {"deadlocked"});
}

// A stage that products read is refilled by the copy engine: only after their wait.
TEST_F(Misuse, StagesAreKeptWhileProductsReadThem) {
  shape.block = 160;
  const auto kernel = [&](bool wait) {
    return [this, wait] {
      if (thread_index() == 0) {
        init_mbarrier(barriers(), 1);
        init_mbarrier(barriers() + 1, 128);
        fence_mbarrier_init();
      }
      sync_block();
      if (thread_index() == 128) {
        for (int round = 0; round < 3; ++round) {
          wait_mbarrier(barriers() + 1, (round + 1) % 2);
          arrive_and_expect_bytes(barriers(), 8192);
          load_bytes(words(), in.data(), 8192, barriers());
        }
      } else if (thread_index() < 128) {
        float d[4] = {};
        for (int round = 0; round < 3; ++round) {
          wait_mbarrier(barriers(), round % 2);
          fence_products();
          multiply(d);
          commit_products();
          if (wait) wait_products<0>();
          arrive_mbarrier(barriers() + 1);
          wait_products<0>();
        }
      }
      sync_block();
    };
  };
  expect_clean(kernel(true));
  expect_always(kernel(false), {"overwrites what a product of the warpgroup"});
}

TEST_F(Misuse, BlocksOutliveTheirCopies) {
  const auto load_kernel = [&](bool wait) {
    return [this, wait] {
      start(1, 1);
      if (thread_index() == 0) {
        arrive_and_expect_bytes(barriers(), 128);
        load_bytes(words(), in.data(), 128, barriers());
      }
      if (wait) wait_mbarrier(barriers(), 0);
    };
  };
  expect_clean(load_kernel(true));
  expect_sometimes(load_kernel(false), {"arrives at a block that has ended"});
  const auto store_kernel = [&] {
    fill(1);
    fence_shared_to_async();
    sync_block();
    if (thread_index() == 0) {
      store_bytes(out.data(), words(), 128);
      commit_stores();
    }
  };
  expect_sometimes(store_kernel, {"reads the memory of a block that has ended"});
}

TEST_F(Misuse, ClustersWaitForEachOther) {
  shape.block = 32;
  shape.cluster = shape.grid.x = 2;
  const auto kernel = [&](bool last, bool release) {
    return [=] {
      store(words() + thread_index(), 7U);
      if (release) {
        arrive_cluster();
      } else {
        arrive_cluster_relaxed();
      }
      wait_cluster();
      (void)load(in_block(words() + thread_index(), 1 - cluster_rank()));
      if (last) {
        arrive_cluster();
        wait_cluster();
      }
    };
  };
  expect_clean(kernel(true, true));
  expect_always(kernel(true, false), {"with nothing that orders the two"});
  expect_sometimes(kernel(false, true), {"reads the shared memory of a block that has ended"});
  const auto arrival = [&] {
    if (thread_index() == 0) {
      init_mbarrier(barriers(), 32);
      fence_mbarrier_init();
    }
    arrive_cluster();
    wait_cluster();
    if (cluster_rank() == 0) arrive_remote_mbarrier(barriers(), 1);
  };
  expect_sometimes(arrival, {"an mbarrier of a block that has ended"});
}

TEST_F(Misuse, RegistersAreCounted) {
  shape.block = 256;
  shape.registers = 128;
  const auto kernel = [&]<int kLess, int kMore>() {
    return [] {
      if (warp_index() < 4) {
        give_registers<kLess>();
      } else {
        take_registers<kMore>();
      }
    };
  };
  expect_clean(kernel.operator()<24, 232>());
  expect_always(kernel.operator()<24, 240>(), {"deadlocked"});
  expect_always(kernel.operator()<136, 232>(), {"setmaxnreg.dec to more registers", "deadlocked"});
  expect_always(kernel.operator()<28, 128>(), {"a multiple of 8"});
}

}  // namespace
}  // namespace saccade
