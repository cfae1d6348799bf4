// Mistakes with warpgroups: their products, their fences and their registers.
#include <cmath>

#include "cuda/ptx/cp_async.h"
#include "cuda/ptx/fence.h"
#include "cuda/ptx/registers.h"
#include "cuda/ptx/tma.h"
#include "cuda/ptx/warp.h"
#include "cuda/ptx/wgmma.h"
#include "misuse.h"

namespace saccade {
namespace {

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
