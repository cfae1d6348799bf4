#include "measure/ceiling_kernels.h"

#include <hwy/cache_control.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "measure/ceiling_kernels.cpp"
// clang-format off: highway.h must follow foreach_target.h
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace saccade::measure::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Words = hn::ScalableTag<std::uint32_t>;

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}

double flops_per_chain() {
  return 2.0 * static_cast<double>(hn::Lanes(Floats()));
}

// Twelve chains in named variables: vectors of some targets cannot stand in arrays. x = x * a + b with a < 1
// stays near b / (1 - a), so no chain meets infinities or subnormals. All chains start at different numbers:
// the compiler merges equal ones.
struct TwelveChains {
  using V = hn::Vec<Floats>;
  V x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11;

  HWY_INLINE explicit TwelveChains(float start) {
    const Floats d;
    x0 = hn::Set(d, start), x1 = hn::Set(d, start + 1), x2 = hn::Set(d, start + 2);
    x3 = hn::Set(d, start + 3), x4 = hn::Set(d, start + 4), x5 = hn::Set(d, start + 5);
    x6 = hn::Set(d, start + 6), x7 = hn::Set(d, start + 7), x8 = hn::Set(d, start + 8);
    x9 = hn::Set(d, start + 9), x10 = hn::Set(d, start + 10), x11 = hn::Set(d, start + 11);
  }
  HWY_INLINE void step(V a, V b) {
    x0 = hn::MulAdd(x0, a, b), x1 = hn::MulAdd(x1, a, b), x2 = hn::MulAdd(x2, a, b);
    x3 = hn::MulAdd(x3, a, b), x4 = hn::MulAdd(x4, a, b), x5 = hn::MulAdd(x5, a, b);
    x6 = hn::MulAdd(x6, a, b), x7 = hn::MulAdd(x7, a, b), x8 = hn::MulAdd(x8, a, b);
    x9 = hn::MulAdd(x9, a, b), x10 = hn::MulAdd(x10, a, b), x11 = hn::MulAdd(x11, a, b);
  }
  HWY_INLINE V sum() const {
    const V low = hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)), hn::Add(x4, x5));
    const V high = hn::Add(hn::Add(hn::Add(x6, x7), hn::Add(x8, x9)), hn::Add(x10, x11));
    return hn::Add(low, high);
  }
};

float fma_12(std::int64_t iterations) {
  const Floats d;
  const auto a = hn::Set(d, 0.999F), b = hn::Set(d, 0.001F);
  TwelveChains chains(1);
  for (std::int64_t i = 0; i < iterations; ++i) chains.step(a, b);
  return hn::GetLane(hn::SumOfLanes(d, chains.sum()));
}

float fma_24(std::int64_t iterations) {
  const Floats d;
  const auto a = hn::Set(d, 0.999F), b = hn::Set(d, 0.001F);
  TwelveChains first(1), second(13);
  for (std::int64_t i = 0; i < iterations; ++i) {
    first.step(a, b);
    second.step(a, b);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(first.sum(), second.sum())));
}

// Four loads a step into four chains of XOR, which is the cheapest use of a loaded vector. Prefetching is
// worth up to 40% where small pages stop the hardware's own prefetcher.
template <int kStreams, Prefetch kPrefetch>
std::uint32_t read(const std::byte* data, std::size_t bytes) {
  constexpr std::size_t kLine = 64 / sizeof(std::uint32_t);
  constexpr std::size_t kAhead = (kPrefetch == Prefetch::first_level ? 1024 : 2048) / sizeof(std::uint32_t);
  constexpr int kLocality = kPrefetch == Prefetch::first_level ? 3 : 2;
  const Words d;
  const std::size_t step = hn::Lanes(d);
  const std::size_t run = bytes / sizeof(std::uint32_t) / kStreams;
  const auto* words = reinterpret_cast<const std::uint32_t*>(data);
  auto x0 = hn::Zero(d), x1 = x0, x2 = x0, x3 = x0;
  for (std::size_t i = 0; i < run; i += 4 * step) {
    for (int stream = 0; stream < kStreams; ++stream) {
      const std::uint32_t* const at = words + static_cast<std::size_t>(stream) * run + i;
      if constexpr (kPrefetch != Prefetch::none) {
        for (std::size_t line = 0; line < 4 * step; line += kLine)
          __builtin_prefetch(at + kAhead + line, 0, kLocality);
      }
      x0 = hn::Xor(x0, hn::LoadU(d, at));
      x1 = hn::Xor(x1, hn::LoadU(d, at + step));
      x2 = hn::Xor(x2, hn::LoadU(d, at + 2 * step));
      x3 = hn::Xor(x3, hn::LoadU(d, at + 3 * step));
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Xor(hn::Xor(x0, x1), hn::Xor(x2, x3))));
}

