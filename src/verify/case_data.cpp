#include "verify/case_data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <numeric>

#include "core/dtypes.h"
#include "verify/random.h"

namespace saccade {
namespace {

/// A NaN whose payload neither arithmetic nor the guard pattern leaves in an output.
constexpr std::uint16_t kPoison = 0x7ff3;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The streams of one seed.
enum Which : std::uint64_t { kQ, kK, kV, kMask, kHiddenRows, kHiddenPairs, kSinks, kIndices, kNan };

bool is_pattern(std::span<const std::byte> element, std::uint16_t pattern) {
  std::byte expected[8];
  const std::size_t skip = std::bit_cast<std::uintptr_t>(element.data()) % 2;
  for (std::size_t i = 0; i < sizeof(expected); ++i) {
    expected[i] = static_cast<std::byte>((i + skip) % 2 == 0 ? pattern & 0xffU : pattern >> 8);
  }
  return std::memcmp(element.data(), expected, element.size()) == 0;
}

std::uint64_t checksum_of(std::span<const std::byte> memory) {
  std::uint64_t sum = 0;
  std::size_t at = 0;
  for (; at + 8 <= memory.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, memory.data() + at, sizeof(word));
    sum = (sum ^ word) * 0x9e3779b97f4a7c15U;
    sum ^= sum >> 32;
  }
  for (; at < memory.size(); ++at) sum = (sum ^ std::to_integer<std::uint64_t>(memory[at])) * 0x100000001b3U;
  return sum;
}

/// Random lengths up to `longest`, some 0, one of them `longest` where `total` rows allow it.
std::vector<std::int64_t> random_lengths(std::int64_t count, std::int64_t longest, std::int64_t total,
                                         Random& random) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(count));
  if (count == 0) return lengths;
  const auto full = static_cast<std::size_t>(random.below(count));
  lengths[full] = std::min(longest, total);
  total -= lengths[full];
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    if (b == full) continue;
    const std::int64_t kind = random.below(6);
    lengths[b] = std::min(total, kind == 0 ? 0 : kind < 3 ? longest : random.between(0, longest));
    total -= lengths[b];
  }
  return lengths;
}

std::int32_t* integers(void* data) {
  return static_cast<std::int32_t*>(data);
}

}  // namespace

void CaseData::Operand::use(std::int64_t offset, std::int64_t run) {
  const auto first = in_use.begin() + (origin + offset);
  shared = shared || std::find(first, first + run, 1) != first + run;
  std::fill_n(first, run, std::uint8_t{1});
}

CaseData::Operand CaseData::allocate(std::string_view name, std::size_t element_bytes, std::int64_t run,
                                     std::initializer_list<Axis> axes) const {
  Operand operand{.name = name, .element_bytes = element_bytes};
  std::int64_t begin = 0;
  std::int64_t end = run;
  for (const Axis& axis : axes) {
    const std::int64_t reach = (axis.size - 1) * axis.stride;
    (reach < 0 ? begin : end) += reach;
    if (axis.size == 0) run = 0;
  }
  const std::int64_t count = run == 0 ? 0 : end - begin;
  operand.origin = run == 0 ? 0 : -begin;
  operand.in_use.resize(static_cast<std::size_t>(count));
  operand.buffer = GuardedBuffer(operand.in_use.size() * element_bytes, element_bytes, past_end_);
  return operand;
}

CaseData::Operand CaseData::allocate_queries(std::string_view name, const Strides& strides,
                                             std::int64_t dim) const {
  return allocate(name, size_of(p_.dtype), dim,
                  {{p_.ragged_q ? 1 : p_.batch, strides.batch},
                   {p_.heads_q, strides.head},
                   {p_.ragged_q ? p_.total_q : p_.len_q, strides.row}});
}

CaseData::Operand CaseData::allocate_keys(std::string_view name, const Strides& strides,
                                          std::int64_t dim) const {
  std::int64_t blocks = p_.batch;
  std::int64_t rows = p_.len_kv;
  if (p_.kv_layout == KvLayout::ragged) blocks = 1, rows = p_.total_kv;
  if (p_.kv_layout == KvLayout::paged) blocks = p_.num_pages, rows = p_.page_size;
  return allocate(name, size_of(p_.dtype), dim,
                  {{blocks, strides.batch}, {p_.heads_kv, strides.head}, {rows, strides.row}});
}

