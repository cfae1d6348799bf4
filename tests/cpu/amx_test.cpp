// What only the AMX kernel does: numbers cut into bf16 parts, blocks handed over when a number is not finite,
// and a no where there are no tiles.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "core/dtypes.h"
#include "cpu/amx_tiles.h"
#include "cpu_machine.h"
#include "logical_case.h"
#include "verify/verify.h"

namespace saccade {
namespace {

class Amx : public testing::Test {
 protected:
  void SetUp() override {
    const Result<Plan> plan = make_plan(Problem::dense(1, 1, 64, 64), {.kernel = "cpu_amx"});
    if (!plan.ok()) GTEST_SKIP() << plan.status().message();
  }
};

using Numbers = std::array<float, 16>;

/// The parts of sixteen numbers, largest first.
std::vector<Numbers> split(const Numbers& x, int parts) {
  std::vector<Numbers> result(static_cast<std::size_t>(parts));
  amx::split(x.data(), parts, result.front().data());
  return result;
}

/// Expects x to be exactly the sum of its parts, each of them a bf16 number.
void expect_exact(const Numbers& x, int parts) {
  const std::vector<Numbers> cut = split(x, parts);
  for (std::size_t n = 0; n < x.size(); ++n) {
    double sum = 0;
    for (const Numbers& part : cut) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(part[n]) & 0xffffU, 0U) << x[n];
      ASSERT_EQ(to_float(from_float<BF16>(part[n])), part[n]) << x[n];
      sum += static_cast<double>(part[n]);
    }
    ASSERT_EQ(sum, static_cast<double>(x[n])) << "in " << parts << " parts";
  }
}

TEST_F(Amx, ThreePartsHoldAFloatExactly) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 100'000; ++round) {
    Numbers x{};
    for (float& each : x) {
      // Any bits, except those whose last part would be subnormal, which tiles take for 0.
      do {
        each = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      } while (!std::isfinite(each) || std::abs(each) < 0x1p-100F);
    }
    expect_exact(x, 3);
    if (HasFatalFailure()) return;
  }
}

TEST_F(Amx, TwoPartsHoldEveryHalfExactly) {
  for (std::uint32_t bits = 0; bits < 0x10000; bits += 16) {
    Numbers x{};
    for (std::uint32_t n = 0; n < 16; ++n) {
      x[n] = to_float(F16{static_cast<std::uint16_t>(bits + n)});
      if (!std::isfinite(x[n])) x[n] = 0;
    }
    expect_exact(x, 2);
    if (HasFatalFailure()) return;
  }
}

TEST_F(Amx, OddDimensionsAndLengthsArePadded) {
  for (const char* shape :
       {"b1 h2 lq33 lk65 dqk1 dv1", "b1 h2 lq33 lk65 dqk8 dv0 lse", "b1 h2 lq17 lk31 dqk33 dv15",
        "b1 h1 lq50 lk97 dqk80 dv96", "b1 h2/1 lq40 lk33 dqk31 dv65", "b1 h1 lq35 lk70 dqk256 dv200"}) {
    for (const char* words : {"f32", "f16 causal", "bf16 causal-br"}) {
      const Problem p = parse_problem(fmt::format("{} {}", shape, words)).value();
      const Verdict verdict = verify(p, kernel_runner({.kernel = "cpu_amx"}), {.seed = 3});
      for (const Failure& failure : verdict.failures) ADD_FAILURE() << to_string(p) << ": " << failure.detail;
    }
  }
}

TEST_F(Amx, NumbersThatAreNotFiniteGiveWhatTheVectorKernelGives) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    for (const float bad : {kInfinity, -kInfinity, kNan}) {
      for (const int tensor : {0, 1, 2}) {
        const Problem p = parse_problem(fmt::format("b1 h2 lq70 lk300 d40 {} causal-br lse", dtype)).value();
        LogicalCase c(p, 9);
        std::vector<float>& x = tensor == 0 ? c.q : tensor == 1 ? c.k : c.v;
        x[static_cast<std::size_t>(201 * 40 + 7) % x.size()] = bad;
        const LogicalOutputs got = run_case("cpu_amx", c);
        const LogicalOutputs expected = run_case("cpu_blocked", c);
        const auto kind = [](double value) { return std::isnan(value) ? 2 : std::isinf(value) ? 1 : 0; };
        for (std::size_t n = 0; n < got.o.size(); ++n) {
          ASSERT_EQ(kind(got.o[n]), kind(expected.o[n])) << dtype << ", " << bad << " in tensor " << tensor;
        }
        for (std::size_t n = 0; n < got.lse.size(); ++n) {
          ASSERT_EQ(kind(got.lse[n]), kind(expected.lse[n]))
              << dtype << ", " << bad << " in tensor " << tensor;
        }
      }
    }
  }
}

TEST_F(Amx, PartsOfTheKeysMayMeetANumberThatIsNotFinite) {
  // One part of the keys goes to the vector kernel, the others do not; their states must merge all the same.
  const Problem p = parse_problem("b1 h1 lq64 lk512 d64 f32").value();
  LogicalCase c(p, 4);
  for (std::size_t d = 0; d < 64; ++d) c.q[d] = std::abs(c.q[d]);
  const LogicalOutputs clean = run_case("cpu_amx", c);
  c.k[400 * 64] = -std::numeric_limits<float>::infinity();  // query 0 does not see key 400 any more
  c.q[0] = 1;
  const LogicalOutputs out = run_case("cpu_amx", c);
  const LogicalOutputs expected = run_case("cpu_blocked", c);
  for (std::size_t d = 0; d < 64; ++d) EXPECT_NEAR(out.o[d], expected.o[d], 1e-5);
  EXPECT_TRUE(std::isfinite(out.o[0]) && std::isfinite(clean.o[0]));
}

TEST_F(Amx, IsChosenWhereItPaysAndTakenByNameElsewhere) {
  for (const char* shape : {"b1 h8 l1024 d64 f16 causal", "b1 h8 l64 d64 f16", "b1 h8 l128 d128 bf16"}) {
    EXPECT_EQ(make_plan(parse_problem(shape).value())->kernel(), "cpu_amx") << shape;
  }
  for (const char* shape : {"b1 h8 l128 d64 f32", "b1 h8 l1024 d64 f32 causal"}) {
    const Problem p = parse_problem(shape).value();
    const Result<Plan> plan = make_plan(p);
    EXPECT_EQ(plan->kernel(), "cpu_blocked") << shape;
    EXPECT_NE(plan->explain().find("\n  cpu_amx "), std::string::npos) << plan->explain();
    EXPECT_NE(plan->explain().find(" no: six products"), std::string::npos) << plan->explain();
    EXPECT_TRUE(make_plan(p, {.kernel = "cpu_amx"}).ok()) << shape;
  }
}

TEST(AmxRejection, SaysWhatIsMissing) {
  const Problem p = Problem::dense(1, 1, 64, 64);
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (target == HWY_AVX3) continue;
    const OnlyTarget only(target);
    const Result<Plan> named = make_plan(p, {.kernel = "cpu_amx"});
    ASSERT_FALSE(named.ok()) << hwy::TargetName(target);
    EXPECT_NE(named.status().message().find("cpu_amx: "), std::string::npos) << named.status().message();
    const Result<Plan> any = make_plan(p);
    ASSERT_TRUE(any.ok());
    EXPECT_NE(any->kernel(), "cpu_amx");
    EXPECT_NE(any->explain().find("\n  cpu_amx "), std::string::npos) << any->explain();
  }
}

}  // namespace
}  // namespace saccade
