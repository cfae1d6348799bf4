// Mistakes with copies, their barriers and clusters.
#include <set>

#include "cuda/launch/tensor_map.h"
#include "cuda/ptx/cluster.h"
#include "cuda/ptx/cp_async.h"
#include "cuda/ptx/fence.h"
#include "cuda/ptx/tma.h"
#include "cuda/ptx/warp.h"
#include "misuse.h"

namespace saccade {
namespace {

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

TEST_F(Misuse, ArrivalsWaitForTheCopiesBeforeThem) {
  enum class Mistake { none, no_wait, copy_after, too_many };
  const auto kernel = [&](Mistake mistake) {
    return [this, mistake] {
      start(1, mistake == Mistake::too_many ? 64 : 128);
      const SharedPointer to(words() + 4 * thread_index());
      if (mistake != Mistake::copy_after) copy_async_16(to, in.data());
      arrive_when_copied(barriers());
      if (mistake == Mistake::copy_after) copy_async_16(to, in.data());
      if (mistake != Mistake::no_wait) wait_mbarrier(barriers(), 0);
      (void)load(words() + 4 * (thread_index() ^ 33));
      sync_block();
      commit_copies();
      wait_copies<0>();
      wait_mbarrier(barriers(), 0);
    };
  };
  expect_clean(kernel(Mistake::none));
  expect_always(kernel(Mistake::no_wait), {"reads bytes still in flight", "that nobody has written",
                                           "with nothing that orders the two"});
  expect_always(kernel(Mistake::copy_after), {"reads bytes still in flight", "that nobody has written",
                                              "with nothing that orders the two"});
  expect_sometimes(kernel(Mistake::too_many),
                   {"expects no more arrivals in this phase", "reads bytes still in flight",
                    "that nobody has written", "with nothing that orders the two"});
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

// Blocks that store into each other: a fence of mbarriers is enough for an arrival that orders nothing else,
// and what was stored is there after the wait.
TEST_F(Misuse, ParcelsNeedAFenceBeforeAndAWaitAfter) {
  shape.block = 32;
  shape.cluster = shape.grid.x = 2;
  const auto kernel = [&](bool fence, bool wait) {
    return [=] {
      if (thread_index() == 0) {
        init_mbarrier(barriers(), 1);
        arrive_and_expect_bytes(barriers(), 32 * 16);
        if (fence) fence_mbarrier_init();
      }
      sync_warp();
      arrive_cluster_relaxed();
      wait_cluster();
      auto* parcels = reinterpret_cast<Bytes16*>(words());
      store_to_block(parcels + thread_index(), {{1, 2, 3, 4}}, barriers(), 1 - cluster_rank());
      if (wait) wait_mbarrier(barriers(), 0);
      (void)load(parcels + (thread_index() ^ 1));
      arrive_cluster();
      wait_cluster();
    };
  };
  expect_clean(kernel(true, true));
  expect_always(kernel(false, true), {"mbarrier that thread"});
  expect_sometimes(kernel(true, false),
                   {"in flight", "with nothing that orders the two", "nobody has written"});
}

}  // namespace
}  // namespace saccade
