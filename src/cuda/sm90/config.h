// What an instance of the family is made for: the kernel's template argument, the planner's table and the
// text of --config are this one struct.
#pragma once

#include <cstddef>

#include "cuda/launch/overlap.h"

namespace saccade::sm90 {

/// A block has row_groups x key_groups warpgroups that compute, and a warp (or a warpgroup, which gives its
/// registers away) that starts copies. Warpgroups of one row group have the same query rows, those of one
/// key group the same tiles of keys, through a ring of their own. The blocks of a cluster share out keys
/// again. Where keys are shared out (to two key groups at most), the parts of each row are added up in the
/// end.
struct Config {
  int dim = 64;  ///< of keys and values, a multiple of 16; they may have fewer: zeros are filled in
  int row_groups = 2;
  int key_groups = 1;
  int cluster = 1;
  int tile_keys = 128;
  int stages = 2;
  int general = 0;     ///< 1: scores are changed by softcap, ALiBi, masks and biases, and there may be sinks
  int warp_rows = 16;  ///< query rows of a warp: 16 or, with half of every product for nothing, 8
  int ragged = 0;      ///< 1: sequences may have lengths of their own

  /// Whether weights are computed before it is known that none is too large (tile/warpgroup_rows.h): pays up
  /// to head dim 128, where it saves power (5 to 8%), but for the few tiles of blocks that do not stay.
  [[nodiscard]] constexpr bool bold() const {
    return general == 0 && (dim <= 96 || (dim <= 128 && (stays() || blocks() > 1)));
  }
  /// Whether scores of the next tile are computed while weights of this one are (tile/warpgroup_rows.h): pays
  /// (4 to 6% with 8 tiles a warpgroup, at head dim 64) where there are registers for both, and a third
  /// stage.
  [[nodiscard]] constexpr bool ahead() const {
    return general == 0 && ragged == 0 && dim == 64 && tile_keys == 64 && warp_rows == 16 && !stays() &&
           groups() < 3 && stages > 2;
  }
  /// Whether tiles after the first look for rows that have no base yet, to sample them: costs 0.5 to 3%, but
  /// with four warpgroups gains 1.6% at 4x16x512x64, and makes no difference where tiles are many.
  [[nodiscard]] constexpr bool samples_later() const { return groups() > 3; }
  /// Whether queries are kept in registers, so that shared memory is read for keys alone: pays (1 to 3%)
  /// where they find room.
  [[nodiscard]] constexpr bool holds_queries() const {
    if (general != 0 || ragged != 0 || warp_rows != 16 || single()) return false;
    if (!stays()) return dim == 64 && (row_groups == 1 || ahead());
    return dim == 128 && hands_over() && computer_registers() == kMostRegisters;
  }
  /// Warpgroups have one tile of keys at most, and make use of there being no other (tile/warpgroup_rows.h).
  [[nodiscard]] constexpr bool single() const { return stages == 1; }
  [[nodiscard]] constexpr int slices() const { return tile_keys / 64; }     ///< of that one
  [[nodiscard]] constexpr int group_rows() const { return 4 * warp_rows; }  ///< of a warpgroup
  /// In shared memory: products read more rows than they are for where warps have eight.
  [[nodiscard]] constexpr int query_rows() const { return warp_rows == 16 ? 64 : 40; }
  [[nodiscard]] constexpr int rows() const { return group_rows() * row_groups; }
  [[nodiscard]] constexpr int groups() const { return row_groups * key_groups; }
  /// Parts that the keys of a row are shared out in.
  [[nodiscard]] constexpr int parts() const { return key_groups * cluster; }
  /// Blocks stay for one tile of queries after the other.
  [[nodiscard]] constexpr bool stays() const { return parts() == 1; }
  /// Which one comes next they draw when they are done: only they know how much there is to do.
  [[nodiscard]] constexpr bool draws() const { return stays() && ragged != 0; }
  static constexpr int kMostRegisters = 240;
  static constexpr int kDrawBits = 24;  ///< of the number of one
  static constexpr int kMostSplit = 16;
  /// Up to so many clusters may share out the keys of a tile of queries once more, and add up in global
  /// memory.
  [[nodiscard]] constexpr bool splits() const { return cluster == 8 && warp_rows < 16; }
  /// Warpgroups pass over tiles that only other rows of the block need.
  [[nodiscard]] constexpr bool skips() const { return stays() && row_groups > 1; }
  /// The warp that starts copies has three more to give registers away with.
  [[nodiscard]] constexpr bool hands_over() const { return groups() > (stays() ? 1 : 3); }
  /// Blocks that a multiprocessor should have room for.
  [[nodiscard]] constexpr int blocks() const {
    if (groups() > 1 || dim > 128) return 1;
    return stays() && dim <= 64 ? 3 : 2;
  }
  [[nodiscard]] constexpr int threads() const { return 128 * groups() + (hands_over() ? 128 : 32); }
  /// Registers of a thread: at its start, when it starts copies, when it computes.
  [[nodiscard]] constexpr int registers() const { return 65536 / threads() / 8 * 8; }
  [[nodiscard]] constexpr int loader_registers() const { return groups() > 2 ? 32 : draws() ? 40 : 24; }
  [[nodiscard]] constexpr int computer_registers() const {
    const int all = (threads() * registers() - 128 * loader_registers()) / (128 * groups()) / 8 * 8;
    return all > kMostRegisters ? kMostRegisters : all;
  }

