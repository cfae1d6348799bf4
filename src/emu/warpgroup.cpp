// Warpgroups: where their threads meet, the matrix products they start, and their registers.
#include "emu/warpgroup.h"

#include <bit>
#include <fmt/format.h>
#include <string_view>

#include "emu/thread.h"

namespace saccade::emu {

Warpgroup* Thread::arrive_warpgroup(const char* name, void* argument, const Where& where) {
  const std::uint32_t first = index / kWarpgroupThreads * kWarpgroupThreads;
  require(first + kWarpgroupThreads <= block.cluster.shape.block,
          "a warpgroup instruction of a warp whose four the block has not", where);
  Warpgroup& group = warpgroup();
  if (group.arrived == 0) {
    group.name = name;
    group.where = where;
  } else if (std::string_view(group.name) != name || !(group.where == where)) {
    fail(fmt::format("{}, while other threads of its warpgroup are at {} ({})", name, group.name,
                     to_string(group.where)),
         where);
  }
  group.arguments[index - first] = argument;
  if (++group.arrived < kWarpgroupThreads) {
    group.waiting.push_back(this);
    wait(name, where);
    return nullptr;
  }
  return &group;
}

void Thread::leave_warpgroup(Warpgroup& group) {
  group.arrived = 0;
  block.cluster.wake_all(group.waiting);
}

namespace {

constexpr std::size_t kRows = 64;
constexpr std::size_t kDepth = 16;
constexpr std::size_t kMostColumns = 256;
constexpr float kPoison = std::bit_cast<float>(~std::uint32_t{0});

/// The fields of a shared memory matrix descriptor; offsets in bytes.
struct Descriptor {
  explicit Descriptor(std::uint64_t bits)
      : start((bits & 0x3fff) << 4),
        leading((bits >> 16 & 0x3fff) << 4),
        stride((bits >> 32 & 0x3fff) << 4),
        base(static_cast<std::uint32_t>(bits >> 49 & 7)),
        mode(static_cast<std::uint32_t>(bits >> 62)) {}
  std::size_t start, leading, stride;
  std::uint32_t base, mode;

  [[nodiscard]] std::uint32_t swizzle() const {
    constexpr std::array<std::uint32_t, 4> kBytes = {0, 128, 64, 32};
    return kBytes[mode];
  }
  /// Offset in shared memory of the 16-byte chunk that holds element (index, k), index along M or N.
  [[nodiscard]] std::size_t chunk(std::size_t index, std::size_t k, bool transposed) const {
    const std::size_t span = swizzle();
    std::size_t offset = start;
    if (!transposed) {  // K-major: eight rows make a core; 8 numbers along K a chunk
      offset += index / 8 * stride;
      offset += span == 0 ? index % 8 * 16 + k / 8 * leading : index % 8 * span + k / 8 * 16;
    } else if (span == 0) {  // M- or N-major: eight k make a core; 8 numbers along M or N a chunk
      offset += index / 8 * stride + k % 8 * 16 + k / 8 * leading;
    } else {
      const std::size_t chunks = span / 16;
      offset += index / 8 % chunks * 16 + index / 8 / chunks * leading + k % 8 * span + k / 8 * stride;
    }
    return swizzled(offset, swizzle());
  }
  /// Offset of the element itself.
  [[nodiscard]] std::size_t element(std::size_t index, std::size_t k, bool transposed) const {
    return chunk(index, k, transposed) + (transposed ? index : k) % 8 * 2;
  }
};

/// The matrix product of a whole warpgroup, with copies of what the threads passed.
struct WholeProduct {
  MatrixProduct common;
  std::vector<std::array<std::uint32_t, 4>> a;  ///< of each thread, when in registers
  std::array<std::vector<float>*, kWarpgroupThreads> d{};
  std::span<const std::byte> shared;

