// The bulk copy engine (TMA): copies that complete on mbarriers, and stores in groups.
#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "emu/thread.h"

namespace saccade::emu {

void Thread::copy_to_mbarrier(std::byte* to, std::size_t bytes, std::uint64_t* barrier,
                              std::function<void(std::byte*)> produce, const Where& where) {
  Mbarrier& state = mbarrier_at(barrier, where);
  Cluster& cluster = block.cluster;
  check_initialised(state, where);
  if (cluster.mbarrier_fences[state.init_thread] <= state.init_stamp) {
    fail(fmt::format("a copy completes on an mbarrier that thread {} initialised, with no fence after that",
                     state.init_thread),
         where);
  }
  Block* home = owner(to);
  const std::size_t offset = shared_offset(to, where);
  require(offset + bytes <= home->shared.size(), "a copy past the end of shared memory", where);
  const Complaint complaint =
      home->shadow->begin_copy(offset, bytes, actor(where), state.agent, state.phase + 1, true);
  if (!complaint.empty()) fail(complaint, where);
  std::memset(to, kPoisonByte, bytes);
  ++state.copies;
  cluster.defer([this, to, bytes, home, offset, where, &state, produce = std::move(produce)] {
    require(home->live > 0, "a copy that it started arrives at a block that has ended", where);
    produce(to);
    home->shadow->end_copy(offset, bytes, state.phase + 1, 0);
    --state.copies;
    state.bytes -= static_cast<std::int64_t>(bytes);
    block.cluster.complete_phase_if_due(state);
  });
}

namespace {

void check_aligned(const Thread& thread, const void* address, std::size_t bytes, const char* what,
                   const Where& where) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0)
    thread.fail(fmt::format("{} that is not aligned to {} bytes", what, bytes), where);
}

/// A run of bytes of one row of the box that lies inside of the tensor, or outside of it.
struct Piece {
  std::size_t in_box;  ///< bytes from the start of the box, not swizzled
  std::byte* global;   ///< null: outside
  std::size_t bytes;
};

/// Cuts the box at `at` into pieces, row by row.
template <class Act>
void for_each_piece(const TensorMap& map, const std::int32_t* at, Act&& act) {
  const std::size_t row_bytes = std::size_t{map.box[0]} * map.element_bytes;
  const std::size_t rows = map.box_bytes() / row_bytes;
  const auto width = static_cast<std::int64_t>(map.sizes[0]);
  const std::int64_t begin = std::clamp<std::int64_t>(at[0], 0, width);
  const std::int64_t end = std::clamp<std::int64_t>(std::int64_t{at[0]} + map.box[0], 0, width);
  for (std::size_t row = 0; row < rows; ++row) {
    std::size_t rest = row;
    bool inside = begin < end;
    std::size_t global = 0;
    for (std::uint32_t n = 1; n < map.rank; ++n) {
      const std::int64_t coordinate = std::int64_t{at[n]} + static_cast<std::int64_t>(rest % map.box[n]);
      rest /= map.box[n];
      inside = inside && coordinate >= 0 && coordinate < static_cast<std::int64_t>(map.sizes[n]);
      global += static_cast<std::size_t>(coordinate) * map.strides[n];
    }
    const std::size_t first = row * row_bytes;
    if (!inside) {
      act(Piece{first, nullptr, row_bytes});
      continue;
    }
    const auto before = static_cast<std::size_t>(begin - at[0]) * map.element_bytes;
    const auto bytes = static_cast<std::size_t>(end - begin) * map.element_bytes;
    if (before > 0) act(Piece{first, nullptr, before});
    act(Piece{first + before, map.base + global + static_cast<std::size_t>(begin) * map.element_bytes,
              bytes});
    if (before + bytes < row_bytes) act(Piece{first + before + bytes, nullptr, row_bytes - before - bytes});
  }
}