CaseData::CaseData(const Problem& problem, std::uint64_t seed, PastEnd past_end)
    : p_(problem), seed_(seed), past_end_(past_end) {
  make_indices();
  make_queries_and_keys();
  make_mask();
  make_per_head();
  make_outputs();
  if (seed_ % kNanEvery == 0) plant_nan();
  checksums_ = input_checksums();
}

void CaseData::make_indices() {
  Random random(stream(seed_, kIndices));
  const std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const auto offsets = [&](std::string_view name, std::int64_t longest, std::int64_t total) {
    Operand operand = allocate(name, sizeof(std::int32_t), p_.batch + 1);
    const auto lengths = random_lengths(p_.batch, longest, std::min(total, most), random);
    integers(operand.data())[0] = 0;
    std::partial_sum(lengths.begin(), lengths.end(), integers(operand.data()) + 1);
    return operand;
  };
  if (p_.ragged_q) cu_seqlens_q_ = offsets("cu_seqlens_q", p_.len_q, p_.total_q);
  if (p_.kv_layout == KvLayout::ragged) cu_seqlens_kv_ = offsets("cu_seqlens_kv", p_.len_kv, p_.total_kv);
  if (p_.kv_lengths) {
    kv_lengths_ = allocate("kv_lengths", sizeof(std::int32_t), p_.batch);
    const bool no_pages = p_.kv_layout == KvLayout::paged && p_.num_pages == 0;
    const auto lengths =
        random_lengths(p_.batch, no_pages ? 0 : std::min(p_.len_kv, most), kUnbounded, random);
    std::ranges::copy(lengths, integers(kv_lengths_.data()));
  }
  tensors_.cu_seqlens_q = integers(cu_seqlens_q_.data());
  tensors_.cu_seqlens_kv = integers(cu_seqlens_kv_.data());
  tensors_.kv_lengths = integers(kv_lengths_.data());
  if (p_.kv_layout != KvLayout::paged) return;

  block_table_ = allocate("block_table", sizeof(std::int32_t), p_.batch * p_.pages_per_sequence);
  tensors_.block_table = integers(block_table_.data());
  std::vector<std::int32_t> shuffled(static_cast<std::size_t>(p_.num_pages));
  std::iota(shuffled.begin(), shuffled.end(), 0);
  for (std::size_t n = shuffled.size(); n > 1; --n) {
    std::swap(shuffled[n - 1],
              shuffled[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(n)))]);
  }
  std::size_t next = 0;
  for (std::int64_t b = 0; b < p_.batch; ++b) {
    const std::int64_t keys = sequence(p_, tensors_, b).len_kv;
    for (std::int64_t page = 0; page < p_.pages_per_sequence; ++page) {
      // An entry past the sequence's end may hold anything; both signs of nonsense are likely to fault.
      std::int32_t entry = page % 2 == 0 ? -1 : std::numeric_limits<std::int32_t>::max();
      if (page * p_.page_size < keys && !shuffled.empty()) entry = shuffled[next++ % shuffled.size()];
      integers(block_table_.data())[b * p_.pages_per_sequence + page] = entry;
    }
  }
}

void CaseData::fill_normal(Operand& operand, DType dtype, std::uint64_t which) const {
  const std::uint64_t numbers = stream(seed_, which);
  std::byte* data = operand.buffer.bytes().data();
  const std::int64_t count = operand.elements();
#pragma omp parallel for
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (operand.in_use[index] != 0) store(dtype, data, i, normal(numbers, index));
  }
}

