// The family's row in the registry: which problems it takes, and which instance serves one.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/heads_as_rows.h"
#include "cuda/launch/accept.h"
#include "cuda/launch/bind.h"
#include "cuda/launch/instances.h"
#include "cuda/sm90/config.h"
#include "cuda/sm90/sm90.h"
#include "cuda/tile/keys.h"

namespace saccade::SACCADE_MACHINE {
namespace sm90 {

using saccade::sm90::Config;
using saccade::sm90::Launch;

/// Defined in the sources that the build makes of instances.def.
template <class Instance>
Status launch_instance(const Problem& p, const Tensors& t, const Launch& how, const Target& target);

namespace {

constexpr char kName[] = "sm90";

struct Entry {
  double price;  ///< of a column of a row, on a chip that is full
  Config config;
  Status (*launch)(const Problem&, const Tensors&, const Launch&, const Target&);
};

#define SACCADE_SM90(price, ...)                                        \
  Entry{(price) / 100.0, saccade::sm90::Instance<__VA_ARGS__>::kConfig, \
        &launch_instance<saccade::sm90::Instance<__VA_ARGS__>>},
const Entry kEntries[] = {
#include "cuda/sm90/instances.def"
};
#undef SACCADE_SM90

constexpr Setting<Config> kSettings[] = {{"dim", &Config::dim},
                                         {"row_groups", &Config::row_groups},
                                         {"key_groups", &Config::key_groups},
                                         {"cluster", &Config::cluster},
                                         {"tile_keys", &Config::tile_keys},
                                         {"stages", &Config::stages},
                                         {"general", &Config::general, 0},
                                         {"warp_rows", &Config::warp_rows},
                                         {"ragged", &Config::ragged, 0}};

/// Tiles of queries, or how many there are at most if sequences have lengths of their own.
std::int64_t tiles_of(const Problem& p, const Config& c) {
  const std::int64_t all = p.batch * ((p.len_q + c.rows() - 1) / c.rows());
  return p.heads_q * (p.ragged_q ? std::min(all, p.total_q / c.rows() + p.batch) : all);
}

/// Why rows cannot be counted as ragged instances do, those of dense keys through all batches (ragged.h).
std::optional<std::string> refusal_of_rows(const Problem& p) {
  constexpr std::int64_t kFarRows = std::int64_t{1} << 32;  // half of what they turn by
  if (std::max({p.ragged_q ? p.q.row : 0, p.k.row, p.v.row}) >= kFarRows)
    return "it takes lengths of sequences whose rows are less than 8 GiB apart";
  if (p.kv_layout != KvLayout::dense || p.batch == 1) return std::nullopt;
  constexpr std::int64_t kUnit = 8;  // of 16 bytes: refusal_of() does not ask for it where there is one key
  const auto whole = [](const Strides& s) { return s.row > 0 && s.row % kUnit == 0 && s.batch % s.row == 0; };
  if (whole(p.k) && whole(p.v) && p.k.batch / p.k.row == p.v.batch / p.v.row &&
      p.batch * (p.k.batch / p.k.row) < tile::KeySpan::kFar)
    return std::nullopt;
  return "it takes lengths where the batches of k and v are the same whole number of rows apart";
}

/// Why the instance cannot compute the problem.
std::optional<std::string> refusal(const Problem& p, const Machine& machine, const Config& c) {
  if (c.general == 0 && !has_plain_scores(p)) return "it has no softcap, ALiBi, sinks or masks";
  if (c.ragged == 0 && !has_dense_tensors(p)) return "it is made for sequences of one length";
  if (c.ragged != 0) {
    if (auto reason = refusal_of_rows(p)) return reason;
  }
  if (c.dim < std::max(p.dim_qk, p.dim_v)) return "it is made for head dims up to " + std::to_string(c.dim);
  if (const std::int64_t most = std::int64_t{c.tile_keys} * c.parts(); c.single() && p.len_kv > most)
    return "it is made for up to " + std::to_string(most) + " keys";
  if (c.draws() && tiles_of(p, c) >> Config::kDrawBits != 0) return "it numbers tiles of queries in 24 bits";
  constexpr std::int64_t kMostAlong = 65535;  // of a grid's second and third dimension
  const std::int64_t second = c.cluster > 1 ? (p.len_q + c.rows() - 1) / c.rows() : p.heads_q;
  if (!c.stays() && std::max(second, p.batch) > kMostAlong)
    return std::string("its grid has room for 65535 batches and ") +
           (c.cluster > 1 ? "tiles of queries" : "heads");
  return refuse_shared_memory(c.shared_bytes(), machine);
}

/// Clusters that are on the chip at once, of blocks that have a multiprocessor each. Where four or more have
/// to be neighbours some multiprocessors are left over: 15 clusters of eight and 30 of four on 132 of them.
std::int64_t at_once(const Machine& machine, const Config& c) {
  return c.cluster < 4 ? machine.multiprocessors / c.cluster : machine.multiprocessors * 10 / 11 / c.cluster;
}

/// Keys that the rows of a tile see at most.
std::int64_t keys_of(const Problem& p, const Config& c) {
  const auto reach = [](std::int64_t window) { return std::min<std::int64_t>(window, tile::KeySpan::kFar); };
  const std::int64_t right = p.causal ? 0 : reach(p.window_right);
  const std::int64_t diagonal = p.alignment == Alignment::bottom_right ? p.len_kv - p.len_q : 0;
  return std::clamp<std::int64_t>(
      std::min(reach(p.window_left) + right + c.rows(), p.len_q + diagonal + right), 1, p.len_kv);
}
std::int64_t key_tiles_of(const Problem& p, const Config& c) {
  return (keys_of(p, c) + c.tile_keys - 1) / c.tile_keys;
}

/// Half of every product for nothing pays where there are no rows for the other half, or blocks with twice
/// the rows would leave multiprocessors idle.
bool suits_half_products(const Problem& p, const Machine& machine, const Config& c) {
  constexpr std::int64_t kMostKeys = 384;  // where larger tiles would not leave many idle
  const std::int64_t keys = keys_of(p, c);
  const std::int64_t tiles = tiles_of(p, c);
  if (c.single()) return keys <= kMostKeys && tiles <= 2 * at_once(machine, c);  // 88 registers
  const bool fits = tiles <= at_once(machine, c);
  // Where blocks that find no room at once have been measured.
  const std::int64_t many_keys = tiles <= 2 * at_once(machine, c) ? 2048 : 1024;
  if (c.cluster == 1 && p.len_q <= c.rows() && (fits || keys >= many_keys)) return true;
  if (!fits) return false;
  if (c.ragged != 0) return true;  // no clusters share keys there
  return keys <= kMostKeys || 2 * tiles <= machine.multiprocessors;
}

/// How many microseconds a cluster of few rows takes: to begin, exchange and end, and for the keys of a part,
/// where `split` clusters share keys.
double latency(const Problem& p, const Entry& entry, int split) {
  const Config& c = entry.config;
  const double width = c.dim / 64.0;
  const double ends = 1.6 + 0.6 * width + (c.cluster > 1 ? 0.3 : 0) + 0.2 * c.far_steps();
  const std::int64_t parts = std::int64_t{split} * c.parts();
  const std::int64_t rounds = (key_tiles_of(p, c) + parts - 1) / parts;
  const double each = 0.0016 + 0.0039 * width;
  const double meeting = split > 1 ? 2.0 : 0.0;
  return ends + meeting + entry.price * each * static_cast<double>(rounds * c.tile_keys);
}

/// Clusters that had better share the keys of each tile of queries: as many as are at once on the chip and
/// have keys, or one.
int choose_split(const Problem& p, const Machine& machine, const Entry& entry) {
  const Config& c = entry.config;
  if (!c.splits()) return 1;
  const std::int64_t room =
      std::clamp<std::int64_t>(at_once(machine, c) / tiles_of(p, c), 1, Config::kMostSplit);
  const auto rounds = [&](std::int64_t parts) { return (key_tiles_of(p, c) + parts - 1) / parts; };
  const auto split = static_cast<int>(rounds(rounds(room * c.parts()) * c.parts()));
  return latency(p, entry, split) < latency(p, entry, 1) ? split : 1;
}

/// Tiles, counted as if they came one after the other, of a multiprocessor with so many blocks that stay:
/// with fewer tiles than blocks, as in the end, each takes longer than its share.
double shared_out(double rounds, int blocks, bool causal) {
  constexpr double kAlone = 0.9;
  if (causal) {
    const double idle = std::max(0.0, 1 - std::max(rounds, 1.0) / blocks);
    return std::max(1.0, rounds / 2 + 0.6) * (1 + kAlone * idle);
  }
  const double tiles = std::ceil(rounds);
  const double last = std::fmod(tiles, blocks);
  return tiles + kAlone * last * (1 - last / blocks);
}

/// How long the instance takes for a column, in rows that a multiprocessor has to do one after the other.
double cost(const Problem& p, const Machine& machine, const Entry& entry) {
  const Config& c = entry.config;
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // Where first keys are hidden, bases of an only tile come from few keys that rows see, or none, and most of
  // it is done twice.
  if (c.single() && p.window_left < tile::KeySpan::kFar) return kNever;
  if (c.warp_rows < 16) {  // before all others, and among themselves the soonest
    if (!suits_half_products(p, machine, c)) return kNever;
    return c.single() ? 0 : 1e-9 * latency(p, entry, choose_split(p, machine, entry));
  }
  const auto keys = static_cast<double>(p.len_kv);
  const double rows = static_cast<double>(c.rows()) / c.cluster;
  const double rounds = static_cast<double>(tiles_of(p, c) * c.cluster) / machine.multiprocessors;
  // With a causal mask tiles are half as long in the mean; the longest come first, which evens that out but
  // for one of them, or half of a mean one.
  const bool causal = p.causal || p.window_right == 0;
  double tiles = causal ? std::max(1.0, rounds / 2 + 0.25) : std::ceil(rounds);
  if (c.stays()) {
    // Keys that a warpgroup would have done while the only block of a multiprocessor begins and ends a tile.
    const double ends = c.blocks() == 1 ? 16 : 0;
    if (c.blocks() > 1) tiles = shared_out(rounds, c.blocks(), causal);
    return entry.price * rows * tiles * (1 + ends / keys);
  }
  if (rounds > 1 && c.blocks() > 1) tiles *= 0.8;  // each hides waits of the other
  // Keys that a warpgroup would have done while parts are exchanged (by four warpgroups of a block more), and
  // while a block that does not find room at once begins and ends.
  const double exchange = c.cluster > 1 ? 48 : c.groups() > 2 ? 96 : 8;
  constexpr double kAnother = 460;
  tiles *= 1 + exchange / keys;
  tiles += std::max(0.0, rounds - c.blocks()) * kAnother * 64 / c.dim / keys;
  return entry.price * rows * tiles;
}

/// Those for few rows before all others, where they suit, and then the cheapest.
const Entry* choose(const Problem& p, const Machine& machine) {
  const auto rank = [&](const Entry& entry) {
    const double all = entry.config.dim * cost(p, machine, entry);
    const bool few = entry.config.warp_rows < 16 && std::isfinite(all);
    return std::pair(!few, all);
  };
  const Entry* best = nullptr;
  for (const Entry& entry : kEntries) {
    if (refusal(p, machine, entry.config) || (entry.config.ragged != 0) == has_dense_tensors(p)) continue;
    if (best == nullptr || rank(entry) < rank(*best)) best = &entry;
  }
  return best;
}

/// Why the copy engine does not take a tensor of these strides.
std::optional<std::string> refusal_of(const char* name, const Strides& s, std::int64_t rows,
                                      std::int64_t heads, std::int64_t batches) {
  constexpr std::int64_t kUnit = 8;  // of 16 bytes
  constexpr std::int64_t kMost = (std::int64_t{1} << 40) / 2;
  for (const auto& [stride, size] : {std::pair{s.row, rows}, {s.head, heads}, {s.batch, batches}}) {
    if (size > 1 && (stride % kUnit != 0 || stride <= 0 || stride >= kMost))
      return std::string(name) + " has a stride that the copy engine does not take";
  }
  return std::nullopt;
}

std::optional<std::string> reject(const Problem& p, const Machine& machine) {
  constexpr int kHopper = 90;
  if (machine.compute_capability != kHopper) return "it is made of instructions that only Hopper has";
  if (p.dtype == DType::f32) return "it takes f16 and bf16";
  if (p.kv_layout == KvLayout::paged) return "it takes no pages";
  if (!has_dense_tensors(p) && !has_plain_scores(p))
    return "it has softcap, ALiBi, sinks and masks for sequences of one length";
  if (p.scale && *p.scale < 0) return "it takes scales that are not negative";
  const std::int64_t dim = std::max(p.dim_qk, p.dim_v);
  constexpr std::int64_t kMostDim = 256;
  if (std::min(p.dim_qk, p.dim_v) < 8 || dim > kMostDim || p.dim_qk % 8 != 0 || p.dim_v % 8 != 0)
    return "it takes head dims that are multiples of 8 up to 256";
  constexpr std::int64_t kMostGeneralDim = 192;
  if (!has_plain_scores(p) && dim > kMostGeneralDim)
    return "it has softcap, ALiBi, sinks and masks for head dims up to 192";
  const bool ragged_kv = p.kv_layout == KvLayout::ragged;
  const std::int64_t rows_q = p.ragged_q ? p.total_q : p.len_q;
  const std::int64_t rows_kv = ragged_kv ? p.total_kv : p.len_kv;
  if (std::min({p.batch, p.heads_q, p.len_q, p.len_kv, rows_q, rows_kv}) < 1)
    return "it takes no empty tensors";
  if (std::max({p.len_q, p.len_kv, rows_q, rows_kv}) >= tile::KeySpan::kFar)
    return "it counts keys in 32 bits";
  if (machine.pointer_alignment % 16 != 0) return "it moves 16 bytes at a time";
  const std::int64_t batch_kv = ragged_kv ? 1 : p.batch;
  if (auto reason = refusal_of("q", p.q, rows_q, p.heads_q, p.ragged_q ? 1 : p.batch)) return reason;
  if (auto reason = refusal_of("k", p.k, rows_kv, p.heads_kv, batch_kv)) return reason;
  if (auto reason = refusal_of("v", p.v, rows_kv, p.heads_kv, batch_kv)) return reason;
  if (!has_dense_tensors(p)) {
    if (auto reason = refusal_of_rows(p)) return reason;
  }
  if (!keeps_alignment(p, p.o, false)) return "it writes 16 bytes at a time";
  if (choose(p, machine) == nullptr) return "no instance takes it on this GPU";
  if (p.batch * p.heads_q * (p.len_q / 32 + 1) > std::numeric_limits<int>::max() / 8)
    return "it counts blocks in 32 bits";
  return std::nullopt;
}

/// What was measured to be faster on sm80, where there is little to compute or little to share it with.
std::optional<std::string> decline(const Problem& p, const Machine& machine) {
  constexpr std::int64_t kRows = 64;  // of a warpgroup
  const std::int64_t tiles = p.batch * p.heads_q * ((p.len_q + kRows - 1) / kRows);
  if (!has_plain_scores(p) && p.len_q <= kRows && p.len_kv >= 2048 && tiles <= machine.multiprocessors)
    return "sm80 shares the keys of so few rows out, and this family's general instances do not";
  constexpr std::int64_t kManyKeys = 4096;
  if (!has_dense_tensors(p) && p.len_q <= kRows && p.len_kv >= kManyKeys &&
      4 * tiles <= machine.multiprocessors)
    return "sm80 shares the keys of so few rows out, and this family does not where sequences differ in "
           "length";
  if (p.mask != MaskKind::none && tiles <= machine.multiprocessors)
    return "sm80 shares the reading of the mask out to more blocks";
  if (!has_plain_scores(p) && p.dim_qk == 64 && p.dim_v == 64 && p.len_kv <= 64)
    return "sm80 begins and ends sooner, which is most of the time for so few keys";
  return std::nullopt;
}

/// What serves a problem.
struct Choice {
  const Entry* entry;
  int split;
  Overlap overlap;
};

Result<Choice> find(const Problem& p, const Machine& machine, std::string_view text) {
  saccade::Config given(text);
  Config c = choose(p, machine)->config;  // reject() has made sure that there is one
  take_settings<Config>(given, c, kSettings);
  const int split = given.take("split", 0, 1, Config::kMostSplit);  // 0: not given
  constexpr int kNotGiven = -1;
  const int overlap = given.take("overlap", kNotGiven, 0, 2);  // as Overlap numbers them
  if (Status status = given.finish(kName); !status.ok()) return status;
  const Result<const Entry*> entry = find_instance<Entry, Config>(
      kName, kEntries, c, kSettings, [&](const Config& other) { return refusal(p, machine, other); });
  if (!entry.ok()) return entry.status();
  const bool may_overlap = entry.value()->config.general == 0 && entry.value()->config.ragged == 0;
  if (overlap > 0 && !may_overlap)
    return Status(Code::invalid_argument,
                  "sm90: overlap=" + std::to_string(overlap) +
                      " does not go with general=1 or ragged=1, which read masks or lengths before they "
                      "have waited");
  if (split > 1 && !entry.value()->config.splits())
    return Status(Code::invalid_argument,
                  "sm90: split=" + std::to_string(split) +
                      " does not go with this instance: only clusters of eight with 8 "
                      "rows a warp share out keys once more");
  const int chosen = split > 0 ? split : choose_split(p, machine, *entry.value());
  constexpr std::int64_t kMostAlong = 65535;  // of a grid's third dimension
  const std::int64_t along = (p.len_q + c.rows() - 1) / c.rows() * chosen;
  if (chosen > 1 && along > kMostAlong)
    return Status(Code::invalid_argument, "sm90: split=" + std::to_string(chosen) + " would take " +
                                              std::to_string(along) + " clusters a head; a grid has 65535");
  const Overlap usual = may_overlap ? Overlap::outside_graphs : Overlap::never;
  return Choice{entry.value(), chosen, overlap == kNotGiven ? usual : Overlap{overlap}};
}

Result<Prepared> prepare(const Problem& p, const Machine& machine, std::string_view text) {
  const Result<Choice> found = find(p, machine, text);
  if (!found.ok()) return found.status();
  const Choice choice = found.value();
  const Config& c = choice.entry->config;
  const Launch plan{
      .multiprocessors = machine.multiprocessors, .split = choice.split, .overlap = choice.overlap};
  return SACCADE_MACHINE::bind(
      to_text<Config>(c, kSettings) + " split=" + std::to_string(choice.split) +
          " overlap=" + std::to_string(static_cast<int>(choice.overlap)),
      c.workspace_bytes(static_cast<std::size_t>(tiles_of(p, c)), choice.split), p,
      [p, choice, plan](const Tensors& t, std::byte* workspace, const Target& target) -> Status {
        Launch how = plan;
        how.workspace = workspace;
        return choice.entry->launch(p, t, how, target);
      });
}

}  // namespace
}  // namespace sm90

const Kernel& sm90_forward() {
  static const Kernel kRow{
      .name = sm90::kName,
      .summary = "wgmma and the bulk copy engine, warpgroups that share rows and keys",
      .device = DeviceKind::cuda,
      .reject = [](const Problem& p,
                   const Machine& machine) { return sm90::reject(heads_as_rows(p), machine); },
      .prepare = [](const Problem& p, const Machine& machine,
                    std::string_view text) { return sm90::prepare(heads_as_rows(p), machine, text); },
      .decline = [](const Problem& p,
                    const Machine& machine) { return sm90::decline(heads_as_rows(p), machine); }};
  return kRow;
}

}  // namespace saccade::SACCADE_MACHINE
