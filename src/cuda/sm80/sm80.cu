// The family's row in the registry: which problems it takes, and which instance serves one.
#include <limits>

#include "core/heads_as_rows.h"
#include "cuda/launch/accept.h"
#include "cuda/launch/bind.h"
#include "cuda/launch/instances.h"
#include "cuda/sm80/sm80.h"
#include "cuda/sm80/split.h"
#include "cuda/tile/keys.h"
#include "cuda/tile/tensor.h"

namespace saccade::SACCADE_MACHINE {
namespace sm80 {

/// Defined in the sources that the build makes of instances.def.
template <class Instance>
Status launch_instance(const Problem& p, const Tensors& t, const Split& split, const Target& target);

namespace {

constexpr char kName[] = "sm80";

struct Entry {
  Config config;
  Status (*launch)(const Problem&, const Tensors&, const Split&, const Target&);
};

#define SACCADE_SM80(...)                              \
  Entry{saccade::sm80::Instance<__VA_ARGS__>::kConfig, \
        &launch_instance<saccade::sm80::Instance<__VA_ARGS__>>},
const Entry kEntries[] = {
#include "cuda/sm80/instances.def"
};
#undef SACCADE_SM80

constexpr Setting<Config> kSettings[] = {{"dim", &Config::dim},
                                         {"row_warps", &Config::row_warps},
                                         {"row_tiles", &Config::row_tiles},
                                         {"key_groups", &Config::key_groups},
                                         {"tile_keys", &Config::tile_keys},
                                         {"score_keys", &Config::score_keys},
                                         {"stages", &Config::stages},
                                         {"blocks", &Config::blocks},
                                         {"general", &Config::general, 0}};

std::int64_t blocks_of(const Problem& p, const Config& c) {
  return p.batch * p.heads_q * ((p.len_q + c.rows() - 1) / c.rows());
}

/// Whether plain instances can count where the rows of q, k, v and o are.
bool is_near(const Problem& p) {
  const auto fits = [&](const Strides& strides, std::int64_t heads, std::int64_t rows) {
    return tile::NearTensor4<std::uint16_t>::fits(strides, p.batch, heads, rows);
  };
  return fits(p.q, p.heads_q, p.len_q) && fits(p.o, p.heads_q, p.len_q) && fits(p.k, p.heads_kv, p.len_kv) &&
         fits(p.v, p.heads_kv, p.len_kv);
}

/// Why the instance cannot compute the problem.
std::optional<std::string> refusal(const Problem& p, const Machine& machine, const Config& c) {
  const std::int64_t dim = std::max(p.dim_qk, p.dim_v);
  if (c.general != 0 ? c.dim < dim : c.dim != p.dim_qk || c.dim != p.dim_v) {
    return "it is made for head dim " + std::to_string(c.dim);
  }
  if (c.general == 0 && !has_plain_scores(p)) return "it has no softcap, ALiBi, sinks or masks";
  if (c.general == 0 && !has_dense_tensors(p)) return "it takes dense tensors";
  if (c.general == 0 && (machine.pointer_alignment % 16 != 0 || !has_aligned_rows(p)))
    return "it moves 16 bytes at a time";
  if (c.general == 0 && !is_near(p)) return "it counts what is in a tensor in 32 bits";
  if (c.holds_all() && p.len_kv > std::int64_t{c.key_groups} * c.tile_keys)
    return "it has room for one tile of keys a group";
  return refuse_shared_memory(c.shared_bytes(), machine);
}

/// Blocks that a multiprocessor has room for, of those the instance was compiled for.
std::int64_t resident_of(const Machine& machine, const Config& c) {
  constexpr std::size_t kReserved = 1 << 10;  // of shared memory, for each block
  const std::size_t fit = (machine.shared_bytes_per_block + kReserved) / (c.shared_bytes() + kReserved);
  return std::min<std::int64_t>(c.blocks, static_cast<std::int64_t>(fit));
}

/// Whether blocks of 16 rows all find room at once, two to a multiprocessor, and a causal mask makes most of
/// them short: then they are done 3 to 9% sooner than half as many with 32 rows. Where keys are many, or do
/// not come in whole tiles, they are not; and 512 keys are weighed sooner all at once, by eight groups.
bool suits_pairs(const Problem& p, const Machine& machine, const Config& c) {
  constexpr std::int64_t kMostKeys = 448;
  const std::int64_t blocks = blocks_of(p, c);
  return p.causal && c.rows() == 16 && resident_of(machine, c) == 2 && blocks > machine.multiprocessors &&
         blocks <= 2 * machine.multiprocessors && p.len_kv <= kMostKeys && p.len_kv % c.tile_keys == 0;
}

/// Whether a grid of the instance keeps every multiprocessor busy. Blocks whose warps do not share out the
/// keys must come in twos. With a causal mask blocks differ, the more so the more rows they have, and there
/// must be enough to even that out.
bool fills(const Problem& p, const Machine& machine, const Config& c) {
  // 16 rows a block would read keys twice as often: 1x8x448x64 takes 5.7 us then, and 5.2 with 112 blocks.
  if (c.rows() == 32 && c.key_groups > 1) return blocks_of(p, c) * 3 >= machine.multiprocessors * 2;
  const std::int64_t places = machine.multiprocessors * (c.key_groups == 1 ? 2 : 1);
  const int evened_out = p.causal ? std::max(c.rows() / 32, 1) : 1;
  return blocks_of(p, c) * 20 >= places * 19 * evened_out;  // one multiprocessor in 20 may idle
}

/// A plain instance before a general one, a narrow one before a wide one, pairs of blocks where they suit. Of
/// those whose grid fills the chip, the one with the most rows a block, which reads keys and values least
/// often; when none does, the one with the fewest. Then, while blocks have a multiprocessor to themselves,
/// the most warps that get keys; else the fewest, so that blocks are there to take turns. Found by
/// measurement (docs/kernels/sm80.md).
const Entry* choose(const Problem& p, const Machine& machine) {
  const Entry* best = nullptr;
  const auto better = [&](const Config& a, const Config& b) {
    if (a.general != b.general) return a.general < b.general;
    if (a.dim != b.dim) return a.dim < b.dim;
    const bool a_pairs = suits_pairs(p, machine, a);
    if (a_pairs != suits_pairs(p, machine, b)) return a_pairs;
    const bool a_fills = fills(p, machine, a);
    if (a_fills != fills(p, machine, b)) return a_fills;
    if (a.rows() != b.rows()) return (a.rows() > b.rows()) == a_fills;
    const auto idle = [&](const Config& c) { return c.key_groups * c.tile_keys > p.len_kv; };
    if (idle(a) != idle(b)) return idle(b);
    if (a.threads() == b.threads()) return false;
    return (a.threads() > b.threads()) == (blocks_of(p, a) <= machine.multiprocessors);
  };
  for (const Entry& entry : kEntries) {
    if (refusal(p, machine, entry.config)) continue;
    if (best == nullptr || better(entry.config, best->config)) best = &entry;
  }
  return best;
}

/// Blocks that share a tile of queries: as many as the chip has room for when the tiles fill less than half
/// of it, but each group of warps is to have eight tiles of keys at least: leaving results and adding them up
/// takes as long as four. Of a warp's rows at most, it takes half of that.
int choose_split(const Problem& p, const Machine& machine, const Config& c) {
  const std::int64_t tiles = std::max<std::int64_t>(blocks_of(p, c), 1);
  const auto reach = [](std::int64_t window) { return std::min<std::int64_t>(window, tile::KeySpan::kFar); };
  const std::int64_t window = reach(p.window_left) + (p.causal ? 0 : reach(p.window_right)) + c.rows();
  constexpr std::int64_t kWarpRows = 16;
  const std::int64_t least = p.len_q <= kWarpRows ? 4 : 8;
  const std::int64_t work = std::min(p.len_kv, window) / (least * c.tile_keys * c.key_groups);
  const std::int64_t room = machine.multiprocessors * resident_of(machine, c) / tiles;
  return static_cast<int>(std::clamp<std::int64_t>(std::min(room, work), 1, Split::kMost));
}

std::optional<std::string> reject(const Problem& p, const Machine& machine) {
  if (p.dtype == DType::f32) return "it takes f16 and bf16";
  const std::int64_t dim = std::max(p.dim_qk, p.dim_v);
  constexpr std::int64_t kMostDim = 256;
  if (std::min(p.dim_qk, p.dim_v) < 1 || dim > kMostDim) return "it takes head dims from 1 to 256";
  if (p.len_q >= tile::KeySpan::kFar || p.len_kv >= tile::KeySpan::kFar) return "it counts keys in 32 bits";
  if (choose(p, machine) == nullptr) return "no instance fits the shared memory of this GPU";
  constexpr std::int64_t kFewestRows = 16;  // that a tile of queries can have: a warp's
  if (p.batch * p.heads_q * (p.len_q / kFewestRows + 1) > std::numeric_limits<int>::max() / Split::kMost)
    return "it counts blocks in 32 bits";
  return std::nullopt;
}

/// What serves a problem.
struct Choice {
  const Entry* entry;
  int split;
};

Result<Choice> find(const Problem& p, const Machine& machine, std::string_view text) {
  saccade::Config given(text);
  Config c = choose(p, machine)->config;  // reject() has made sure that there is one
  take_settings<Config>(given, c, kSettings);
  const int split = given.take("split", 0, 1, Split::kMost);  // 0: not given
  if (Status status = given.finish(kName); !status.ok()) return status;
  const Result<const Entry*> entry = find_instance<Entry, Config>(
      kName, kEntries, c, kSettings, [&](const Config& other) { return refusal(p, machine, other); });
  if (!entry.ok()) return entry.status();
  return Choice{entry.value(), split > 0 ? split : choose_split(p, machine, c)};
}

Result<Prepared> prepare(const Problem& p, const Machine& machine, std::string_view text) {
  const Result<Choice> found = find(p, machine, text);
  if (!found.ok()) return found.status();
  const Choice choice = found.value();
  const Config& c = choice.entry->config;
  const std::int64_t tiles = blocks_of(p, c);
  return SACCADE_MACHINE::bind(
      to_text<Config>(c, kSettings) + " split=" + std::to_string(choice.split),
      Split::workspace_bytes(c, tiles, choice.split), p,
      [p, choice, tiles](const Tensors& t, std::byte* workspace, const Target& target) -> Status {
        if (tiles == 0) return {};
        const Split split = Split::at(workspace, choice.entry->config, tiles, choice.split);
        return choice.entry->launch(p, t, split, target);
      });
}

}  // namespace
}  // namespace sm80

const Kernel& sm80_forward() {
  static const Kernel kRow{
      .name = sm80::kName,
      .summary = "mma.sync and cp.async, warps that share rows and keys",
      .device = DeviceKind::cuda,
      .reject = [](const Problem& p,
                   const Machine& machine) { return sm80::reject(heads_as_rows(p), machine); },
      .prepare = [](const Problem& p, const Machine& machine,
                    std::string_view text) { return sm80::prepare(heads_as_rows(p), machine, text); }};
  return kRow;
}

}  // namespace saccade::SACCADE_MACHINE