void CaseData::make_queries_and_keys() {
  q_ = allocate_queries("q", p_.q, p_.dim_qk);
  k_ = allocate_keys("k", p_.k, p_.dim_qk);
  v_ = allocate_keys("v", p_.v, p_.dim_v);
  const bool no_such_page = p_.kv_layout == KvLayout::paged && p_.num_pages == 0;
  for (std::int64_t b = 0; b < p_.batch; ++b) {
    const Sequence s = sequence(p_, tensors_, b);
    for (std::int64_t h = 0; h < p_.heads_q && p_.dim_qk > 0; ++h) {
      for (std::int64_t i = 0; i < s.len_q; ++i) q_.use(query_offset(p_, p_.q, s, h, i), p_.dim_qk);
    }
    for (std::int64_t g = 0; g < p_.heads_kv && !no_such_page; ++g) {
      for (std::int64_t j = 0; j < s.len_kv; ++j) {
        if (p_.dim_qk > 0) k_.use(key_offset(p_, tensors_, p_.k, s, g, j), p_.dim_qk);
        if (p_.dim_v > 0) v_.use(key_offset(p_, tensors_, p_.v, s, g, j), p_.dim_v);
      }
    }
  }
  fill_normal(q_, p_.dtype, kQ);
  fill_normal(k_, p_.dtype, kK);
  fill_normal(v_, p_.dtype, kV);
  tensors_.q = q_.data();
  tensors_.k = k_.data();
  tensors_.v = v_.data();
}

void CaseData::hide_some(Operand& mask) const {
  const std::uint64_t pairs = stream(seed_, kHiddenPairs);
  const std::uint64_t rows = stream(seed_, kHiddenRows);
  const auto hide = [&](std::int64_t offset) {
    if (p_.mask == MaskKind::boolean) {
      *mask.at(offset) = std::byte{0};
    } else {
      store(p_.mask_dtype, mask.data(), offset, -kInfinity);
    }
  };
  const std::uint64_t percent = p_.mask == MaskKind::boolean ? 30 : 10;
  for (std::int64_t n = 0; n < mask.elements(); ++n) {
    const auto index = static_cast<std::size_t>(n);
    if (mask.in_use[index] == 0) continue;
    const std::uint64_t dice = scramble(pairs ^ index);
    // Any byte but 0 means "attend".
    if (p_.mask == MaskKind::boolean)
      *mask.at(n - mask.origin) = static_cast<std::byte>(1 + dice / 100 % 255);
    if (dice % 100 < percent) hide(n - mask.origin);
  }
  for (std::int64_t b = 0; b < p_.batch; ++b) {
    const Sequence s = sequence(p_, tensors_, b);
    for (std::int64_t h = 0; h < p_.heads_q; ++h) {
      for (std::int64_t i = 0; i < s.len_q; ++i) {
        // By memory, so that broadcast rows agree; never the first, or a broadcast mask would hide all.
        const std::int64_t row = mask_offset(p_, s, h, i, 0);
        if (row == 0 || scramble(rows ^ static_cast<std::uint64_t>(row)) % 20 != 0) continue;
        for (std::int64_t j = 0; j < s.len_kv; ++j) hide(mask_offset(p_, s, h, i, j));
      }
    }
  }
}

void CaseData::make_mask() {
  if (p_.mask == MaskKind::none) return;
  const MaskStrides& m = p_.mask_strides;
  mask_ = allocate("mask", p_.mask == MaskKind::boolean ? 1 : size_of(p_.mask_dtype), 1,
                   {{p_.batch, m.batch}, {p_.heads_q, m.head}, {p_.len_q, m.row}, {p_.len_kv, m.key}});
  tensors_.mask = mask_.data();
  for (std::int64_t b = 0; b < p_.batch; ++b) {
    const Sequence s = sequence(p_, tensors_, b);
    for (std::int64_t h = 0; h < p_.heads_q; ++h) {
      for (std::int64_t i = 0; i < s.len_q; ++i) {
        for (std::int64_t j = 0; j < s.len_kv; ++j) mask_.use(mask_offset(p_, s, h, i, j), 1);
      }
    }
  }
  if (p_.mask == MaskKind::additive) fill_normal(mask_, p_.mask_dtype, kMask);
  hide_some(mask_);
}

