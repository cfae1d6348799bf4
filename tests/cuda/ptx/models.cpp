#include "models.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "core/dtypes.h"

namespace saccade {
namespace {

using Words = std::vector<std::uint32_t>;
using In = std::span<const std::uint32_t>;

std::uint32_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
float small(std::uint32_t word) {
  return static_cast<float>(static_cast<int>(word % 9) - 4);
}
/// The 16-bit number at this place of an array of words.
std::uint32_t half(In words, std::size_t n) {
  return words[n / 2] >> (16 * (n % 2)) & 0xffffU;
}
void set_half(Words& words, std::size_t n, std::uint32_t value) {
  const std::size_t shift = 16 * (n % 2);
  words[n / 2] = (words[n / 2] & ~(0xffffU << shift)) | value << shift;
}

Words memory(const Probe& probe, In in) {
  Words out(probe.out_words);
  for (std::size_t lane = 0; lane < 32; ++lane) {
    for (std::size_t n = 0; n < 2; ++n) out[2 * lane + n] = in[2 * (lane ^ 5) + n];
    for (std::size_t n = 0; n < 4; ++n) out[64 + 4 * lane + n] = in[4 * (31 - lane) + n];
    out[192 + lane] = half(in, lane) << 8 | (in[lane / 4] >> (8 * (lane % 4)) & 0xffU);
  }
  std::uint64_t added = 0, sum = 0;
  for (std::size_t lane = 0; lane < 32; ++lane) {
    added += std::uint64_t{in[4 * lane + 1]} << 8;
    sum += in[4 * lane + 2];
  }
  out[224] = static_cast<std::uint32_t>(added);
  out[225] = static_cast<std::uint32_t>(added >> 32);
  out[226] = static_cast<std::uint32_t>(sum);
  out[227] = static_cast<std::uint32_t>(sum >> 32);
  return out;
}

Words conversions(const Probe& probe, In in) {
  Words out;
  out.reserve(probe.out_words);
  for (const std::uint32_t word : in) {
    const float x = static_cast<float>(static_cast<std::int32_t>(word)) * 0x1p-20F;
    const auto finite = static_cast<std::uint16_t>(word & 0xbfffU);
    const auto pair = [&]<class T>(T) {
      return from_float<T>(x).bits | std::uint32_t{from_float<T>(-2 * x).bits} << 16;
    };
    out.insert(out.end(), {bits(to_float(F16{finite})), bits(to_float(BF16{finite})), from_float<F16>(x).bits,
                           from_float<BF16>(x).bits, pair(F16{}), pair(BF16{}), bits(std::fma(x, x, -x)),
                           bits(out.size() / 8 % 4 == 0 || x > 0.5F ? x : 0.5F)});
  }
  return out;
}

Words functions(const Probe& probe, In in) {
  Words out;
  out.reserve(probe.out_words);
  for (const std::uint32_t word : in) {
    const double x = static_cast<double>(word % 2048) / 64 + 1.25;
    for (const double y : {std::exp2(-x), std::log2(x), 1 / x, std::tanh(x / 8), std::exp2(x), std::log2(x)})
      out.push_back(bits(static_cast<float>(y)));
  }
  return out;
}

Words warp(const Probe& probe, In in) {
  Words out(probe.out_words);
  Words sums(in.begin(), in.end());
  for (std::size_t distance = 1; distance < 32; distance *= 2) {
    const Words before = sums;
    for (std::size_t n = 0; n < 32; ++n) sums[n] = 3 * before[n] + before[n ^ distance];
  }
  bool any = false;
  for (const std::uint32_t word : in) any = any || word % 64 == 0;
  for (std::size_t n = 0; n < 32; ++n) {
    out[n] = sums[n];
    out[32 + n] = in[in[n] % 32];
    out[64 + n] = 1;
    out[96 + n] = 2 + (any ? 1 : 0);
  }
  return out;
}

Words barriers(const Probe& probe, In in) {
  Words out(probe.out_words);
  for (std::size_t n = 0; n < 128; ++n) {
    const std::size_t from = (n + 1) % 128;
    out[n] = in[from < 64 ? from ^ 32 : from < 96 ? from : from - 32];
  }
  return out;
}

Words cp_async(const Probe& probe, In in) {
  Words out(probe.out_words);
  for (std::size_t n = 0; n < probe.out_words; ++n) {
    const std::size_t stage = n / 512;
    const std::size_t thread = n / 4 % 128;
    const std::size_t from = stage == 0 ? thread : thread ^ 77;
    const std::size_t bytes = (5 * from + stage) % 17;
    const std::size_t here = std::min<std::size_t>(bytes - std::min(bytes, n % 4 * 4), 4);
    const std::uint64_t kept = (std::uint64_t{1} << 8 * here) - 1;
    out[n] = static_cast<std::uint32_t>(in[512 * stage + 4 * from + n % 4] & kept);
  }
  return out;
}

Words copied(const Probe& probe, In in) {
  Words out(probe.out_words);
  for (std::size_t n = 0; n < probe.out_words; ++n) {
    const std::size_t from = n / 4 ^ 45;
    const bool valid = (from % 64 + from / 64) % 2 == 1;
    out[n] = valid ? in[4 * from + n % 4] : 0;
  }
  return out;
}

Words ldmatrix(const Probe& probe, In in) {
  Words out(probe.out_words);
  for (std::size_t lane = 0; lane < 32; ++lane) {
    for (std::size_t m = 0; m < 4; ++m) {
      for (std::size_t n = 0; n < 2; ++n) {
        const std::size_t major = lane / 4;
        const std::size_t minor = lane % 4 * 2 + n;
        const std::size_t at = probe.shape.transposed ? minor * 8 + major : major * 8 + minor;
        set_half(out, 2 * (4 * lane + m) + n, half(in, 64 * m + at));
      }
    }
  }
  return out;
}

Words stmatrix(const Probe& probe, In in) {
  Words out(probe.out_words);
  for (std::size_t n = 0; n < 256; ++n) {
    const std::size_t lane = n % 64 / 8 * 4 + n % 8 / 2;
    set_half(out, n, half(in, 2 * (4 * lane + n / 64) + n % 2));
  }
  return out;
}

Words mma(const Probe& probe, In in) {
  Words out(probe.out_words);
  const auto left = [&](std::size_t row, std::size_t k) {  // the lane and register that hold it
    return small(in[16 * (row % 8 * 4 + k % 8 / 2) + 2 * (row / 8 + k / 8 * 2) + k % 2]);
  };
  const auto right = [&](std::size_t k, std::size_t column) {
    return small(in[16 * (column * 4 + k % 8 / 2) + 8 + 2 * (k / 8) + k % 2]);
  };
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 8; ++column) {
      const std::size_t lane = row % 8 * 4 + column / 2;
      const std::size_t n = row / 8 * 2 + column % 2;
      float sum = small(in[16 * lane + 12 + n]);
      for (std::size_t k = 0; k < 16; ++k) sum += left(row, k) * right(k, column);
      out[4 * lane + n] = bits(sum);
    }
  }
  return out;
}

