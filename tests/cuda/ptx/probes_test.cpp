// Every primitive of src/cuda/ptx, twice: the emulated body against a model, the device's against both.
#include "probes.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <random>

#include "emu/session.h"
#include "models.h"

namespace saccade {
namespace {

using Words = std::vector<std::uint32_t>;

Words input(const Probe& probe, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Words in(probe.in_words);
  for (std::uint32_t& word : in) word = static_cast<std::uint32_t>(random());
  if (probe.shape.rank > 0) {  // the kernel reads there how many words its box has
    std::uint32_t count = 1;
    for (const int size : probe_box(probe.shape.rank, probe.shape.swizzle, false).box)
      count *= static_cast<std::uint32_t>(size);
    in[0] = count / 2;
  }
  return in;
}

void expect_equal(const Probe& probe, const Words& got, const Words& wanted) {
  int shown = 0;
  for (std::size_t n = 0; n < wanted.size() && shown < 5; ++n) {
    if (got[n] == wanted[n]) continue;
    const auto x = std::bit_cast<float>(got[n]);
    const auto y = std::bit_cast<float>(wanted[n]);
    if (probe.tolerance > 0 && std::abs(x - y) <= probe.tolerance * std::abs(y)) continue;
    ADD_FAILURE() << "word " << n << " of " << wanted.size() << " is " << std::hex << got[n] << " (" << x
                  << "), not " << wanted[n] << " (" << y << ")";
    ++shown;
  }
}

class Probes : public testing::TestWithParam<std::size_t> {
 protected:
  [[nodiscard]] static const Probe& probe() { return emulated::probes()[GetParam()]; }
};

TEST_P(Probes, EmulatedAsTheModelSays) {
  for (std::uint64_t seed = 1; seed <= 9; ++seed) {
    const Words in = input(probe(), seed);
    Words out(probe().out_words);
    const emu::Session session({.seed = seed, .count = seed == 1});
    ASSERT_EQ(emulated::run_probe(GetParam(), in, out), "");
    expect_equal(probe(), out, model(probe(), in));
    if (HasFailure()) break;
  }
}

TEST_P(Probes, DeviceAsEmulated) {
#ifdef SACCADE_HAS_DEVICE
  ASSERT_EQ(device::probes()[GetParam()].name, probe().name);
  if (const std::string reason = device::why_not(probe()); !reason.empty()) GTEST_SKIP() << reason;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const Words in = input(probe(), seed);
    Words out(probe().out_words);
    Words wanted(probe().out_words);
    ASSERT_EQ(device::run_probe(GetParam(), in, out), "");
    ASSERT_EQ(emulated::run_probe(GetParam(), in, wanted), "");
    expect_equal(probe(), out, wanted);
    if (HasFailure()) break;
  }
#else
  GTEST_SKIP() << "this build has no CUDA compiler";
#endif
}

INSTANTIATE_TEST_SUITE_P(Ptx, Probes, testing::Range(std::size_t{0}, emulated::probes().size()),
                         [](const auto& parameter) { return emulated::probes()[parameter.param].name; });

}  // namespace
}  // namespace saccade
