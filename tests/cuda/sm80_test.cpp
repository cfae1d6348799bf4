// Every instance of the sm80 family in the emulator: odd shapes, several seeds, no bank conflicts.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>

#include "cuda/kernels.h"
#include "cuda/sm80/config.h"
#include "emu/session.h"
#include "support/from_environment.h"
#include "verify/case_data.h"
#include "verify/emulated.h"

namespace saccade {
namespace {

struct Named {
  sm80::Config config;
  std::string text;
};

std::vector<Named> instances() {
  std::vector<Named> list;
  const auto add = [&](const sm80::Config& c) {
    list.push_back(
        {c,
         fmt::format("row_warps={} row_tiles={} key_groups={} tile_keys={} score_keys={} stages={} "
                     "blocks={}",
                     c.row_warps, c.row_tiles, c.key_groups, c.tile_keys, c.score_keys, c.stages, c.blocks)});
  };
#define SACCADE_SM80(...) add(sm80::Instance<__VA_ARGS__>::kConfig);
#include "cuda/sm80/instances.def"
#undef SACCADE_SM80
  return list;
}

class Sm80 : public testing::TestWithParam<Named> {
 protected:
  static const Kernel& kernel() { return *find_emulated("sm80"); }
  void expect_right(const std::string& text, std::uint64_t seed) const {
    const std::string shape = text + fmt::format(" d{}", GetParam().config.dim);
    const Problem problem = parse_problem(shape).value();
    const Verdict verdict =
        verify(problem, emulated_runner(kernel(), GetParam().text, {.seed = seed}), {.seed = seed});
    ASSERT_TRUE(verdict.passed()) << shape << " with " << GetParam().text << ", seed " << seed << ": "
                                  << verdict.failures.front().detail;
  }
};

TEST_P(Sm80, IsRightForEveryKindOfProblem) {
  std::uint64_t seed = 3;
  for (const char* shape :
       {"b1 h1 l64 f16", "b1 h2 l100 bf16 causal", "b2 h4/2 lq33 lk330 f16 causal br lse",
        "b1 h1 lq130 lk33 f16 causal br", "b1 h3 lq1 lk270 bf16 lse", "b1 h1 lq65 lk1 f16",
        "b2 h1 lq5 lk0 f16 lse", "b1 h1 lq0 lk5 f16", "b1 h2 l96 f16 scale=-0.3",
        "b1 h1 lq40 lk90 bf16 scale=0", "b1 h1 l300 f16 window=40,0",
        "b1 h1 lq70 lk290 f16 window=30,17 br lse", "b1 h2 l70 f16 blhd"}) {
    expect_right(shape, seed++);
  }
}

TEST_P(Sm80, IsRightWhateverTheOrder) {
  const std::uint64_t seeds = from_environment("SACCADE_EMULATOR_SEEDS", 6);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed)
    expect_right(seed % 2 == 0 ? "b1 h1 lq70 lk400 f16 causal br" : "b1 h1 lq40 lk390 bf16", seed);
}

TEST_P(Sm80, IsRightForRandomLengths) {
  std::mt19937 random(7);
  const auto up_to = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    expect_right(fmt::format("b{} h{} lq{} lk{} {}{}{}", 1 + up_to(2), up_to(2) == 0 ? "1" : "4/2",
                             1 + up_to(200), 1 + up_to(600), up_to(2) == 0 ? "f16" : "bf16",
                             up_to(2) == 0 ? "" : " causal", up_to(2) == 0 ? "" : " br"),
                 seed);
  }
}

TEST_P(Sm80, HasNoBankConflicts) {
  const Problem problem = parse_problem(fmt::format("b1 h1 l300 f16 d{}", GetParam().config.dim)).value();
  const CaseData data(problem, 1);
  const emu::Session session({.seed = 1, .count = true});
  const Result<Prepared> prepared = kernel().prepare(problem, emulated_machine(), GetParam().text);
  ASSERT_TRUE(prepared.ok() && prepared->launch(data.tensors(), nullptr, nullptr).ok());
  const emu::Counters counted = session.counters();
  EXPECT_GT(counted.total(emu::Traffic::shared_load).instructions, 0U);
  EXPECT_EQ(counted.bank_conflicts(), 0U);
}