  [[nodiscard]] float number(std::size_t offset) const {
    std::uint16_t bits = 0;
    std::memcpy(&bits, shared.data() + offset, sizeof bits);
    return common.to_float(bits);
  }
  void compute() const;
};

void WholeProduct::compute() const {
  const std::size_t columns = common.columns;
  std::array<std::array<float, kDepth>, kRows> left;
  std::array<std::array<float, kMostColumns>, kDepth> right;
  if (common.a_in_registers) {
    for (std::size_t thread = 0; thread < kWarpgroupThreads; ++thread) {
      const std::size_t lane = thread % kWarpThreads;
      for (std::size_t n = 0; n < 8; ++n) {
        const std::size_t row = thread / kWarpThreads * 16 + lane / 4 + n / 2 % 2 * 8;
        const std::size_t k = lane % 4 * 2 + n / 4 * 8 + n % 2;
        left[row][k] = common.to_float(static_cast<std::uint16_t>(a[thread][n / 2] >> (16 * (n % 2))));
      }
    }
  } else {
    const Descriptor descriptor(common.a_descriptor);
    for (std::size_t row = 0; row < kRows; ++row) {
      for (std::size_t k = 0; k < kDepth; ++k)
        left[row][k] = number(descriptor.element(row, k, common.a_transposed));
    }
  }
  const Descriptor descriptor(common.b_descriptor);
  for (std::size_t k = 0; k < kDepth; ++k) {
    for (std::size_t column = 0; column < columns; ++column)
      right[k][column] = number(descriptor.element(column, k, common.b_transposed));
  }
  std::array<float, kMostColumns> sums;
  for (std::size_t row = 0; row < kRows; ++row) {
    std::fill_n(sums.begin(), columns, 0.0F);
    for (std::size_t k = 0; k < kDepth; ++k) {
      for (std::size_t column = 0; column < columns; ++column)
        sums[column] += left[row][k] * right[k][column];
    }
    for (std::size_t column = 0; column < columns; ++column) {
      const std::size_t thread = row / 16 * kWarpThreads + row % 8 * 4 + column % 8 / 2;
      float& to = (*d[thread])[column / 8 * 4 + row % 16 / 8 * 2 + column % 2];
      to = common.accumulate ? to + sums[column] : sums[column];
    }
  }
}

bool same_instruction(const MatrixProduct& x, const MatrixProduct& y) {
  return x.columns == y.columns && x.accumulate == y.accumulate && x.a_in_registers == y.a_in_registers &&
         x.a_descriptor == y.a_descriptor && x.a_transposed == y.a_transposed &&
         x.b_descriptor == y.b_descriptor && x.b_transposed == y.b_transposed && x.to_float == y.to_float;
}

void check_descriptor(const Thread& thread, const Descriptor& descriptor, const Where& where) {
  thread.require(descriptor.base == 0, "a matrix descriptor with a base offset", where);
  thread.require(descriptor.start < thread.block.shared.size(),
                 "a matrix descriptor that starts past the end of shared memory", where);
}

}  // namespace

void Thread::fence_products(const Where& where) {
  int nothing = 0;
  meet("wgmma.fence", kAllLanes, nothing, where, [](auto&) {});
  products_fenced_ = true;
}

void Thread::multiply(const MatrixProduct& product, const Where& where) {
  require(products_fenced_, "wgmma with no wgmma.fence since the thread used the registers", where);
  MatrixProduct mine = product;
  meet_warpgroup("wgmma", mine, where,
                 [&](Warpgroup& group, const auto& parts) { issue(group, parts, where); });
}

void Thread::issue(Warpgroup& group, const std::array<MatrixProduct*, kWarpgroupThreads>& parts,
                   const Where& where) {
  Cluster& cluster = block.cluster;
  const std::uint32_t first = index / kWarpgroupThreads * kWarpgroupThreads;
  const std::uint32_t first_warp = first / kWarpThreads;
  WholeProduct whole{*parts[0], {}, {}, block.shared};
  cluster.counters.matrix_flops += 2 * kRows * kDepth * whole.common.columns;
  for (std::uint32_t n = 0; n < kWarpgroupThreads; ++n) {
    Thread& thread = *block.threads[first + n];
    const MatrixProduct& part = *parts[n];
    require(same_instruction(part, whole.common), "the threads of a warpgroup disagree on a product", where);
    require(thread.open_product_group_ == open_product_group_,
            "the threads of a warpgroup have committed different numbers of groups", where);
    const std::size_t count = part.columns / 2;
    const auto [found, fresh] = thread.accumulators_.try_emplace(part.d);
    Accumulators& accumulators = found->second;
    if (fresh) {
      accumulators.values.assign(part.d, part.d + count);
      std::fill_n(part.d, count, kPoison);
    }
    require(accumulators.values.size() == count, "products of different widths share accumulators", where);
    accumulators.group = open_product_group_;
    whole.d[n] = &accumulators.values;
    if (part.a_in_registers) whole.a.push_back(part.a);
  }

  // Each warp reads its own rows of A, and all of them the whole of B.
  const std::uint32_t agent = cluster.warps + block.warps[first_warp]->agent;
  VectorClock common = block.warps[first_warp]->clock;
  for (std::uint32_t n = 1; n < kWarpgroupWarps; ++n) common.keep_common(block.warps[first_warp + n]->clock);
  const auto read = [&](const Descriptor& descriptor, std::size_t begin, std::size_t end, bool transposed,
                        const VectorClock& clock) {
    check_descriptor(*this, descriptor, where);
    for (std::size_t n = begin; n < end; n += transposed ? 8 : 1) {
      for (std::size_t k = 0; k < kDepth; k += transposed ? 1 : 8) {
        read_asynchronously(block.shared.data() + descriptor.chunk(n, k, transposed), 16, agent,
                            open_product_group_, clock, where);
      }
    }
  };
  if (!whole.common.a_in_registers) {
    for (std::uint32_t n = 0; n < kWarpgroupWarps; ++n) {
      read(Descriptor(whole.common.a_descriptor), 16 * n, 16 * n + 16, whole.common.a_transposed,
           block.warps[first_warp + n]->clock);
    }
  }
  read(Descriptor(whole.common.b_descriptor), 0, whole.common.columns, whole.common.b_transposed, common);

  const std::uint64_t number = ++group.issued;
  group.products.push_back({number, open_product_group_, [this, whole = std::move(whole), where] {
                              require(block.live > 0, "a product reads the memory of a block that has ended",
                                      where);
                              whole.compute();
                            }});
  cluster.defer([&group, number] {
    while (!group.products.empty() && group.products.front().number <= number) {
      group.products.front().compute();
      group.products.pop_front();
    }
  });
}

void Thread::commit_products(const Where& where) {
  int nothing = 0;
  meet("wgmma.commit_group", kAllLanes, nothing, where, [](auto&) {});
  ++open_product_group_;
}

void Thread::wait_products(std::uint32_t groups_left, const Where& where) {
  int nothing = 0;
  meet("wgmma.wait_group", kAllLanes, nothing, where, [](auto&) {});
  const std::uint32_t committed = open_product_group_ - 1;
  const std::uint32_t done = committed > groups_left ? committed - groups_left : 0;
  Warpgroup& group = warpgroup();
  while (!group.products.empty() && group.products.front().group <= done) {
    group.products.front().compute();
    group.products.pop_front();
  }
  for (auto entry = accumulators_.begin(); entry != accumulators_.end();) {
    const auto& [registers, accumulators] = *entry;
    if (accumulators.group > done) {
      ++entry;
      continue;
    }
    for (std::size_t n = 0; n < accumulators.values.size(); ++n) {
      require(std::bit_cast<std::uint32_t>(registers[n]) == ~std::uint32_t{0},
              "accumulators were written while a product had them", where);
      registers[n] = accumulators.values[n];
    }
    entry = accumulators_.erase(entry);
    products_fenced_ = false;
  }
  const std::uint32_t first_warp = index / kWarpgroupThreads * kWarpgroupWarps;
  warp.clock.raise(block.cluster.warps + block.warps[first_warp]->agent, done);
}

void Thread::set_registers(std::uint32_t count, bool more, const Where& where) {
  require(count >= 24 && count <= 256 && count % 8 == 0, "setmaxnreg takes a multiple of 8 from 24 to 256",
          where);
  meet_warpgroup("setmaxnreg", count, where, [&](Warpgroup&, const auto& counts) {
    for (const std::uint32_t* theirs : counts)
      require(*theirs == count, "the threads of a warpgroup disagree on their registers", where);
  });
  Warpgroup& group = warpgroup();
  if (block.cluster.shape.registers == 0 || index % kWarpgroupThreads != 0) return;
  const auto change = (std::int64_t{count} - group.registers) * kWarpgroupThreads;
  require(more ? change >= 0 : change <= 0,
          more ? "setmaxnreg.inc to fewer registers" : "setmaxnreg.dec to more registers", where);
  while (change > block.free_registers) {
    block.register_waiters.push_back(this);
    wait("registers that another warpgroup gives back", where);
  }
  block.free_registers -= change;
  group.registers = count;
  block.cluster.wake_all(block.register_waiters);
}

}  // namespace saccade::emu
