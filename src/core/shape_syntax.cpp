// The shape syntax: how problems are written on command lines, in case files and in repro lines
// (docs/shapes.md).
#include <array>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <vector>

#include <saccade/problem.h>

namespace saccade {
namespace {

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  for (std::size_t at = text.find_first_not_of(separators); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(separators, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(separators, end);
  }
  return parts;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  if (text == "inf") return kUnbounded;
  std::int64_t factor = 1;
  if (text.ends_with('k')) {
    factor = 1024;
    text.remove_suffix(1);
  }
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (__builtin_mul_overflow(value, factor, &value)) return std::nullopt;
  return value;
}

std::optional<float> parse_float(std::string_view text) {
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Packed mask strides when only the dimensions named in `letters` (of "bhqk") are stored.
std::optional<MaskStrides> mask_layout(const Problem& p, std::string_view letters) {
  if (letters.find_first_not_of("bhqk") != std::string_view::npos) return std::nullopt;
  MaskStrides strides;
  std::uint64_t next = 1;
  const auto take = [&](char letter, std::int64_t size, std::int64_t& stride) {
    const bool stored = letters.find(letter) != std::string_view::npos;
    stride = stored ? static_cast<std::int64_t>(next) : 0;
    if (stored) next *= static_cast<std::uint64_t>(size);
  };
  take('k', p.len_kv, strides.key);
  take('q', p.len_q, strides.row);
  take('h', p.heads_q, strides.head);
  take('b', p.batch, strides.batch);
  return strides;
}

constexpr std::array<std::string_view, 16> kMaskLayouts = {
    "bhqk", "hqk", "bqk", "bhk", "bhq", "qk", "hk", "hq", "bk", "bq", "bh", "k", "q", "h", "b", "-"};

/// What a text says, token by token, before sizes and strides are known to be complete.
class Parser {
 public:
  Result<Problem> parse(std::string_view text) {
    for (const std::string_view token : split(text, " \t\r\n")) {
      if (!read(token)) {
        return Status(Code::invalid_argument,
                      fmt::format("shape token '{}' in '{}' is not understood", token, text));
      }
    }
    if (!has_len_q_ || !has_len_kv_) {
      return Status(Code::invalid_argument,
                    fmt::format("shape '{}' names no {}: write l512, or lq1 and lk4096", text,
                                has_len_q_ ? "number of keys" : "number of queries"));
    }
    finish_layout();
    p_.pack(order_);
    if (mask_letters_) p_.mask_strides = *mask_layout(p_, *mask_letters_);
    for (const auto& apply : overrides_) apply(p_);
    return p_;
  }

 private:
  bool read(std::string_view token) {
    const std::size_t equals = token.find('=');
    if (equals != std::string_view::npos) return setting(token.substr(0, equals), token.substr(equals + 1));
    return flag(token) || size(token);
  }

  bool flag(std::string_view word) {
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      if (word == to_string(dtype)) return p_.dtype = dtype, true;
    }
    if (word == "causal") return p_.causal = true;
    if (word == "br") return p_.alignment = Alignment::bottom_right, true;
    if (word == "causal-br") return p_.causal = true, p_.alignment = Alignment::bottom_right, true;
    if (word == "sinks") return p_.sinks = true;
    if (word == "lse") return p_.lse = true;
    if (word == "alibi") return p_.alibi = true;
    if (word == "kvlens") return p_.kv_lengths = true;
    if (word == "blhd") return order_ = Order::blhd, true;
    if (word == "bhld") return order_ = Order::bhld, true;
    if (word == "varlen") return p_.ragged_q = true, p_.kv_layout = KvLayout::ragged, true;
    if (word == "mask" || word == "bias" || word == "bias32") return setting(word, "bhqk");
    return false;
  }

  bool size(std::string_view word) {
    const std::size_t digits = word.find_first_of("-0123456789");
    if (digits == std::string_view::npos) return false;
    const std::string_view name = word.substr(0, digits);
    const std::size_t slash = word.find('/');
    if (slash != std::string_view::npos && (name == "h" || name == "hq")) {
      std::string_view kv = word.substr(slash + 1);
      if (kv.starts_with("hkv")) kv.remove_prefix(3);
      const auto heads_q = parse_integer(word.substr(digits, slash - digits));
      const auto heads_kv = parse_integer(kv);
      if (!heads_q || !heads_kv) return false;
      return p_.heads_q = *heads_q, p_.heads_kv = *heads_kv, true;
    }
    const auto n = parse_integer(word.substr(digits));
    if (!n) return false;
    if (name == "b") return p_.batch = *n, true;
    if (name == "h") return p_.heads_q = p_.heads_kv = *n, true;
    if (name == "hq") return p_.heads_q = *n, true;
    if (name == "hkv") return p_.heads_kv = *n, true;
    if (name == "l") return p_.len_q = p_.len_kv = *n, has_len_q_ = has_len_kv_ = true;
    if (name == "lq") return p_.len_q = *n, has_len_q_ = true;
    if (name == "lk") return p_.len_kv = *n, has_len_kv_ = true;
    if (name == "d") return p_.dim_qk = p_.dim_v = *n, true;
    if (name == "dqk") return p_.dim_qk = *n, true;
    if (name == "dv") return p_.dim_v = *n, true;
    return false;
  }

  bool setting(std::string_view name, std::string_view value) {
    if (name == "mask" || name == "bias" || name == "bias32") {
      p_.mask = name == "mask" ? MaskKind::boolean : MaskKind::additive;
      bias_has_own_dtype_ = name == "bias32";
      mask_letters_ = value == "-" ? std::string_view() : value;  // "-": one value for all
      return mask_layout(p_, *mask_letters_).has_value();
    }
    if (name == "scale" || name == "softcap") {
      const auto x = parse_float(value);
      if (!x) return false;
      if (name == "scale") return p_.scale = *x, true;
      return p_.softcap = *x, true;
    }
    std::vector<std::int64_t> n;
    for (const std::string_view part : split(value, ",")) {
      const auto x = parse_integer(part);
      if (!x) return false;
      n.push_back(*x);
    }
    return numbers(name, n);
  }

  bool numbers(std::string_view name, const std::vector<std::int64_t>& n) {
    const std::size_t count = n.size();
    if (name == "window" && count == 2) return p_.window_left = n[0], p_.window_right = n[1], true;
    if (name == "alibi" && count == 1) return p_.alibi_batch_stride = n[0], p_.alibi = true;
    if (name == "varlen" && count == 2) return numbers("varlen-q", {n[0]}) && numbers("varlen-kv", {n[1]});
    if (name == "varlen-q" && count == 1) return total_q_ = n[0], p_.ragged_q = true;
    if (name == "varlen-kv" && count == 1) {
      return total_kv_ = n[0], p_.kv_layout = KvLayout::ragged, true;
    }
    if (name == "paged" && (count == 1 || count == 3)) {
      p_.kv_layout = KvLayout::paged;
      p_.page_size = n[0];
      if (count == 3) num_pages_ = n[1], pages_per_sequence_ = n[2];
      return true;
    }
    if (count < 3 || count > 4) return false;
    if (name == "ls" && count == 3) {
      return overrides_.emplace_back([n](Problem& p) { p.lse_strides = {n[0], n[1], n[2]}; }), true;
    }
    if (name == "ms" && count == 4) {
      return overrides_.emplace_back([n](Problem& p) { p.mask_strides = {n[0], n[1], n[2], n[3]}; }), true;
    }
    static const std::map<std::string_view, Strides Problem::*> kTensors = {
        {"qs", &Problem::q}, {"ks", &Problem::k}, {"vs", &Problem::v}, {"os", &Problem::o}};
    const auto tensor = kTensors.find(name);
    if (tensor == kTensors.end()) return false;
    const Strides strides{n[0], n[1], n[2], count == 4 ? n[3] : 1};
    overrides_.emplace_back([strides, field = tensor->second](Problem& p) { p.*field = strides; });
    return true;
  }

  /// Fills in what depends on sizes that may stand later in the text.
  void finish_layout() {
    const auto wrapping_product = [](std::int64_t a, std::int64_t b) {
      return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    };
    if (p_.ragged_q) p_.total_q = total_q_.value_or(wrapping_product(p_.batch, p_.len_q));
    if (p_.kv_layout == KvLayout::ragged) {
      p_.total_kv = total_kv_.value_or(wrapping_product(p_.batch, p_.len_kv));
    }
    if (p_.kv_layout == KvLayout::paged && p_.page_size > 0) {
      const std::int64_t pages = p_.len_kv / p_.page_size + (p_.len_kv % p_.page_size > 0 ? 1 : 0);
      p_.pages_per_sequence = pages_per_sequence_.value_or(pages);
      p_.num_pages = num_pages_.value_or(wrapping_product(p_.batch, p_.pages_per_sequence));
    }
    if (p_.mask == MaskKind::additive) p_.mask_dtype = bias_has_own_dtype_ ? DType::f32 : p_.dtype;
  }

  Problem p_;
  Order order_ = Order::bhld;
  bool has_len_q_ = false, has_len_kv_ = false, bias_has_own_dtype_ = false;
  std::optional<std::string_view> mask_letters_;
  std::optional<std::int64_t> total_q_, total_kv_, num_pages_, pages_per_sequence_;
  std::vector<std::function<void(Problem&)>> overrides_;
};

std::string print_window(std::int64_t n) {
  return n == kUnbounded ? "inf" : fmt::format("{}", n);
}

void print_mask(const Problem& p, std::string& out) {
  if (p.mask == MaskKind::none) return;
  const bool own_dtype = p.mask_dtype != p.dtype;
  out += p.mask == MaskKind::boolean ? " mask" : own_dtype ? " bias32" : " bias";
  for (const std::string_view letters : kMaskLayouts) {
    if (*mask_layout(p, letters == "-" ? "" : letters) == p.mask_strides) {
      if (letters != "bhqk") out += fmt::format("={}", letters);
      return;
    }
  }
  const MaskStrides& m = p.mask_strides;
  out += fmt::format(" ms={},{},{},{}", m.batch, m.head, m.row, m.key);
}

void print_strides(const Problem& p, std::string& out) {
  Problem packed = p;
  packed.pack(Order::blhd);
  const bool is_blhd = packed.q == p.q && packed.k == p.k && packed.v == p.v && packed.o == p.o;
  const Problem bhld = packed.pack(Order::bhld);
  if (bhld.q == p.q && bhld.k == p.k && bhld.v == p.v && bhld.o == p.o) {
    // the default
  } else if (is_blhd) {
    out += " blhd";
  } else {
    const auto print = [&](std::string_view name, const Strides& is, const Strides& standard) {
      if (is == standard) return;
      out += fmt::format(" {}={},{},{}", name, is.batch, is.head, is.row);
      if (is.dim != 1) out += fmt::format(",{}", is.dim);
    };
    print("qs", p.q, bhld.q);
    print("ks", p.k, bhld.k);
    print("vs", p.v, bhld.v);
    print("os", p.o, bhld.o);
  }
  if (p.lse && p.lse_strides != bhld.lse_strides) {
    out += fmt::format(" ls={},{},{}", p.lse_strides.batch, p.lse_strides.head, p.lse_strides.row);
  }
}

}  // namespace

std::string to_string(const Problem& p) {
  std::string out = fmt::format("b{} h{}", p.batch, p.heads_q);
  if (p.heads_kv != p.heads_q) out += fmt::format("/{}", p.heads_kv);
  out += p.len_q == p.len_kv ? fmt::format(" l{}", p.len_q) : fmt::format(" lq{} lk{}", p.len_q, p.len_kv);
  out += p.dim_qk == p.dim_v ? fmt::format(" d{}", p.dim_qk) : fmt::format(" dqk{} dv{}", p.dim_qk, p.dim_v);
  out += fmt::format(" {}", to_string(p.dtype));
  if (p.scale) out += fmt::format(" scale={}", *p.scale);
  if (p.softcap != 0) out += fmt::format(" softcap={}", p.softcap);
  if (p.causal) out += " causal";
  if (p.alignment == Alignment::bottom_right) out += " br";
  if (p.window_left != kUnbounded || p.window_right != kUnbounded) {
    out += fmt::format(" window={},{}", print_window(p.window_left), print_window(p.window_right));
  }
  print_mask(p, out);
  if (p.alibi) out += p.alibi_batch_stride == 0 ? " alibi" : fmt::format(" alibi={}", p.alibi_batch_stride);
  if (p.sinks) out += " sinks";
  if (p.lse) out += " lse";
  if (p.ragged_q) out += fmt::format(" varlen-q={}", p.total_q);
  if (p.kv_layout == KvLayout::ragged) out += fmt::format(" varlen-kv={}", p.total_kv);
  if (p.kv_layout == KvLayout::paged) {
    out += fmt::format(" paged={},{},{}", p.page_size, p.num_pages, p.pages_per_sequence);
  }
  if (p.kv_lengths) out += " kvlens";
  print_strides(p, out);
  return out;
}

Result<Problem> parse_problem(std::string_view text) {
  return Parser{}.parse(text);
}

}  // namespace saccade
