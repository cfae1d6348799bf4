#include "emu/shadow.h"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>

namespace saccade::emu {
namespace {

constexpr std::uint32_t kLanes = 32;
constexpr std::uint32_t kLaneBits = 6;
constexpr std::uint32_t kLaneMask = (1U << kLaneBits) - 1;
constexpr std::uint32_t kManyLanes = kLaneMask;

}  // namespace

std::string to_string(const Where& where) {
  std::string_view file = where.file;
  if (const auto root = file.rfind("src/"); root != std::string_view::npos) {
    file.remove_prefix(root);
  } else if (const auto tests = file.rfind("tests/"); tests != std::string_view::npos) {
    file.remove_prefix(tests);
  }
  return fmt::format("{}:{}", file, where.line);
}

Shadow::Shadow(std::size_t bytes, std::uint32_t warps, std::span<const std::uint32_t> fences)
    : warps_(warps),
      fences_(fences),
      cells_((bytes + kCellBytes - 1) / kCellBytes),
      places_(std::size_t{kReaders} * warps) {}

std::string Shadow::name_of(std::uint32_t agent, std::uint32_t thread) const {
  if (agent < warps_) return fmt::format("thread {}", thread);
  if (agent < 2 * warps_) return fmt::format("a product of the warpgroup from warp {} on", agent - warps_);
  if (agent < 3 * warps_) return fmt::format("a bulk store of warp {}", agent - 2 * warps_);
  return fmt::format("an asynchronous copy of thread {}", thread);
}

Complaint Shadow::after_writer(const Cell& cell, const Actor& actor, const char* verb,
                               bool asynchronous) const {
  if ((cell.flags & kWritten) == 0 && (cell.flags & kInFlight) == 0) return {};
  const auto who = [&] {
    return fmt::format("{} wrote at {}", name_of(cell.agent, cell.thread), to_string(cell.where));
  };
  if ((cell.flags & kInFlight) != 0) {
    return fmt::format("{} bytes still in flight: {}", verb, who());
  }
  if (cell.agent == actor.agent) {
    if (cell.thread != actor.thread && cell.epoch == actor.epoch) {
      return fmt::format("{} what {}, with no warp barrier between", verb, who());
    }
  } else if ((*actor.clock)[cell.agent] < cell.epoch) {
    return fmt::format("{} what {}, with nothing that orders the two", verb, who());
  }
  if (asynchronous && (cell.flags & kBulk) == 0 && fences_[cell.thread] <= cell.stamp) {
    return fmt::format("the asynchronous proxy {} what {}, with no proxy fence after the write", verb, who());
  }
  return {};
}

Complaint Shadow::after_readers(std::size_t index, const Actor& actor) const {
  if ((cells_[index].flags & kRead) == 0) return {};
  for (const auto& [agent, last] : readers_) {
    if (last[index] == 0) continue;
    const std::uint32_t epoch = last[index] >> kLaneBits;
    const std::uint32_t lane = last[index] & kLaneMask;
    const bool own = agent == actor.agent;
    const bool ordered =
        own ? epoch < actor.epoch || lane == actor.thread % kLanes + 1 : (*actor.clock)[agent] >= epoch;
    if (!ordered) {
      const std::string who = agent < warps_ ? fmt::format("warp {}", agent) : name_of(agent, 0);
      return fmt::format("overwrites what {} reads, with nothing that orders the two", who);
    }
  }
  return {};
}

void Shadow::forget_readers(std::size_t index) {
  if ((cells_[index].flags & kRead) == 0) return;
  for (Reader& reader : readers_) reader.last[index] = 0;
}

std::vector<std::uint32_t>& Shadow::last_reads(std::uint32_t agent) {
  if (places_[agent] == 0) {
    readers_.push_back({agent, std::vector<std::uint32_t>(cells_.size())});
    places_[agent] = static_cast<std::uint32_t>(readers_.size());
  }
  return readers_[places_[agent] - 1].last;
}

Complaint Shadow::read(std::size_t offset, std::size_t bytes, const Actor& actor) {
  std::vector<std::uint32_t>& last = last_reads(actor.agent);
  for (std::size_t n = offset / kCellBytes; n * kCellBytes < offset + bytes; ++n) {
    Cell& cell = cells_[n];
    if ((cell.flags & kBarrier) != 0) return "reads the bytes of a barrier";
    if (Complaint complaint = after_writer(cell, actor, "reads", actor.agent >= warps_); !complaint.empty())
      return complaint;
    if ((cell.flags & kWritten) == 0) return "reads shared memory that nobody has written";
    cell.flags |= kRead;
    std::uint32_t& reader = last[n];
    const std::uint32_t lane = actor.thread % kLanes + 1;
    const bool again = reader >> kLaneBits == actor.epoch && reader != 0 && (reader & kLaneMask) != lane;
    reader = actor.epoch << kLaneBits | (again ? kManyLanes : lane);
  }
  return {};
}

Complaint Shadow::write(std::size_t offset, std::size_t bytes, const Actor& actor) {
  for (std::size_t n = offset / kCellBytes; n * kCellBytes < offset + bytes; ++n) {
    Cell& cell = cells_[n];
    if ((cell.flags & kBarrier) != 0) return "overwrites the bytes of a barrier";
    if (Complaint complaint = after_writer(cell, actor, "overwrites", false); !complaint.empty())
      return complaint;
    if (Complaint complaint = after_readers(n, actor); !complaint.empty()) return complaint;
    forget_readers(n);
    cell = {actor.agent, actor.epoch, actor.stamp, actor.thread, actor.where, kWritten};
  }
  return {};
}

Complaint Shadow::begin_copy(std::size_t offset, std::size_t bytes, const Actor& issuer, std::uint32_t agent,
                             std::uint32_t epoch, bool bulk) {
  for (std::size_t n = offset / kCellBytes; n * kCellBytes < offset + bytes; ++n) {
    Cell& cell = cells_[n];
    if ((cell.flags & kBarrier) != 0) return "copies over the bytes of a barrier";
    if (Complaint complaint = after_writer(cell, issuer, "copies over", bulk); !complaint.empty())
      return complaint;
    if (Complaint complaint = after_readers(n, issuer); !complaint.empty()) return complaint;
    forget_readers(n);
    const auto flags = static_cast<std::uint8_t>(bulk ? kInFlight | kBulk : kInFlight);
    cell = {agent, epoch, issuer.stamp, issuer.thread, issuer.where, flags};
  }
  return {};
}

void Shadow::end_copy(std::size_t offset, std::size_t bytes, std::uint32_t epoch, std::uint32_t stamp) {
  for (std::size_t n = offset / kCellBytes; n * kCellBytes < offset + bytes; ++n) {
    cells_[n].epoch = epoch;
    cells_[n].stamp = stamp;
    cells_[n].flags = static_cast<std::uint8_t>((cells_[n].flags & kBulk) | kWritten);
  }
}

void Shadow::set_barrier(std::size_t offset, std::size_t bytes, bool barrier) {
  for (std::size_t n = offset / kCellBytes; n * kCellBytes < offset + bytes; ++n) {
    forget_readers(n);
    cells_[n].flags = barrier ? kBarrier : 0;
  }
}

}  // namespace saccade::emu
