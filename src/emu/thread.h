// The emulated machine from inside: threads, warps, blocks and clusters. The emulated bodies of src/cuda/ptx
// are written with it; kernels never see it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "emu/clock.h"
#include "emu/fiber.h"
#include "emu/machine.h"
#include "emu/shadow.h"
#include "emu/tensor_map.h"
#include "emu/warpgroup.h"

namespace saccade::emu {

inline constexpr std::uint32_t kWarpThreads = 32;
inline constexpr std::uint32_t kAllLanes = ~std::uint32_t{0};
/// What shared memory holds until it is written, and while a copy is in flight: a NaN in every format.
inline constexpr int kPoisonByte = 0xff;

class Block;
class Cluster;
class Thread;

/// 32 threads: the unit of the race detector's clocks.
struct Warp {
  std::uint32_t agent = 0;  ///< index in the cluster
  std::uint32_t epoch = 1;
  VectorClock clock;
  Block* block = nullptr;
  WarpTraffic traffic;
  std::uint32_t bulk_stores = 0;  ///< started so far
  /// Of each thread of the cluster, the last fence of mbarriers before a cluster barrier that this warp
  /// passed: even a relaxed arrival shows what such a fence covers.
  std::vector<std::uint32_t> known_fences;

  /// Lanes that wait for each other at one instruction.
  struct Meeting {
    std::uint32_t mask = 0, arrived = 0;
    const char* name = "";
    Where where;
    std::array<void*, kWarpThreads> arguments{};
    std::vector<Thread*> waiting;
  };
  std::vector<Meeting> meetings;

  /// Publishes all that the warp did and knows; what it does from now on is not part of it.
  void release(VectorClock& into);
  void acquire(const VectorClock& from) { clock.join(from); }
};

/// A barrier that counts threads: bar.sync's, and the cluster's.
struct CountingBarrier {
  std::uint32_t expected = 0, arrived = 0;
  std::uint64_t generation = 0;
  VectorClock arriving, released;
  std::vector<Thread*> waiting;
};

/// An mbarrier object, known by its address.
struct Mbarrier {
  std::uint32_t count = 0;    ///< arrivals a phase needs
  std::uint32_t pending = 0;  ///< arrivals still missing
  std::int64_t bytes = 0;     ///< bytes still missing
  std::uint32_t phase = 0;    ///< phases completed
  std::uint32_t agent = 0;    ///< stands for the copies that complete on it
  std::uint32_t copies = 0;   ///< in flight
  std::uint32_t init_thread = 0, init_stamp = 0;
  VectorClock arriving, released;
  std::vector<Thread*> waiting;
};

/// One block: its threads and its shared memory.
class Block {
 public:
  Block(Cluster& cluster, Dim3 index, std::uint32_t rank);

  Cluster& cluster;
  Dim3 index;
  std::uint32_t rank;  ///< in the cluster
  std::span<std::byte> shared;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<Warpgroup> warpgroups;
  std::int64_t free_registers = 0;  ///< that warpgroups have given back
  std::vector<Thread*> register_waiters;
  std::array<CountingBarrier, 16> barriers;
  std::map<std::size_t, Mbarrier> mbarriers;  ///< by offset in shared memory
  std::uint32_t live = 0;                     ///< threads that have not returned
  std::unique_ptr<Shadow> shadow;

 private:
  std::unique_ptr<std::byte[], void (*)(std::byte*)> memory_;
};

/// One CUDA thread, a fiber.
class Thread {
 public:
  Thread(Block& block, std::uint32_t index);

  Block& block;
  const std::uint32_t index;  ///< in the block
  const std::uint32_t id;     ///< in the cluster
  Warp& warp;
  const std::uint32_t lane;

  [[noreturn]] void fail(const std::string& complaint, const Where& where) const;
  void require(bool holds, const char* complaint, const Where& where) const {
    if (!holds) fail(complaint, where);
  }