void CaseData::make_per_head() {
  if (p_.alibi) {
    slopes_ = allocate("alibi_slopes", sizeof(float), p_.heads_q, {{p_.batch, p_.alibi_batch_stride}});
    for (std::int64_t b = 0; b < p_.batch; ++b) {
      for (std::int64_t h = 0; h < p_.heads_q; ++h) {
        // The paper's geometric series, a little steeper for each batch so that mixing batches up shows.
        const auto exponent = -8.0F * static_cast<float>(h + 1) / static_cast<float>(p_.heads_q);
        const float slope = std::exp2(exponent) * (1.0F + 0.25F * static_cast<float>(b % 4));
        store(DType::f32, slopes_.data(), b * p_.alibi_batch_stride + h, slope);
      }
    }
    tensors_.alibi_slopes = static_cast<const float*>(slopes_.data());
  }
  if (p_.sinks) {
    sinks_ = allocate("sinks", sizeof(float), p_.heads_q);
    std::ranges::fill(sinks_.in_use, std::uint8_t{1});
    fill_normal(sinks_, DType::f32, kSinks);
    tensors_.sinks = static_cast<const float*>(sinks_.data());
  }
}

void CaseData::make_outputs() {
  o_ = allocate_queries("o", p_.o, p_.dim_v);
  if (p_.lse) {
    const LseStrides& l = p_.lse_strides;
    lse_ = allocate("lse", sizeof(float), 1,
                    {{p_.ragged_q ? 1 : p_.batch, l.batch},
                     {p_.heads_q, l.head},
                     {p_.ragged_q ? p_.total_q : p_.len_q, l.row}});
  }
  for (std::int64_t b = 0; b < p_.batch; ++b) {
    const Sequence s = sequence(p_, tensors_, b);
    for (std::int64_t h = 0; h < p_.heads_q; ++h) {
      for (std::int64_t i = 0; i < s.len_q; ++i) {
        if (p_.dim_v > 0) o_.use(query_offset(p_, p_.o, s, h, i), p_.dim_v);
        if (p_.lse) lse_.use(lse_offset(p_, s, h, i), 1);
      }
    }
  }
  tensors_.o = o_.data();
  tensors_.lse = static_cast<float*>(lse_.data());
  poison();
}

bool CaseData::attends(const Sequence& s, std::int64_t head, std::int64_t i, std::int64_t key) const {
  const KeyRange range = visible_keys(p_, s, i);
  if (key < range.begin || key >= range.end) return false;
  const std::int64_t offset = mask_offset(p_, s, head, i, key);
  if (p_.mask == MaskKind::boolean) return *mask_.at(offset) != std::byte{0};
  return p_.mask == MaskKind::none || load(p_.mask_dtype, tensors_.mask, offset) != -kInfinity;
}

bool CaseData::attends_any(const Sequence& s, std::int64_t head, std::int64_t i) const {
  const KeyRange range = visible_keys(p_, s, i);
  for (std::int64_t key = range.begin; key < range.end; ++key) {
    if (attends(s, head, i, key)) return true;
  }
  return false;
}

void CaseData::plant_nan() {
  Random random(stream(seed_, kNan));
  if (p_.heads_q == 0 || p_.batch == 0) return;
  constexpr int kAttempts = 16;  // the place must be one whose effect the definition settles
  for (int attempt = 0; attempt < kAttempts && !has_nan_; ++attempt) {
    const Sequence s = sequence(p_, tensors_, random.below(p_.batch));
    if (s.len_q == 0 || s.len_kv == 0) continue;
    const std::int64_t head = random.below(p_.heads_q);
    const std::int64_t i = random.below(s.len_q);
    const std::int64_t key = random.below(s.len_kv);
    const std::int64_t head_kv = head / p_.group();
    const std::int64_t tensor = random.below(3);
    const Operand& operand = tensor == 0 ? q_ : tensor == 1 ? k_ : v_;
    const std::int64_t dim = tensor == 2 ? p_.dim_v : p_.dim_qk;
    if (dim == 0 || operand.shared) continue;

    // A hidden key's NaN: nothing happens by K unless a bias of -inf meets it, anything may happen by V.
    bool settled = attends(s, head, i, key);
    if (tensor != 0 && (tensor == 2 || p_.mask == MaskKind::additive)) {
      for (std::int64_t r = 0; settled && r < p_.group() * s.len_q; ++r) {
        settled = attends(s, head_kv * p_.group() + r / s.len_q, r % s.len_q, key);
      }
    }
    if (!settled) continue;
    const std::int64_t row = tensor == 0   ? query_offset(p_, p_.q, s, head, i)
                             : tensor == 1 ? key_offset(p_, tensors_, p_.k, s, head_kv, key)
                                           : key_offset(p_, tensors_, p_.v, s, head_kv, key);
    store(p_.dtype, operand.data(), row + random.below(dim), std::numeric_limits<float>::quiet_NaN());
    has_nan_ = true;
  }
}