TEST_P(Sm80, TheSameBitsWhateverTheOrder) {
  const Problem problem = parse_problem(fmt::format("b1 h2 l200 f16 d{}", GetParam().config.dim)).value();
  std::vector<std::byte> first;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    CaseData data(problem, 1);
    data.poison();
    const emu::Session session({.seed = seed});
    const Result<Prepared> prepared = kernel().prepare(problem, emulated_machine(), GetParam().text);
    ASSERT_TRUE(prepared.ok() && prepared->launch(data.tensors(), nullptr, nullptr).ok());
    const auto* o = static_cast<const std::byte*>(data.tensors().o);
    const std::vector<std::byte> bytes(o, o + 2 * 200 * problem.dim_v * 2);
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first) << "seed " << seed;
  }
}

TEST(Sm80Planner, TakesWhatFitsTheChip) {
  const Kernel& kernel = *find_emulated("sm80");
  Machine ada = emulated_machine();
  ada.shared_bytes_per_block = std::size_t{99} << 10;
  ada.multiprocessors = 58;
  for (const Machine& machine : {emulated_machine(), ada}) {
    for (const char* shape :
         {"b1 h8 l512 d64 f16", "b8 h16 l2048 d64 f16", "b1 h16 l512 d128 bf16", "b8 h16 l2048 d128 f16"}) {
      const Result<Prepared> prepared = kernel.prepare(parse_problem(shape).value(), machine, "");
      ASSERT_TRUE(prepared.ok()) << prepared.status().message();
      int found = 0;
      for (const Named& instance : instances()) {
        if (instance.text != prepared->config || instance.config.dim != parse_problem(shape).value().dim_qk)
          continue;
        ++found;
        EXPECT_LE(instance.config.shared_bytes(), machine.shared_bytes_per_block);
      }
      EXPECT_EQ(found, 1) << prepared->config;
      // The text names the same instance again.
      EXPECT_EQ(kernel.prepare(parse_problem(shape).value(), machine, prepared->config)->config,
                prepared->config);
    }
  }
  const Result<Prepared> large =
      kernel.prepare(parse_problem("b1 h1 l64 d64 f16").value(), ada,
                     "row_warps=2 row_tiles=1 key_groups=4 tile_keys=64 score_keys=64 stages=3 blocks=1");
  EXPECT_NE(large.status().message().find("bytes of shared memory"), std::string::npos)
      << large.status().message();
  const Result<Prepared> unknown =
      kernel.prepare(parse_problem("b1 h1 l64 d64 f16").value(), ada, "row_warps=7");
  EXPECT_EQ(unknown.status().code(), Code::invalid_argument);
  EXPECT_NE(unknown.status().message().find("row_warps=7"), std::string::npos) << unknown.status().message();
}

TEST(Sm80Planner, LeavesOddAddressesToTheReferenceKernel) {
  const Problem problem = parse_problem("b1 h1 l64 d64 f16").value();
  Machine odd = emulated_machine();
  odd.pointer_alignment = 2;
  for (const Kernel* kernel : emulated::kernels()) {
    const bool plain = kernel->name == "cuda_reference";
    EXPECT_EQ(kernel->reject(problem, odd).has_value(), !plain) << kernel->name;
    EXPECT_FALSE(kernel->reject(problem, emulated_machine()).has_value()) << kernel->name;
  }
}

INSTANTIATE_TEST_SUITE_P(Instances, Sm80, testing::ValuesIn(instances()), [](const auto& named) {
  const sm80::Config& c = named.param.config;
  return fmt::format("d{}_w{}x{}_g{}", c.dim, c.row_warps, c.row_tiles, c.key_groups);
});

}  // namespace
}  // namespace saccade