  // Memory. All of it goes through here: shared memory of the cluster by its shadow, the rest by its range.
  template <class T>
  [[nodiscard]] T load(const T* from, const Where& where) {
    read(from, sizeof(T), where);
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
  template <class T>
  void store(T* to, const T& value, const Where& where) {
    write(to, sizeof(T), where);
    std::memcpy(to, &value, sizeof(T));
  }
  void read(const void* from, std::size_t bytes, const Where& where);
  void write(void* to, std::size_t bytes, const Where& where);
  /// A read by hardware that works on its own (wgmma, bulk stores): by its agent, who knows `clock`.
  void read_asynchronously(const void* from, std::size_t bytes, std::uint32_t agent, std::uint32_t epoch,
                           const VectorClock& clock, const Where& where);
  /// The block of the cluster whose shared memory holds the address; null for global memory.
  [[nodiscard]] Block* owner(const void* address) const;
  [[nodiscard]] std::size_t shared_offset(const void* address, const Where& where) const;
  /// The same object of this block's shared memory, in block `rank` of the cluster.
  template <class T>
  [[nodiscard]] T* peer_address(T* address, std::uint32_t rank, const Where& where) const {
    require(owner(address) == &block, "maps an address that is not of the block's own shared memory", where);
    return reinterpret_cast<T*>(peer(rank, where).shared.data() + shared_offset(address, where));
  }
  [[nodiscard]] Block& peer(std::uint32_t rank, const Where& where) const;

  // Waiting.
  /// Gives the machine to others until wake() of this thread.
  void wait(const char* what, const Where& where);
  /// Lets others run first, and time pass.
  void yield();

  // Warp instructions: the last lane of `mask` to arrive acts for all; `arguments[lane]` points at each
  // lane's own.
  template <class Argument, class Act>
  void meet(const char* name, std::uint32_t mask, Argument& argument, const Where& where, Act&& act) {
    if (Warp::Meeting* meeting = arrive(name, mask, &argument, where)) {
      std::array<Argument*, kWarpThreads> arguments;
      for (std::uint32_t n = 0; n < kWarpThreads; ++n)
        arguments[n] = static_cast<Argument*>(meeting->arguments[n]);
      act(arguments);
      leave(*meeting);
    }
  }
  void sync_warp(std::uint32_t mask, const Where& where);

  // bar.sync and bar.arrive.
  void sync_block(std::uint32_t barrier, std::uint32_t threads, bool wait, const Where& where);
  // barrier.cluster.arrive and .wait. A relaxed arrival orders nothing.
  void arrive_cluster(bool release, const Where& where);
  void wait_cluster(const Where& where);

  // mbarriers.
  void init_mbarrier(std::uint64_t* barrier, std::uint32_t count, const Where& where);
  void invalidate_mbarrier(std::uint64_t* barrier, const Where& where);
  /// Announces `bytes` and arrives `arrivals` times, in this order. The barrier may be another block's.
  void arrive_mbarrier(std::uint64_t* barrier, std::uint32_t arrivals, std::int64_t bytes,
                       const Where& where);
  /// Waits until the phase of this parity is complete.
  void wait_mbarrier(std::uint64_t* barrier, std::uint32_t parity, const Where& where);
  [[nodiscard]] bool test_mbarrier(std::uint64_t* barrier, std::uint32_t parity, const Where& where);
  Mbarrier& mbarrier_at(const std::uint64_t* barrier, const Where& where);

  // cp.async: copies `bytes`, of which the first `valid` come from global memory and the rest are zero.
  void copy_async(void* to, const void* from, std::uint32_t bytes, std::uint32_t valid, const Where& where);
  void commit_copies();
  void wait_copies(std::uint32_t groups_left);
  /// One arrival, by nobody's thread, once the copies that this thread has started are there.
  void arrive_when_copied(std::uint64_t* barrier, const Where& where);

  // Fences: of all that this thread wrote, and of the mbarriers that it initialised.
  void fence_proxy();
  void fence_mbarriers();

  // Bulk copies. Loads complete on an mbarrier; stores belong to groups, and read shared memory until
  // wait_stores(). With a mask, a load goes to the same offset of each block of the cluster whose bit is set,
  // and completes on the mbarrier at the same offset there.
  void load_bulk(void* to, const void* from, std::size_t bytes, std::uint64_t* barrier, const Where& where);
  void load_tensor(void* to, const TensorMap& map, const std::int32_t* at, std::uint64_t* barrier,
                   std::uint32_t mask, const Where& where);
  /// A few words to shared memory of the cluster, which complete on an mbarrier of the same block.
  void store_to_mbarrier(void* to, std::span<const std::uint32_t> words, std::uint64_t* barrier,
                         const Where& where);
  void store_bulk(void* to, const void* from, std::size_t bytes, const Where& where);
  void store_tensor(const TensorMap& map, const std::int32_t* at, const void* from, const Where& where);
  void commit_stores();
  void wait_stores(std::uint32_t groups_left);

  // Warpgroup instructions: like meet(), for the 128 threads of four warps.
  template <class Argument, class Act>
  void meet_warpgroup(const char* name, Argument& argument, const Where& where, Act&& act) {
    if (Warpgroup* group = arrive_warpgroup(name, &argument, where)) {
      std::array<Argument*, kWarpgroupThreads> arguments;
      for (std::uint32_t n = 0; n < kWarpgroupThreads; ++n)
        arguments[n] = static_cast<Argument*>(group->arguments[n]);
      act(*group, arguments);
      leave_warpgroup(*group);
    }
  }
  [[nodiscard]] Warpgroup& warpgroup() const { return block.warpgroups[index / kWarpgroupThreads]; }

  // wgmma. The accumulators hold NaN from multiply() until the wait for their group.
  void fence_products(const Where& where);
  void multiply(const MatrixProduct& product, const Where& where);
  void commit_products(const Where& where);
  void wait_products(std::uint32_t groups_left, const Where& where);

  /// setmaxnreg: this warpgroup's threads have `count` registers from now on.
  void set_registers(std::uint32_t count, bool more, const Where& where);

  [[nodiscard]] Actor actor(const Where& where);

  std::uint32_t stamp = 0;  ///< instructions that matter to proxy fences, counted
  std::uint64_t cluster_arrivals = 0;
  Where waiting_at;
  const char* waiting_for = nullptr;
  std::unique_ptr<Fiber> fiber;

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::uint32_t bytes, valid, epoch;
  };
  Warp::Meeting* arrive(const char* name, std::uint32_t mask, void* argument, const Where& where);
  void leave(const Warp::Meeting& meeting);
  void finish_copy(const Copy& copy);
  void finish_copies_until(std::uint32_t epoch);

