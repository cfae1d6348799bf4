// The family's row in the registry: which problems it takes, and which instance serves one.
#include <limits>

#include "core/config.h"
#include "cuda/launch/bind.h"
#include "cuda/sm80/kernel.h"
#include "cuda/sm80/sm80.h"

namespace saccade::SACCADE_MACHINE {
namespace sm80 {

/// Defined in the sources that the build makes of instances.def.
template <class T, class Instance>
Status launch_instance(const Arguments<T>& a, const Target& target);

namespace {

constexpr char kName[] = "sm80";

struct Entry {
  Config config;
  Status (*f16)(const Arguments<F16>&, const Target&);
  Status (*bf16)(const Arguments<BF16>&, const Target&);
};

#define SACCADE_SM80(...)                                            \
  Entry{saccade::sm80::Instance<__VA_ARGS__>::kConfig,               \
        &launch_instance<F16, saccade::sm80::Instance<__VA_ARGS__>>, \
        &launch_instance<BF16, saccade::sm80::Instance<__VA_ARGS__>>},
const Entry kEntries[] = {
#include "cuda/sm80/instances.def"
};
#undef SACCADE_SM80

std::int64_t blocks_of(const Problem& p, const Config& c) {
  return p.batch * p.heads_q * ((p.len_q + c.rows() - 1) / c.rows());
}

/// Of the instances whose grid gives every multiprocessor a block, the one with the most rows a block, which
/// reads keys and values least often; when none does, the one with the fewest. Then the one with the most
/// warps.
const Entry* choose(const Problem& p, const Machine& machine) {
  const Entry* best = nullptr;
  const auto better = [&](const Config& a, const Config& b) {
    const bool a_fills = blocks_of(p, a) >= machine.multiprocessors;
    const bool b_fills = blocks_of(p, b) >= machine.multiprocessors;
    if (a_fills != b_fills) return a_fills;
    if (a.rows() != b.rows()) return (a.rows() > b.rows()) == a_fills;
    return a.threads() > b.threads();
  };
  for (const Entry& entry : kEntries) {
    const Config& c = entry.config;
    if (c.dim != p.dim_qk || c.shared_bytes() > machine.shared_bytes_per_block) continue;
    if (best == nullptr || better(c, best->config)) best = &entry;
  }
  return best;
}

std::optional<std::string> reject(const Problem& p, const Machine& machine) {
  if (p.dtype == DType::f32) return "it takes f16 and bf16";
  if (p.dim_qk != p.dim_v || (p.dim_qk != 64 && p.dim_qk != 128)) return "it takes head dims 64 and 128";
  if (p.softcap > 0 || p.alibi || p.sinks || p.mask != MaskKind::none)
    return "it has no softcap, ALiBi, sinks or masks";
  if (p.ragged_q || p.kv_layout != KvLayout::dense || p.kv_lengths) return "it takes dense tensors";
  if (p.len_q >= tile::KeySpan::kFar || p.len_kv >= tile::KeySpan::kFar ||
      p.batch * p.heads_q * p.len_q > std::numeric_limits<int>::max()) {
    return "it counts rows in 32 bits";
  }
  for (const Strides* s : {&p.q, &p.k, &p.v, &p.o}) {
    if (s->row % 8 != 0 || s->head % 8 != 0 || s->batch % 8 != 0) return "it moves 16 bytes at a time";
  }
  if (machine.pointer_alignment % 16 != 0) return "it needs addresses that are multiples of 16";
  if (choose(p, machine) == nullptr) return "no instance fits the shared memory of this GPU";
  return std::nullopt;
}

std::string to_text(const Config& c) {
  const auto number = [](const char* key, int value) { return key + std::to_string(value); };
  return number("row_warps=", c.row_warps) + number(" row_tiles=", c.row_tiles) +
         number(" key_groups=", c.key_groups) + number(" tile_keys=", c.tile_keys) +
         number(" score_keys=", c.score_keys) + number(" stages=", c.stages) + number(" blocks=", c.blocks);
}

Result<const Entry*> find(const Problem& p, const Machine& machine, std::string_view text) {
  saccade::Config given(text);
  Config c = choose(p, machine)->config;  // reject() has made sure that there is one
  constexpr int kMost = 1024;
  for (const auto& [key, value] : {std::pair{"row_warps", &Config::row_warps},
                                   {"row_tiles", &Config::row_tiles},
                                   {"key_groups", &Config::key_groups},
                                   {"tile_keys", &Config::tile_keys},
                                   {"score_keys", &Config::score_keys},
                                   {"stages", &Config::stages},
                                   {"blocks", &Config::blocks}}) {
    c.*value = given.take(key, c.*value, 1, kMost);
  }
  if (Status status = given.finish(kName); !status.ok()) return status;
  std::string known;
  for (const Entry& entry : kEntries) {
    if (entry.config == c && c.shared_bytes() <= machine.shared_bytes_per_block) return &entry;
    if (entry.config == c) {
      return Status(Code::invalid_argument, to_text(c) + " needs " + std::to_string(c.shared_bytes()) +
                                                " bytes of shared memory; a block of this GPU may have " +
                                                std::to_string(machine.shared_bytes_per_block));
    }
    if (entry.config.dim == c.dim) known += "; " + to_text(entry.config);
  }
  return Status(Code::invalid_argument,
                "sm80 was not built with " + to_text(c) + "; there are: " + known.substr(2));
}

template <class T>
Arguments<T> arguments(const Problem& p, const Tensors& t, const Config& c) {
  const auto tensor = [](auto* data, const Strides& s) {
    return tile::Tensor4<std::remove_pointer_t<decltype(data)>>{data, s.batch, s.head, s.row};
  };
  const bool bottom_right = p.alignment == Alignment::bottom_right;
  const auto reach = [](std::int64_t window) {
    return window >= tile::KeySpan::kFar ? tile::KeySpan::kFar : static_cast<int>(window);
  };
  const int right = p.causal ? 0 : reach(p.window_right);
  return {.q = tensor(static_cast<const T*>(t.q), p.q),
          .k = tensor(static_cast<const T*>(t.k), p.k),
          .v = tensor(static_cast<const T*>(t.v), p.v),
          .o = tensor(static_cast<T*>(t.o), p.o),
          .lse = p.lse ? t.lse : nullptr,
          .lse_batch = p.lse_strides.batch,
          .lse_head = p.lse_strides.head,
          .lse_row = p.lse_strides.row,
          .heads_q = static_cast<int>(p.heads_q),
          .group = static_cast<int>(p.group()),
          .len_q = static_cast<int>(p.len_q),
          .tiles = static_cast<int>((p.len_q + c.rows() - 1) / c.rows()),
          .heads = static_cast<int>(p.batch * p.heads_q),
          .span = {.len_kv = static_cast<int>(p.len_kv),
                   .diagonal = bottom_right ? static_cast<int>(p.len_kv - p.len_q) : 0,
                   .left = reach(p.window_left),
                   .right = right},
          .scale = tile::ScoreScale::of(p.effective_scale()),
          .longest_first = right < tile::KeySpan::kFar};
}

Result<Prepared> prepare(const Problem& p, const Machine& machine, std::string_view text) {
  const Result<const Entry*> found = find(p, machine, text);
  if (!found.ok()) return found.status();
  const Entry* entry = found.value();
  return SACCADE_MACHINE::bind(
      to_text(entry->config), 0, p, [p, entry](const Tensors& t, std::byte*, const Target& target) -> Status {
        if (p.batch * p.heads_q * p.len_q == 0) return {};
        for (const void* data : {t.q, t.k, t.v, static_cast<const void*>(t.o)}) {
          if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0)
            return {Code::invalid_argument, "sm80 needs q, k, v and o aligned to 16 bytes"};
        }
        return p.dtype == DType::f16 ? entry->f16(arguments<F16>(p, t, entry->config), target)
                                     : entry->bf16(arguments<BF16>(p, t, entry->config), target);
      });
}

}  // namespace
}  // namespace sm80

const Kernel& sm80_forward() {
  static const Kernel kRow{.name = sm80::kName,
                           .summary = "mma.sync and cp.async, warps that share rows and keys",
                           .device = DeviceKind::cuda,
                           .reject = sm80::reject,
                           .prepare = sm80::prepare};
  return kRow;
}

}  // namespace saccade::SACCADE_MACHINE