/// Calls act(offset in the piece, offset in shared memory, bytes) for the parts of a piece that stay together
/// under the swizzle. `start` is the box's offset in shared memory.
template <class Act>
void for_each_chunk(const Piece& piece, std::size_t start, std::uint32_t swizzle, Act&& act) {
  for (std::size_t done = 0; done < piece.bytes;) {
    const std::size_t offset = start + piece.in_box + done;
    const std::size_t bytes = std::min(piece.bytes - done, 16 - offset % 16);
    act(done, swizzled(offset, swizzle), bytes);
    done += bytes;
  }
}

}  // namespace

void Thread::load_bulk(void* to, const void* from, std::size_t bytes, std::uint64_t* barrier,
                       const Where& where) {
  check_aligned(*this, to, 16, "a bulk copy to an address", where);
  check_aligned(*this, from, 16, "a bulk copy from an address", where);
  require(bytes % 16 == 0 && bytes > 0, "a bulk copy of a size that is no multiple of 16", where);
  require(owner(to) == owner(barrier), "a bulk copy to another block than its mbarrier's", where);
  if (const std::string complaint = block.cluster.memory.read(from, bytes); !complaint.empty())
    fail(complaint, where);
  block.cluster.counters.copied_bytes += bytes;
  block.cluster.counters.bulk_bytes += bytes;
  copy_to_mbarrier(
      static_cast<std::byte*>(to), bytes, barrier,
      [from, bytes](std::byte* here) { std::memcpy(here, from, bytes); }, where);
}

void Thread::store_to_mbarrier(void* to, std::span<const std::uint32_t> words, std::uint64_t* barrier,
                               const Where& where) {
  check_aligned(*this, to, words.size_bytes(), "an asynchronous store to an address", where);
  require(owner(to) == owner(barrier), "an asynchronous store to another block than its mbarrier's", where);
  copy_to_mbarrier(
      static_cast<std::byte*>(to), words.size_bytes(), barrier,
      [kept = std::vector(words.begin(), words.end())](std::byte* here) {
        std::memcpy(here, kept.data(), kept.size() * sizeof kept.front());
      },
      where);
}

void Thread::load_tensor(void* to, const TensorMap& map, const std::int32_t* at, std::uint64_t* barrier,
                         std::uint32_t mask, const Where& where) {
  Cluster& cluster = block.cluster;
  check_aligned(*this, to, 128, "a tensor copy to an address", where);
  require(owner(to) == &block && owner(barrier) == &block, "a tensor copy names another block's memory",
          where);
  const std::size_t offset = shared_offset(to, where);
  const std::size_t barrier_offset = shared_offset(barrier, where);
  if (mask == 0) mask = 1U << block.rank;
  require(mask >> cluster.shape.cluster == 0, "a multicast to a block that the cluster has not", where);
  bool touches = false;
  const auto read = [&](std::byte* from, std::size_t bytes) {
    touches = true;
    if (const std::string complaint = cluster.memory.read(from, bytes); !complaint.empty())
      fail(complaint, where);
  };
  for_each_piece(map, at, [&](const Piece& piece) {
    if (piece.global != nullptr) read(piece.global, piece.bytes);
  });
  if (!touches) read(map.base, map.element_bytes);  // of a box that lies outside, as the hardware does
  const std::vector<std::int32_t> corner(at, at + map.rank);
  for (const auto& home : cluster.blocks) {
    if ((mask >> home->rank & 1U) == 0) continue;
    auto* its_barrier = reinterpret_cast<std::uint64_t*>(home->shared.data() + barrier_offset);
    std::byte* shared = home->shared.data();
    cluster.counters.copied_bytes += map.box_bytes();
    cluster.counters.bulk_bytes += map.box_bytes();
    copy_to_mbarrier(
        shared + offset, map.box_bytes(), its_barrier,
        [shared, offset, map, corner](std::byte*) {
          for_each_piece(map, corner.data(), [&](const Piece& piece) {
            for_each_chunk(piece, offset, map.swizzle,
                           [&](std::size_t from, std::size_t chunk, std::size_t bytes) {
                             if (piece.global == nullptr) {
                               std::memset(shared + chunk, 0, bytes);
                             } else {
                               std::memcpy(shared + chunk, piece.global + from, bytes);
                             }
                           });
          });
        },
        where);
  }
}