  void check_initialised(const Mbarrier& barrier, const Where& where) const;
  void copy_to_mbarrier(std::byte* to, std::size_t bytes, std::uint64_t* barrier,
                        std::function<void(std::byte*)> produce, const Where& where);
  void start_store(std::function<void()> work);
  Warpgroup* arrive_warpgroup(const char* name, void* argument, const Where& where);
  void leave_warpgroup(Warpgroup& group);
  void issue(Warpgroup& group, const std::array<MatrixProduct*, kWarpgroupThreads>& parts,
             const Where& where);

  std::deque<Copy> copies_;
  std::vector<std::uint32_t> group_epochs_;  ///< the last epoch of each committed group of copies
  std::uint32_t copy_epoch_ = 1;             ///< of the next copies; a commit or an arrival ends it
  std::uint32_t copy_agent_ = 0;             ///< 0: none yet

  /// A bulk store; its work is done by the copy engine at some moment, or by the wait.
  struct Store {
    std::uint32_t group, epoch;
    std::shared_ptr<std::function<void()>> work;
  };
  std::deque<Store> stores_;
  std::uint32_t open_store_group_ = 1;

  /// What registers will hold when the products in flight are done.
  struct Accumulators {
    std::vector<float> values;
    std::uint32_t group = 0;  ///< of the last product
  };
  std::map<float*, Accumulators> accumulators_;
  std::uint32_t open_product_group_ = 1;
  bool products_fenced_ = false;
};

/// Blocks that run together on one core, one thread at a time, in an order that the seed chooses.
class Cluster {
 public:
  Cluster(const Shape& shape, const GlobalMemory& memory, const Options& options, std::uint64_t number,
          const std::function<void()>& thread_main);
  /// Runs every thread to its end.
  void run();

  void wake(Thread& thread) { runnable_.push_back(&thread); }
  void wake_all(std::vector<Thread*>& threads);
  /// Work of the copy engine or the matrix units, done now or at any later moment.
  void defer(std::function<void()> work);
  /// Maybe completes some of it: for threads that look again and again whether it is done.
  void let_time_pass() {
    if (!deferred_.empty() && chance(4)) complete_one_deferred();
  }
  [[nodiscard]] bool chance(std::uint32_t one_in) { return random_() % one_in == 0; }
  [[nodiscard]] std::uint32_t new_agent() { return next_agent_++; }
  void complete_phase_if_due(Mbarrier& state);

  const Shape& shape;
  const GlobalMemory& memory;
  const Options& options;
  const std::uint64_t number;  ///< in the grid
  std::uint32_t warps = 0;     ///< of all its blocks
  std::vector<std::unique_ptr<Block>> blocks;
  CountingBarrier barrier;
  std::vector<std::uint32_t> fences;           ///< stamp of each thread's last proxy fence
  std::vector<std::uint32_t> mbarrier_fences;  ///< and of its last fence of mbarriers, either kind
  std::vector<std::uint32_t> arrived_fences;   ///< the same when it last arrived at the cluster's barrier
  std::vector<std::uint32_t> shown_fences;     ///< those of the last cluster barrier that was complete
  Counters counters;

 private:
  void complete_one_deferred();
  [[noreturn]] void report_deadlock() const;

  const std::function<void()>& thread_main_;
  std::mt19937_64 random_;
  /// When deferred work completes: at once, as late as possible, or at random.
  enum class Timing { at_once, late, random } timing_;
  std::vector<Thread*> runnable_;
  std::vector<std::function<void()>> deferred_;
  std::uint32_t next_agent_;
};

/// The thread that runs now on this core.
[[nodiscard]] Thread& this_thread();

}  // namespace saccade::emu