Words wmma(const Probe& probe, In in) {
  Words out(probe.out_words);
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 16; ++column) {
      float product = 0;
      for (std::size_t k = 0; k < 16; ++k) {
        const std::size_t b = probe.shape.transposed ? 16 * column + k : 16 * k + column;
        product += small(in[16 * row + k]) * small(in[256 + b]);
      }
      out[16 * row + column] = bits(product + small(in[512 + 16 * row + column]));
      out[256 + 16 * row + column] = bits(product);
    }
  }
  return out;
}

Words mbarrier(const Probe& probe, In in) {
  Words out(probe.out_words);
  for (std::size_t n = 0; n < probe.out_words; ++n) out[n] = in[n ^ 3];
  return out;
}

Words bulk(const Probe& probe, In in) {
  Words out(probe.out_words);
  for (std::size_t n = 0; n < 64; ++n) out[n] = in[n ^ 32] * 3 + 1;
  return out;
}

/// Calls act(offset in bytes of the box in shared memory, index of the element in the tensor or -1).
template <class Act>
void for_each_element(const ProbeBox& box, int swizzle, Act&& act) {
  std::size_t count = 1;
  for (const int size : box.box) count *= static_cast<std::size_t>(size);
  for (std::size_t n = 0; n < count; ++n) {
    auto rest = static_cast<int>(n);
    int index = 0;
    int step = 1;
    bool inside = true;
    for (std::size_t dimension = 0; dimension < 5; ++dimension) {
      const int at = box.at[dimension] + rest % box.box[dimension];
      rest /= box.box[dimension];
      inside = inside && at >= 0 && at < box.size[dimension];
      index += at * step;
      step *= box.size[dimension];
    }
    const std::size_t row = 2 * n / 128;  // of 128 bytes
    const std::size_t chunk = 2 * n / 16 % 8;
    const std::size_t mask = swizzle == 128 ? 7 : swizzle == 64 ? 3 : swizzle == 32 ? 1 : 0;
    act(row * 128 + (chunk ^ (row & mask)) * 16 + 2 * n % 16, inside ? index : -1);
  }
}