template <int kStreams>
std::uint32_t read_streams(const std::byte* data, std::size_t bytes, Prefetch prefetch) {
  switch (prefetch) {
    case Prefetch::none:
      return read<kStreams, Prefetch::none>(data, bytes);
    case Prefetch::first_level:
      return read<kStreams, Prefetch::first_level>(data, bytes);
    default:
      return read<kStreams, Prefetch::second_level>(data, bytes);
  }
}

std::uint32_t read_with(const std::byte* data, std::size_t bytes, int streams, Prefetch prefetch) {
  switch (streams) {
    case 1:
      return read_streams<1>(data, bytes, prefetch);
    case 2:
      return read_streams<2>(data, bytes, prefetch);
    case 4:
      return read_streams<4>(data, bytes, prefetch);
    default:
      return read_streams<8>(data, bytes, prefetch);
  }
}

template <bool kStreaming>
void copy_all(const std::byte* from, std::byte* to, std::size_t bytes) {
  const Words d;
  const std::size_t step = hn::Lanes(d);
  const auto* source = reinterpret_cast<const std::uint32_t*>(from);
  auto* target = reinterpret_cast<std::uint32_t*>(to);
  const auto store = [&](hn::Vec<Words> x, std::uint32_t* at) {
    if constexpr (kStreaming) {
      hn::Stream(x, d, at);
    } else {
      hn::Store(x, d, at);
    }
  };
  for (std::size_t i = 0; i < bytes / sizeof(std::uint32_t); i += 4 * step) {
    const auto a = hn::Load(d, source + i), b = hn::Load(d, source + i + step);
    const auto c = hn::Load(d, source + i + 2 * step), e = hn::Load(d, source + i + 3 * step);
    store(a, target + i);
    store(b, target + i + step);
    store(c, target + i + 2 * step);
    store(e, target + i + 3 * step);
  }
  if constexpr (kStreaming) hwy::FlushStream();
}

void copy(const std::byte* from, std::byte* to, std::size_t bytes) {
  copy_all<false>(from, to, bytes);
}
void copy_streaming(const std::byte* from, std::byte* to, std::size_t bytes) {
  copy_all<true>(from, to, bytes);
}

}  // namespace saccade::measure::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace saccade::measure {

HWY_EXPORT(target_name);
HWY_EXPORT(flops_per_chain);
HWY_EXPORT(fma_12);
HWY_EXPORT(fma_24);
HWY_EXPORT(read_with);
HWY_EXPORT(copy);
HWY_EXPORT(copy_streaming);

const char* simd_target() {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}

double fma_flops_per_iteration(bool wide) {
  return HWY_DYNAMIC_DISPATCH(flops_per_chain)() * (wide ? 24 : 12);
}

float fma_loop(bool wide, std::int64_t iterations) {
  return wide ? HWY_DYNAMIC_DISPATCH(fma_24)(iterations) : HWY_DYNAMIC_DISPATCH(fma_12)(iterations);
}

std::uint32_t read_loop(const std::byte* data, std::size_t bytes, int streams, Prefetch prefetch) {
  return HWY_DYNAMIC_DISPATCH(read_with)(data, bytes, streams, prefetch);
}

void copy_loop(const std::byte* from, std::byte* to, std::size_t bytes, bool streaming) {
  streaming ? HWY_DYNAMIC_DISPATCH(copy_streaming)(from, to, bytes)
            : HWY_DYNAMIC_DISPATCH(copy)(from, to, bytes);
}

}  // namespace saccade::measure
#endif
