// A block's shared memory and the barriers in it.
#pragma once

#include "cuda/ptx/mbarrier.h"
#include "cuda/ptx/memory.h"
#include "cuda/sm90/config.h"

namespace saccade::SACCADE_MACHINE::sm90 {

using saccade::sm90::Config;
using saccade::sm90::Launch;

/// Named barriers.
struct Barrier {
  static constexpr int kTurns = 2;    ///< of the first warpgroup: its turn has come; up to four
  static constexpr int kBegun = 6;    ///< the first copies are on their way
  static constexpr int kOthers = 7;   ///< mbarriers that no copy completes on are initialised
  static constexpr int kMeeting = 8;  ///< of the first row group: its key groups have sent their sums
};

/// A place in a ring, and the parity of its round.
template <int kStages>
struct Turn {
  int stage = 0;
  int parity = 0;

  SACCADE_DEVICE void next() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

template <class Instance>
struct Shared {
  static constexpr Config kConfig = Instance::kConfig;

  static SACCADE_DEVICE std::byte* queries(int row_group) {
    return ptx::shared_memory() + row_group * kConfig.queries_bytes();
  }
  static SACCADE_DEVICE std::byte* keys(int key_group, int stage) {
    return queries(kConfig.row_groups) + key_group * kConfig.ring_bytes() + stage * 2 * kConfig.tile_bytes();
  }
  static SACCADE_DEVICE std::byte* values(int key_group, int stage) {
    return keys(key_group, stage) + kConfig.tile_bytes();
  }
  /// Where a warp finds what another has sent it in a step.
  template <int kStep>
  static SACCADE_DEVICE std::byte* inbox(int warp) {
    constexpr int kAt = kConfig.message_at(kStep);
    return keys(kConfig.key_groups, 0) + warp * kConfig.inbox_bytes() + kAt;
  }

  // Barriers. A full one completes when its bytes have come, an empty one when all warps have read them.
  static SACCADE_DEVICE ptx::Mbarrier* queries_full(int row_group) { return barrier(2 * row_group); }
  static SACCADE_DEVICE ptx::Mbarrier* queries_empty(int row_group) { return barrier(2 * row_group + 1); }
  static SACCADE_DEVICE ptx::Mbarrier* keys_full(int key_group, int stage) {
    return tile(key_group, stage, 0);
  }
  static SACCADE_DEVICE ptx::Mbarrier* keys_empty(int key_group, int stage) {
    return tile(key_group, stage, 1);
  }
  static SACCADE_DEVICE ptx::Mbarrier* values_full(int key_group, int stage) {
    return tile(key_group, stage, 2);
  }
  static SACCADE_DEVICE ptx::Mbarrier* values_empty(int key_group, int stage) {
    return tile(key_group, stage, 3);
  }
  /// Completes when another block's message of a step is there.
  static SACCADE_DEVICE ptx::Mbarrier* inbox_full(int warp, int step) {
    return tile(kConfig.key_groups, 0, warp * kConfig.far_steps() + step - kConfig.near_steps());
  }

  /// Of 32 bytes: which tile a row group's queries are of, where sequences have lengths of their own. Behind
  /// them is what the thread knows that draws tiles.
  static SACCADE_DEVICE ptx::Bytes16* notice(int row_group) {
    return reinterpret_cast<ptx::Bytes16*>(ptx::shared_memory() + kConfig.notices_at()) + 2 * row_group;
  }

  /// Those that the first copies complete on; by the thread that starts them.
  static SACCADE_DEVICE void init_first() {
    ptx::init_mbarrier(queries_full(0), 1);
    SACCADE_UNROLL
    for (int g = 0; g < kConfig.key_groups; ++g) ptx::init_mbarrier(keys_full(g, 0), 1);
    ptx::fence_mbarrier_init();
  }
  /// Those that other copies complete on; by the same thread.
  static SACCADE_DEVICE void init_full() {
    SACCADE_UNROLL
    for (int r = 1; r < kConfig.row_groups; ++r) ptx::init_mbarrier(queries_full(r), 1);
    SACCADE_UNROLL
    for (int n = 0; n < kConfig.key_groups * kConfig.stages; ++n) {
      if (n % kConfig.stages != 0) ptx::init_mbarrier(keys_full(0, n), 1);
      ptx::init_mbarrier(values_full(0, n), 1);
    }
    ptx::fence_mbarrier_init();
  }
  /// All others, a few by each of the warps that compute; by one thread of it.
  static SACCADE_DEVICE void init_others(int warp) {
    constexpr int kWarps = 4 * kConfig.groups();
    for (int r = warp; r < kConfig.row_groups; r += kWarps)
      ptx::init_mbarrier(queries_empty(r), 4 * kConfig.key_groups);
    for (int n = warp; n < kConfig.key_groups * kConfig.stages; n += kWarps) {
      ptx::init_mbarrier(keys_empty(0, n), 4 * kConfig.row_groups);
      ptx::init_mbarrier(values_empty(0, n), 4 * kConfig.row_groups);
    }
    init_inbox<kConfig.near_steps()>(warp);
    if (kConfig.cluster > 1) ptx::fence_mbarrier_init();
  }

 private:
  template <int kStep>
  static SACCADE_DEVICE void init_inbox(int warp) {
    if constexpr (kStep < kConfig.steps()) {
      ptx::init_mbarrier(inbox_full(warp, kStep), 1);
      ptx::arrive_and_expect_bytes(inbox_full(warp, kStep), kConfig.message_bytes(kStep));
      init_inbox<kStep + 1>(warp);
    }
  }
  static SACCADE_DEVICE ptx::Mbarrier* barrier(int number) {
    return reinterpret_cast<ptx::Mbarrier*>(ptx::shared_memory() + kConfig.barriers_at()) + number;
  }
  static SACCADE_DEVICE ptx::Mbarrier* tile(int key_group, int stage, int which) {
    return barrier(2 * kConfig.row_groups + (key_group * kConfig.stages + stage) * 4 + which);
  }
};

}  // namespace saccade::SACCADE_MACHINE::sm90