Words tensor_load(const Probe& probe, In in) {
  Words out(probe.out_words);
  const ProbeShape& shape = probe.shape;
  for_each_element(probe_box(shape.rank, shape.swizzle, false), shape.swizzle,
                   [&](std::size_t byte, int index) {
                     set_half(out, byte / 2, index < 0 ? 0 : half(in, static_cast<std::size_t>(index)));
                   });
  return out;
}

Words tensor_store(const Probe& probe, In in) {
  Words out(probe.out_words);
  const ProbeShape& shape = probe.shape;
  for_each_element(probe_box(shape.rank, shape.swizzle, true), shape.swizzle,
                   [&](std::size_t byte, int index) {
                     if (index >= 0) set_half(out, static_cast<std::size_t>(index), half(in, byte / 2));
                   });
  return out;
}

Words cluster(const Probe& probe, In in) {
  Words out(probe.out_words);
  Words box(1024);
  const ProbeBox layout{{0, 3, 0, 0, 0}, {64, 32, 1, 1, 1}, {64, 32, 1, 1, 1}};
  for_each_element(layout, 128, [&](std::size_t byte, int index) {
    set_half(box, byte / 2, index < 0 ? 0 : half(in, static_cast<std::size_t>(index)));
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    std::uint32_t* its = out.data() + 1408 * rank;
    for (std::size_t n = 0; n < 64; ++n) {
      its[n] = in[64 * (1 - rank) + (n ^ 1)];
      its[64 + n] = in[64 * (1 - rank) + 63 - n] + 5;
    }
    std::copy(box.begin(), box.end(), its + 128);
    for (std::size_t n = 0; n < 64; ++n) {
      const std::uint32_t word = in[64 * (1 - rank) + (n ^ 7)];
      const std::uint32_t parcel[] = {word, word + 1, word ^ 2, word * 3};
      std::copy(std::begin(parcel), std::end(parcel), its + 1152 + 4 * n);
    }
  }
  return out;
}

Words registers(const Probe& probe, In in) {
  Words out(probe.out_words);
  for (std::size_t n = 0; n < 256; ++n) out[n] = in[n] + (n < 128 ? 1 : 2);
  return out;
}

Words dependent(const Probe& probe, In in) {
  Words out(probe.out_words);
  for (std::size_t n = 0; n < 32; ++n) out[n] = in[n] ^ 0xffU;
  return out;
}

Words wgmma(const Probe& probe, In in) {
  Words out(probe.out_words);
  const auto columns = static_cast<std::size_t>(probe.shape.columns);
  for (std::size_t row = 0; row < 64; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      float sum = probe.shape.a_registers ? 1 : 0;
      for (std::size_t k = 0; k < 32; ++k)
        sum += small(in[32 * row + k]) * small(in[2048 + columns * k + column]);
      out[columns * row + column] = bits(sum);
    }
  }
  return out;
}

}  // namespace

std::vector<std::uint32_t> model(const Probe& probe, std::span<const std::uint32_t> in) {
  static const std::map<std::string, Words (*)(const Probe&, In)> kModels = {
      {"memory", memory},
      {"conversions", conversions},
      {"functions", functions},
      {"warp", warp},
      {"barriers", barriers},
      {"cp_async", cp_async},
      {"ldmatrix", ldmatrix},
      {"ldmatrix_transposed", ldmatrix},
      {"stmatrix", stmatrix},
      {"mma_f16", mma},
      {"mma_bf16", mma},
      {"wmma", wmma},
      {"wmma_transposed", wmma},
      {"copied", copied},
      {"mbarrier", mbarrier},
      {"bulk", bulk},
      {"tensor_load", tensor_load},
      {"tensor_store", tensor_store},
      {"cluster", cluster},
      {"registers", registers},
      {"dependent", dependent},
      {"wgmma", wgmma}};
  return kModels.at(probe.family)(probe, in);
}

}  // namespace saccade
