#include "emu/counters.h"

#include <algorithm>

namespace saccade::emu {

std::string_view to_string(Traffic traffic) {
  switch (traffic) {
    case Traffic::shared_load:
      return "shared load";
    case Traffic::shared_store:
      return "shared store";
    case Traffic::global_load:
      return "global load";
    case Traffic::global_store:
      break;
  }
  return "global store";
}

void Counters::add(const Counters& other) {
  blocks += other.blocks;
  matrix_flops += other.matrix_flops;
  mufu += other.mufu;
  warp_barriers += other.warp_barriers;
  block_barriers += other.block_barriers;
  cluster_barriers += other.cluster_barriers;
  mbarrier_arrivals += other.mbarrier_arrivals;
  mbarrier_waits += other.mbarrier_waits;
  copied_bytes += other.copied_bytes;
  bulk_bytes += other.bulk_bytes;
  shuffles += other.shuffles;
  for (const auto& [key, counts] : other.lines) {
    LineCounts& mine = lines[key];
    mine.instructions += counts.instructions;
    mine.bytes += counts.bytes;
    mine.transactions += counts.transactions;
    mine.ideal += counts.ideal;
  }
}

LineCounts Counters::total(Traffic traffic) const {
  LineCounts sum;
  for (const auto& [key, counts] : lines) {
    if (std::get<Traffic>(key) != traffic) continue;
    sum.instructions += counts.instructions;
    sum.bytes += counts.bytes;
    sum.transactions += counts.transactions;
    sum.ideal += counts.ideal;
  }
  return sum;
}

std::uint64_t Counters::bank_conflicts() const {
  std::uint64_t extra = 0;
  for (const Traffic traffic : {Traffic::shared_load, Traffic::shared_store}) {
    const LineCounts sum = total(traffic);
    extra += sum.transactions - sum.ideal;
  }
  return extra;
}

namespace {

/// Calls f with the lanes that go over the banks together: a warp for up to 4 bytes a lane, half of one for
/// 8, a quarter for 16.
template <class F>
void for_each_phase(std::size_t bytes, F&& f) {
  const int lanes = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  for (int first = 0; first < 32; first += lanes) f(first, first + lanes);
}

/// The distinct words of one phase, sorted.
std::vector<std::size_t> words_of(const std::array<std::size_t, 32>& offsets, std::size_t bytes, int first,
                                  int last) {
  std::vector<std::size_t> words;
  for (int lane = first; lane < last; ++lane) {
    const std::size_t offset = offsets[static_cast<std::size_t>(lane)];
    if (offset == kNoAddress) continue;
    for (std::size_t word = offset / 4; word * 4 < offset + bytes; ++word) words.push_back(word);
  }
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  return words;
}

}  // namespace

std::uint32_t bank_passes(const std::array<std::size_t, 32>& offsets, std::size_t bytes) {
  std::uint32_t passes = 0;
  for_each_phase(bytes, [&](int first, int last) {
    std::array<std::uint32_t, 32> in_bank{};
    for (const std::size_t word : words_of(offsets, bytes, first, last)) ++in_bank[word % 32];
    passes += *std::max_element(in_bank.begin(), in_bank.end());
  });
  return passes;
}

std::uint32_t fewest_passes(const std::array<std::size_t, 32>& offsets, std::size_t bytes) {
  std::uint32_t passes = 0;
  for_each_phase(bytes, [&](int first, int last) {
    passes += static_cast<std::uint32_t>((words_of(offsets, bytes, first, last).size() + 31) / 32);
  });
  return passes;
}

std::uint32_t sectors(const std::array<std::size_t, 32>& addresses, std::size_t bytes) {
  std::vector<std::size_t> touched;
  for (const std::size_t address : addresses) {
    if (address == kNoAddress) continue;
    for (std::size_t sector = address / 32; sector * 32 < address + bytes; ++sector)
      touched.push_back(sector);
  }
  std::sort(touched.begin(), touched.end());
  return static_cast<std::uint32_t>(std::unique(touched.begin(), touched.end()) - touched.begin());
}

void WarpTraffic::count(Traffic traffic, const Instruction& instruction, LineCounts& counts) {
  ++counts.instructions;
  counts.bytes += static_cast<std::uint64_t>(instruction.lanes) * instruction.bytes;
  if (traffic == Traffic::shared_load || traffic == Traffic::shared_store) {
    counts.transactions += bank_passes(instruction.addresses, instruction.bytes);
    counts.ideal += fewest_passes(instruction.addresses, instruction.bytes);
  } else {
    counts.transactions += sectors(instruction.addresses, instruction.bytes);
    counts.ideal += (static_cast<std::uint64_t>(instruction.lanes) * instruction.bytes + 31) / 32;
  }
}

void WarpTraffic::access(int lane, Traffic traffic, std::size_t address, std::size_t bytes,
                         const Where& where) {
  Line& line = lines_[{where.file, where.line, traffic}];
  const std::uint64_t number = line.passed[static_cast<std::size_t>(lane)]++;
  while (number - line.first >= line.open.size()) {
    Instruction instruction{{}, bytes, 0};
    instruction.addresses.fill(kNoAddress);
    line.open.push_back(instruction);
  }
  Instruction& instruction = line.open[number - line.first];
  instruction.addresses[static_cast<std::size_t>(lane)] = address;
  ++instruction.lanes;
  // Whole instructions at the front are done; counting them keeps the list short.
  std::size_t whole = 0;
  while (whole < line.open.size() && line.open[whole].lanes == 32) {
    count(traffic, line.open[whole++], line.counts);
  }
  if (whole > 0) {
    line.open.erase(line.open.begin(), line.open.begin() + static_cast<std::ptrdiff_t>(whole));
    line.first += whole;
  }
}

void WarpTraffic::flush(Counters& counters) {
  for (auto& [key, line] : lines_) {
    for (const Instruction& instruction : line.open) count(key.traffic, instruction, line.counts);
    LineCounts& sum = counters.lines[{std::string(key.file), key.line, key.traffic}];
    sum.instructions += line.counts.instructions;
    sum.bytes += line.counts.bytes;
    sum.transactions += line.counts.transactions;
    sum.ideal += line.counts.ideal;
  }
  lines_.clear();
}

}  // namespace saccade::emu