void Thread::start_store(std::function<void()> work) {
  auto pending = std::make_shared<std::function<void()>>(std::move(work));
  stores_.push_back({open_store_group_, warp.bulk_stores, pending});
  block.cluster.defer([pending] {
    if (const auto act = std::exchange(*pending, nullptr)) act();
  });
}

void Thread::store_bulk(void* to, const void* from, std::size_t bytes, const Where& where) {
  check_aligned(*this, to, 16, "a bulk store to an address", where);
  check_aligned(*this, from, 16, "a bulk store from an address", where);
  require(bytes % 16 == 0 && bytes > 0, "a bulk store of a size that is no multiple of 16", where);
  Cluster& cluster = block.cluster;
  if (const std::string complaint = cluster.memory.write(to, bytes); !complaint.empty())
    fail(complaint, where);
  read_asynchronously(from, bytes, 2 * cluster.warps + warp.agent, ++warp.bulk_stores, warp.clock, where);
  cluster.counters.copied_bytes += bytes;
  cluster.counters.bulk_bytes += bytes;
  start_store([this, to, from, bytes, where] {
    require(block.live > 0, "a bulk store that it started reads the memory of a block that has ended", where);
    std::memcpy(to, from, bytes);
  });
}

void Thread::store_tensor(const TensorMap& map, const std::int32_t* at, const void* from,
                          const Where& where) {
  check_aligned(*this, from, 128, "a tensor store from an address", where);
  // Seen on an H200: an illegal instruction. Loads start there without harm.
  const bool before = std::any_of(at, at + map.rank, [](std::int32_t n) { return n < 0; });
  require(!before, "a tensor store that starts before its tensor, where the hardware traps", where);
  Cluster& cluster = block.cluster;
  const std::size_t offset = shared_offset(from, where);
  require(owner(from) == &block, "a tensor store from the memory of another block", where);
  require(offset + map.box_bytes() <= block.shared.size(), "reads past the end of shared memory", where);
  ++warp.bulk_stores;
  for_each_piece(map, at, [&](const Piece& piece) {
    if (piece.global == nullptr) return;
    if (const std::string complaint = cluster.memory.write(piece.global, piece.bytes); !complaint.empty())
      fail(complaint, where);
    cluster.counters.copied_bytes += piece.bytes;
    cluster.counters.bulk_bytes += piece.bytes;
    for_each_chunk(piece, offset, map.swizzle, [&](std::size_t, std::size_t chunk, std::size_t bytes) {
      read_asynchronously(block.shared.data() + chunk, bytes, 2 * cluster.warps + warp.agent,
                          warp.bulk_stores, warp.clock, where);
    });
  });
  start_store([this, map, offset, where, corner = std::vector<std::int32_t>(at, at + map.rank)] {
    require(block.live > 0, "a tensor store that it started reads the memory of a block that has ended",
            where);
    for_each_piece(map, corner.data(), [&](const Piece& piece) {
      if (piece.global == nullptr) return;
      for_each_chunk(piece, offset, map.swizzle, [&](std::size_t to, std::size_t chunk, std::size_t bytes) {
        std::memcpy(piece.global + to, block.shared.data() + chunk, bytes);
      });
    });
  });
}

void Thread::commit_stores() {
  ++open_store_group_;
}

void Thread::wait_stores(std::uint32_t groups_left) {
  const std::uint32_t committed = open_store_group_ - 1;
  const std::uint32_t done = committed > groups_left ? committed - groups_left : 0;
  while (!stores_.empty() && stores_.front().group <= done) {
    if (const auto act = std::exchange(*stores_.front().work, nullptr)) act();
    warp.clock.raise(2 * block.cluster.warps + warp.agent, stores_.front().epoch);
    stores_.pop_front();
  }
}

}  // namespace saccade::emu