  // Bytes of shared memory, in this order.
  [[nodiscard]] constexpr int boxes() const { return (dim + 63) / 64; }  ///< of 64 columns
  [[nodiscard]] constexpr int queries_bytes() const {
    return query_rows() * boxes() * 128;
  }  ///< of a row group
  [[nodiscard]] constexpr int tile_bytes() const { return tile_keys * boxes() * 128; }
  [[nodiscard]] constexpr int ring_bytes() const { return stages * 2 * tile_bytes(); }  ///< of a key group
  // Parts of a row are added up in steps: in each, two warps of the same rows send each other half of the
  // columns they have, key groups of a block first, then blocks.
  [[nodiscard]] constexpr int near_steps() const { return log2(key_groups); }
  [[nodiscard]] constexpr int far_steps() const { return log2(cluster); }
  [[nodiscard]] constexpr int steps() const { return near_steps() + far_steps(); }
  /// Sums that a lane gets in a step: half of what it has, unless those would be too few for 16 bytes.
  [[nodiscard]] constexpr int sums(int step) const {
    const int half = dim * warp_rows / 64 >> step;
    return half > 4 ? half : 4;
  }
  /// A bit for each step in which both get all, so that one of them has nothing to write.
  [[nodiscard]] constexpr int silent() const {
    int bits = 0;
    for (int step = 1; step < steps(); ++step) bits |= (sums(step) == sums(step - 1) ? 1 : 0) << step;
    return bits;
  }
  /// With the states of 16 rows in front.
  [[nodiscard]] constexpr int message_bytes(int step) const { return 16 * 8 + 32 * 4 * sums(step); }
  /// Of a warp, before a step's message.
  [[nodiscard]] constexpr int message_at(int step) const {
    return step == 0 ? 0 : message_at(step - 1) + message_bytes(step - 1);
  }
  [[nodiscard]] constexpr int inbox_bytes() const { return message_at(steps()); }
  /// Warps of a cluster that compute.
  [[nodiscard]] constexpr int cluster_warps() const { return 4 * groups() * cluster; }
  /// Of workspace: where `split` clusters share each of so many tiles of queries, every warp leaves a message
  /// like the last one, and counts; where tiles are drawn, a counter.
  [[nodiscard]] constexpr std::size_t workspace_bytes(std::size_t tiles, int split) const {
    if (split == 1) return draws() ? 8 : 0;
    const auto bytes = static_cast<std::size_t>(split * message_bytes(steps() - 1) + 8);
    return tiles * static_cast<std::size_t>(cluster_warps()) * bytes;
  }
  [[nodiscard]] constexpr int barriers() const {
    return 2 * row_groups + 4 * key_groups * stages + 4 * groups() * far_steps();
  }
  [[nodiscard]] constexpr int barriers_at() const {
    return row_groups * queries_bytes() + key_groups * ring_bytes() + 4 * groups() * inbox_bytes();
  }
  [[nodiscard]] constexpr int notices_at() const { return (barriers_at() + 8 * barriers() + 15) / 16 * 16; }
  [[nodiscard]] constexpr std::size_t shared_bytes() const {
    const int notices = 32 * row_groups + 16;
    return static_cast<std::size_t>(ragged != 0 ? notices_at() + notices : barriers_at() + 8 * barriers());
  }
  friend constexpr bool operator==(const Config&, const Config&) = default;

 private:
  static constexpr int log2(int n) { return n == 1 ? 0 : 1 + log2(n / 2); }
};

/// What else a launch depends on.
struct Launch {
  int multiprocessors = 1;
  int split = 1;  ///< clusters that share the keys of a tile of queries
  std::byte* workspace = nullptr;
  Overlap overlap = Overlap::never;
};

/// A configuration as a type: nvcc cannot name kernels that have a struct for a template argument.
template <int... kNumbers>
struct Instance {
  static constexpr Config kConfig{kNumbers...};
};

}  // namespace saccade::sm90