CaseData::Variant CaseData::absolute_values() const {
  const std::span<const std::byte> bytes = v_.buffer.bytes();
  Variant variant{.problem = p_, .tensors = tensors_, .values = {bytes.begin(), bytes.end()}};
  for (std::size_t i = v_.element_bytes - 1; i < bytes.size(); i += v_.element_bytes) {
    variant.values[i] &= std::byte{0x7f};  // the sign is the top bit of the last byte of all three types
  }
  variant.tensors.v = variant.values.data() + v_.origin * static_cast<std::int64_t>(v_.element_bytes);
  return variant;
}

CaseData::Variant CaseData::doubled_scores() const {
  Variant variant{.problem = p_, .tensors = tensors_};
  variant.problem.dim_v = 0;
  variant.problem.sinks = false;
  variant.problem.scale = 2 * p_.effective_scale();
  variant.problem.softcap = 2 * p_.softcap;
  const auto doubled = [](const Operand& operand, DType dtype, std::vector<std::byte>& copy) {
    const std::span<const std::byte> bytes = operand.buffer.bytes();
    copy.assign(bytes.begin(), bytes.end());
    for (std::int64_t n = 0; n < operand.elements(); ++n) {
      store(dtype, copy.data(), n, 2 * load(dtype, copy.data(), n));
    }
    return copy.data() + operand.origin * static_cast<std::int64_t>(operand.element_bytes);
  };
  if (p_.mask == MaskKind::additive) variant.tensors.mask = doubled(mask_, p_.mask_dtype, variant.mask);
  if (p_.alibi) {
    variant.tensors.alibi_slopes =
        reinterpret_cast<const float*>(doubled(slopes_, DType::f32, variant.slopes));
  }
  return variant;
}

void CaseData::poison() {
  fill_pattern(o_.buffer.bytes(), kPoison);
  fill_pattern(lse_.buffer.bytes(), kPoison);
}

bool CaseData::poisoned_o(std::int64_t offset) const {
  return is_pattern({o_.at(offset), o_.element_bytes}, kPoison);
}

bool CaseData::poisoned_lse(std::int64_t offset) const {
  return is_pattern({lse_.at(offset), lse_.element_bytes}, kPoison);
}

std::string CaseData::damage() const {
  const std::vector<std::uint64_t> present = input_checksums();
  for (std::size_t n = 0; n < present.size(); ++n) {
    if (present[n] != checksums_[n]) {
      return fmt::format("input {} or the memory around it was written to", inputs()[n]->name);
    }
  }
  for (const Operand* output : {&o_, &lse_}) {
    if (!output->buffer.bands_intact()) {
      return fmt::format("the memory before or after {} was written to", output->name);
    }
    for (std::int64_t n = 0; n < output->elements(); ++n) {
      const std::byte* element = output->at(n - output->origin);
      if (output->in_use[static_cast<std::size_t>(n)] == 0 &&
          !is_pattern({element, output->element_bytes}, kPoison)) {
        return fmt::format("the gap at element {} of {} was written to", n - output->origin, output->name);
      }
    }
  }
  return {};
}

std::vector<std::byte> CaseData::output_bytes() const {
  std::vector<std::byte> all;
  for (const Operand* output : {&o_, &lse_}) {
    const auto bytes = output->buffer.bytes();
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

std::array<const CaseData::Operand*, 10> CaseData::inputs() const {
  return {&q_,          &k_,          &v_, &mask_, &slopes_, &sinks_, &cu_seqlens_q_, &cu_seqlens_kv_,
          &kv_lengths_, &block_table_};
}

std::vector<std::uint64_t> CaseData::input_checksums() const {
  std::vector<std::uint64_t> sums;
  for (const Operand* input : inputs()) sums.push_back(checksum_of(input->buffer.accessible()));
  return sums;
}

}  // namespace saccade
