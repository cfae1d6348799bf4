// Every instance of the sm80 family in the emulator: odd shapes, several seeds, no bank conflicts.
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <span>

#include "core/dtypes.h"
#include "cuda/kernels.h"
#include "cuda/sm80/config.h"
#include "emu/session.h"
#include "family.h"
#include "support/from_environment.h"
#include "verify/case_data.h"
#include "verify/emulated.h"
#include "verify/fuzz.h"

namespace saccade {
namespace {

using Named = saccade::Named<sm80::Config>;

std::vector<Named> instances() {
  std::vector<Named> list;
  const auto add = [&](const sm80::Config& c) {
    list.push_back(
        {c, fmt::format("dim={} row_warps={} row_tiles={} key_groups={} tile_keys={} score_keys={} stages={} "
                        "blocks={} general={}",
                        c.dim, c.row_warps, c.row_tiles, c.key_groups, c.tile_keys, c.score_keys, c.stages,
                        c.blocks, c.general)});
  };
#define SACCADE_SM80(...) add(sm80::Instance<__VA_ARGS__>::kConfig);
#include "cuda/sm80/instances.def"
#undef SACCADE_SM80
  return list;
}

class Sm80 : public testing::TestWithParam<Named> {
 protected:
  static const Kernel& kernel() { return *find_emulated("sm80"); }
  /// The instance must be right for the shape, whose head dim is the instance's unless it says another.
  void expect_right(const std::string& text, std::uint64_t seed, const std::string& more = "") const {
    saccade::expect_right(kernel(), fmt::format("d{} {}", GetParam().config.dim, text),
                          GetParam().text + more, seed);
  }
};

TEST_P(Sm80, IsRightForEveryKindOfProblem) {
  std::uint64_t seed = 3;
  for (const char* shape :
       {"b1 h1 l64 f16", "b1 h2 l100 bf16 causal", "b2 h4/2 lq33 lk330 f16 causal br lse",
        "b1 h1 lq130 lk33 f16 causal br", "b1 h3 lq1 lk270 bf16 lse", "b1 h1 lq65 lk1 f16",
        "b2 h1 lq5 lk0 f16 lse", "b1 h1 lq0 lk5 f16", "b1 h2 l200 f16 scale=-0.3",
        "b1 h1 lq40 lk90 bf16 scale=0", "b1 h1 l300 f16 window=40,0",
        "b1 h1 lq70 lk290 f16 window=30,17 br lse", "b1 h2 l70 f16 blhd", "b1 h1 l330 f16 scale=2 lse",
        "b2 h6/2 lq1 lk300 f16 causal br lse"}) {
    expect_right(shape, seed++);
  }
}

TEST_P(Sm80, IsRightForEveryFeatureIfGeneral) {
  const int dim = GetParam().config.dim;
  if (GetParam().config.general == 0) {
    const Result<Prepared> prepared =
        kernel().prepare(parse_problem(fmt::format("d{} l64 f16 softcap=9", dim)).value(), emulated_machine(),
                         GetParam().text);
    EXPECT_EQ(prepared.status().code(), Code::invalid_argument) << prepared.status().message();
    return;
  }
  std::uint64_t seed = 30;
  const std::string narrow = fmt::format("dqk{} dv{} ", dim - 1, dim - 8);
  for (const std::string& shape :
       {std::string("b2 h2/1 lq50 lk90 f16 softcap=5"), std::string("b2 h2 lq70 lk130 bf16 mask=qk lse"),
        std::string("b2 h4/2 l70 f16 bias causal"), std::string("b1 h2 lq40 lk130 f16 bias32=hqk softcap=9"),
        std::string("b2 h2 lq33 lk100 bf16 alibi=2 causal br"),
        std::string("b1 h4 l90 f16 sinks window=20,0 lse"), std::string("b2 h1 lq3 lk0 f16 sinks lse"),
        std::string("b3 h2/1 l90 f16 varlen causal br lse"),
        std::string("b2 h2 lq30 lk70 f16 kvlens mask=bk"),
        std::string("b2 h2/1 lq20 lk100 bf16 paged=16 kvlens causal br"),
        std::string("b2 h6/2 lq1 lk200 bf16 paged=16 kvlens causal br lse"),
        fmt::format("dqk{0} dv{0} b1 h2 lq20 lk100 f16 lse", dim - 8),
        fmt::format("dv{} b2 h2 l70 bf16 causal", dim - 24),
        std::string("b1 h2 lq30 lk90 f16 softcap=100000"), std::string("b1 h1 lq30 lk90 f16 softcap=1e-30"),
        narrow + "b1 h2 lq20 lk100 f16 lse", narrow + "b2 h4/2 l70 bf16 varlen alibi softcap=20 sinks causal",
        narrow + "b1 h2 lq70 lk100 f16 blhd scale=-0.2"}) {
    expect_right(shape, seed++);
  }
}

TEST_P(Sm80, IsRightWhateverTheOrder) {
  const std::uint64_t seeds = from_environment("SACCADE_EMULATOR_SEEDS", 6);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed)
    expect_right(seed % 2 == 0 ? "b1 h1 lq70 lk400 f16 causal br" : "b1 h1 lq40 lk390 bf16", seed);
}

TEST_P(Sm80, IsRightWhenBlocksShareTheKeys) {
  std::uint64_t seed = 60;
  for (const char* shape : {"b1 h2 lq20 lk500 f16 lse", "b2 h2/1 lq70 lk300 bf16 causal br",
                            "b1 h1 lq3 lk0 f16 lse", "b1 h1 lq100 lk130 f16 window=30,5"}) {
    expect_right(shape, seed, seed % 2 == 0 ? " split=2" : " split=5");
    ++seed;
  }
  if (GetParam().config.general == 0) return;
  expect_right("b3 h2/1 lq40 lk400 f16 varlen causal br sinks lse", seed, " split=3");
  expect_right("b1 h1 lq5 lk300 f16 softcap=9 mask sinks", seed, " split=4");
}

TEST_P(Sm80, IsRightForRandomLengths) {
  std::mt19937 random(7);
  const auto up_to = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::uint64_t seeds = GetParam().config.general != 0 ? 1 : 4;  // those are fuzzed below
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    expect_right(fmt::format("b{} h{} lq{} lk{} {}{}{}", 1 + up_to(2), up_to(2) == 0 ? "1" : "4/2",
                             1 + up_to(200), 1 + up_to(600), up_to(2) == 0 ? "f16" : "bf16",
                             up_to(2) == 0 ? "" : " causal", up_to(2) == 0 ? "" : " br"),
                 seed);
  }
}

TEST_P(Sm80, HasNoBankConflicts) {
  const Problem problem = parse_problem(fmt::format("b1 h1 l300 f16 d{}", GetParam().config.dim)).value();
  for (const char* more : {" split=1", " split=2"}) {
    const CaseData data(problem, 1);
    const emu::Session session({.seed = 1, .count = true});
    const Result<Prepared> prepared = kernel().prepare(problem, emulated_machine(), GetParam().text + more);
    ASSERT_TRUE(prepared.ok()) << prepared.status().message();
    std::vector<std::byte> workspace(prepared->workspace_bytes);
    ASSERT_TRUE(prepared->launch(data.tensors(), workspace.data(), nullptr).ok());
    const emu::Counters counted = session.counters();
    EXPECT_GT(counted.total(emu::Traffic::shared_load).instructions, 0U);
    EXPECT_EQ(counted.bank_conflicts(), 0U) << more;
  }
}

emu::Counters counted(const Named& instance, int lq, std::span<const float> scores) {
  return saccade::counted(*find_emulated("sm80"), instance.text + " split=1", instance.config.dim, lq,
                          scores);
}

// Nothing is computed, copied or waited for twice: every count is what the schedule says, to the last one.
TEST_P(Sm80, CountsWhatItsScheduleSays) {
  const sm80::Config& c = GetParam().config;
  const int lq = 2 * c.rows(), lk = 512;
  const emu::Counters count = counted(GetParam(), lq, std::vector<float>(lk, 0.5F));
  const auto number = [](auto n) { return static_cast<std::uint64_t>(n); };
  EXPECT_EQ(count.blocks, 2U);
  EXPECT_EQ(count.matrix_flops, number(4L * lq * lk * c.dim));
  EXPECT_EQ(count.copied_bytes, number(2L * (lq * c.dim + 2 * 2 * lk * c.dim)));
  // An exponential a score; four lanes raise a row's base, once. To end with, a reciprocal by each of the
  // four, or where groups meet an exponential for a row's part of eight columns and a reciprocal for all of
  // its parts.
  const bool alone = c.key_groups == 1;
  const int ends = alone ? 4 * lq : lq * c.dim / 8 * (c.key_groups + 1);
  EXPECT_EQ(count.mufu, number(lq * lk + 4 * lq * c.key_groups + ends));
  // Two shuffles for each of two maxima of 16 rows, once; the same for their sums.
  EXPECT_EQ(count.shuffles, number(lq / 16 * 4 * 2 * c.key_groups));
  // A barrier a tile unless warps tell each other early, another one where values are waited for apart (those
  // of bold warps' first tile, too), and queries; two where groups meet.
  const int tiles = lk / c.tile_keys / c.key_groups;
  const bool halves = c.key_groups > 1 && c.score_keys == c.tile_keys;
  const int turns = c.tells_early() ? 1 : tiles;  // the first tile's, which comes with the queries, is one
  const int values = halves ? tiles : static_cast<int>(c.bold());
  EXPECT_EQ(count.block_barriers,
            number(2 * c.threads() / 32 * (turns + values + (c.holds_all() ? 1 : 0) + (alone ? 0 : 2))));
}

// Scores that climb from tile to tile: a little does not move what weights are relative to; a lot does, and
// where weights are computed boldly the first product is computed again.
TEST_P(Sm80, MovesTheBaseWhenScoresClimb) {
  const sm80::Config& c = GetParam().config;
  const int lq = c.rows(), lk = (c.holds_all() ? 1 : 8) * c.tile_keys * c.key_groups;
  const auto climbing = [&](float step) {
    std::vector<float> scores(static_cast<std::size_t>(lk));
    for (int j = 0; j < lk; ++j)
      scores[static_cast<std::size_t>(j)] = step * static_cast<float>(j / c.score_keys);
    return counted(GetParam(), lq, scores);
  };
  const emu::Counters slow = climbing(0.01F);
  const emu::Counters fast = climbing(16);
  const int steps = lk / c.score_keys;
  const auto once = static_cast<std::uint64_t>(lq / 16 * 4);
  EXPECT_EQ(slow.shuffles, once * 2 * static_cast<unsigned>(c.key_groups));
  EXPECT_EQ(fast.shuffles, once * static_cast<unsigned>(steps + c.key_groups));
  const auto product = static_cast<std::uint64_t>(2L * lq * lk * c.dim);
  EXPECT_EQ(slow.matrix_flops, 2 * product);
  const bool bold = c.bold() && c.general == 0;
  EXPECT_EQ(fast.matrix_flops, 2 * product + (bold ? product * static_cast<unsigned>(steps - 1) / steps : 0));
}

TEST_P(Sm80, TheSameBitsWhateverTheOrder) {
  const Problem problem = parse_problem(fmt::format("b1 h2 l200 f16 d{}", GetParam().config.dim)).value();
  const Result<Prepared> prepared =
      kernel().prepare(problem, emulated_machine(), GetParam().text + " split=1");
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  expect_same_bits(problem, prepared.value());
}

// The counters of a launch are those of the launch before; the first one finds what happens to lie there.
TEST_P(Sm80, TheSameBitsWhateverBlockIsLast) {
  const Problem problem =
      parse_problem(fmt::format("b1 h2 lq20 lk300 f16 d{}", GetParam().config.dim)).value();
  const Result<Prepared> prepared =
      kernel().prepare(problem, emulated_machine(), GetParam().text + " split=3");
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  ASSERT_GT(prepared->workspace_bytes, 0U);
  for (const unsigned char garbage : {0x00, 0x7f, 0xff}) {
    expect_same_bits(problem, prepared.value(),
                     std::vector<std::byte>(prepared->workspace_bytes, std::byte{garbage}));
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
        if (!prepared->config.starts_with(instance.text + " split=") ||
            instance.config.dim != parse_problem(shape).value().dim_qk)
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
  const Result<Prepared> large = kernel.prepare(
      parse_problem("b1 h1 l64 d64 f16").value(), ada,
      "dim=64 row_warps=2 row_tiles=1 key_groups=4 tile_keys=64 score_keys=64 stages=3 blocks=1 "
      "general=0");
  EXPECT_NE(large.status().message().find("bytes of shared memory"), std::string::npos)
      << large.status().message();
  const Result<Prepared> unknown =
      kernel.prepare(parse_problem("b1 h1 l64 d64 f16").value(), ada, "row_warps=7");
  EXPECT_EQ(unknown.status().code(), Code::invalid_argument);
  EXPECT_NE(unknown.status().message().find("row_warps=7"), std::string::npos) << unknown.status().message();
  // Numbers whose products pass 32 bits: refused before anybody multiplies them.
  const Result<Prepared> absurd =
      kernel.prepare(parse_problem("b1 h1 l64 d64 f16").value(), ada,
                     "dim=1024 row_warps=1024 row_tiles=1024 key_groups=1024 tile_keys=1024 stages=1024");
  EXPECT_EQ(absurd.status().code(), Code::invalid_argument);
}

// The fastest of what was measured on an H200 (docs/kernels/sm80.md).
TEST(Sm80Planner, TakesTheFastestOnTheMeasuredChip) {
  ASSERT_EQ(emulated_machine().multiprocessors, 132);
  const std::pair<const char*, const char*> choices[] = {
      {"b1 h8 l128 d64", "row_warps=1 row_tiles=1 key_groups=4"},
      {"b1 h8 l512 d64", "row_warps=2 row_tiles=1 key_groups=8"},
      {"b1 h8 l512 d64 causal", "row_warps=2 row_tiles=1 key_groups=8"},
      {"b1 h8 l480 d64", "row_warps=2 row_tiles=1 key_groups=4"},
      {"b1 h8 l448 d64 causal", "row_warps=1 row_tiles=1 key_groups=4"},
      {"b1 h8 l384 d64 causal", "row_warps=1 row_tiles=1 key_groups=4"},
      {"b2 h8 l256 d64 causal", "row_warps=1 row_tiles=1 key_groups=4"},
      {"b1 h8 l400 d64 causal", "row_warps=2 row_tiles=1 key_groups=4"},
      {"b1 h4 l1024 d64 causal", "row_warps=2 row_tiles=1 key_groups=4"},
      {"b1 h8 l256 d64", "row_warps=1 row_tiles=1 key_groups=4"},
      {"b1 h8 l448 d64", "row_warps=2 row_tiles=1 key_groups=4"},
      {"b1 h12 l256 d64", "row_warps=2 row_tiles=1"},
      {"b2 h8 l512 d64", "row_warps=2 row_tiles=2 key_groups=4"},
      {"b2 h8 l512 d64 causal", "row_warps=2 row_tiles=1 key_groups=2"},
      {"b1 h8 l1024 d64", "row_warps=2 row_tiles=2 key_groups=4"},
      {"b1 h8 l1024 d64 causal", "row_warps=2 row_tiles=1 key_groups=2"},
      {"b1 h8 l2048 d64", "row_warps=4 row_tiles=2 key_groups=2"},
      {"b1 h8 l2048 d64 causal", "row_warps=2 row_tiles=2 key_groups=4"},
      {"b4 h16 l512 d64", "row_warps=4 row_tiles=2 key_groups=1"},
      {"b4 h16 l512 d64 causal", "row_warps=4 row_tiles=1 key_groups=1"},
      {"b8 h16 l2048 d64 causal", "row_warps=4 row_tiles=2 key_groups=1"},
      {"b1 h16 l512 d128", "row_warps=4 row_tiles=1 key_groups=2"},
      {"b1 h16 l512 d128 causal", "row_warps=4 row_tiles=1 key_groups=2"},
      {"b1 h32 l1024 d128", "row_warps=4 row_tiles=2 key_groups=1"},
      {"b1 h32 l1024 d128 causal", "row_warps=4 row_tiles=1 key_groups=1"},
      {"b8 h16 l2048 d128", "row_warps=4 row_tiles=2 key_groups=1"},
      {"b1 h8 l16k d256", "row_warps=8 row_tiles=1 key_groups=1"}};
  for (const auto& [shape, config] : choices) {
    const Problem problem = parse_problem(std::string(shape) + " f16").value();
    const std::string found = find_emulated("sm80")->prepare(problem, emulated_machine(), "")->config;
    EXPECT_NE(found.find(config), std::string::npos) << shape << ": " << found;
    EXPECT_TRUE(found.ends_with("split=1")) << shape << ": " << found;
  }
}

TEST(Sm80Planner, SharesOutTheKeysOfSmallGrids) {
  const auto split = [](const char* shape) {
    const std::string config =
        find_emulated("sm80")->prepare(parse_problem(shape).value(), emulated_machine(), "")->config;
    return std::stoi(config.substr(config.find("split=") + 6));
  };
  EXPECT_EQ(split("b1 h8 l512 d64 f16"), 1);    // 128 blocks of 32 rows
  EXPECT_EQ(split("b8 h16 l2048 d64 f16"), 1);  // more than fit
  EXPECT_EQ(split("b1 h8 l128 d64 f16"), 1);    // too few keys
  EXPECT_GE(split("b1 h32/8 lq1 lk4k d128 f16"), 4);
  EXPECT_GE(split("b1 h32/8 lq1 lk64k d128 bf16 sinks"), 4);
  EXPECT_EQ(split("b1 h8 lq1 lk64k d128 f16 window=511,0 br"), 1);  // nine tiles of keys are too few
}

// Plain instances count the 16 bytes to each row in 31 bits; strides of axes with one step do not matter.
TEST(Sm80Planner, LeavesFarRowsToGeneralInstances) {
  const auto config = [](const Problem& problem) {
    return find_emulated("sm80")->prepare(problem, emulated_machine(), "")->config;
  };
  constexpr std::int64_t kReach = std::int64_t{1} << 34;  // 2^31 times eight numbers
  Problem problem = parse_problem("b2 h2 l64 d64 f16").value();
  const std::int64_t rest = 2 * problem.v.head + (64 + 1024) * problem.v.row;
  problem.v.batch = (kReach - 8 - rest) / 2 / 8 * 8;
  EXPECT_NE(config(problem).find("general=0"), std::string::npos);
  problem.v.batch = -problem.v.batch;
  EXPECT_NE(config(problem).find("general=0"), std::string::npos);
  problem.v.batch = (kReach - rest) / 2 / 8 * 8 + 8;
  EXPECT_NE(config(problem).find("general=1"), std::string::npos);
  Problem one = parse_problem("b1 h2 l64 d64 f16").value();
  one.v.batch = kReach + 8;
  EXPECT_NE(config(one).find("general=0"), std::string::npos);
}

// Where floats are 16 apart, what is added to a base may round up: a weight of 2^16 would be infinite in f16.
TEST(Sm80Base, MovesWhereNumbersAreFarApart) {
  const Problem problem = parse_problem("b1 h1 lq16 lk192 d64 f16 bias32=k").value();
  const CaseData data(problem, 1);
  auto* bias = static_cast<float*>(const_cast<void*>(data.tensors().mask));
  auto* q = static_cast<F16*>(const_cast<void*>(data.tensors().q));
  for (int i = 0; i < 16 * 64; ++i) q[i] = F16{};
  constexpr float kLn2 = 0.693147180559945309417F;
  for (int j = 0; j < 192; ++j)
    bias[j] = j < 64 ? -(0x1p27F + 48) * kLn2 : j < 128 ? -(0x1p27F + 32) * kLn2 : 0;
  const emu::Session session({.seed = 1});
  const Result<Prepared> prepared = find_emulated("sm80")->prepare(problem, emulated_machine(), "split=1");
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  ASSERT_TRUE(prepared->launch(data.tensors(), nullptr, nullptr).ok());
  const auto* o = static_cast<const F16*>(data.tensors().o);
  for (int i = 0; i < 16 * 64; ++i) EXPECT_TRUE(std::isfinite(to_float(o[i]))) << i;
}

// Three heads of one number, each 47 times: twice the plain implementation's error has to allow for chance.
TEST(Sm80Fuzz, QueriesThatAreBroadcastOverRows) {
  const Problem problem =
      parse_problem("b1 h3 lq47 lk268 d1 f16 scale=0.2 qs=-1,9,0 ks=1355,1355,5 vs=4336,3,16").value();
  const Verdict verdict =
      verify(problem, emulated_runner(*find_emulated("sm80"), "", {.seed = 1}), {.seed = 5000697});
  for (const Failure& failure : verdict.failures) ADD_FAILURE() << failure.detail;
}

TEST(Sm80Planner, AWiderInstanceCanBeNamed) {
  const Kernel& kernel = *find_emulated("sm80");
  const Problem problem = parse_problem("b1 h2 lq20 lk70 d24 f16 softcap=3").value();
  const Result<Prepared> chosen = kernel.prepare(problem, emulated_machine(), "");
  EXPECT_TRUE(chosen->config.starts_with("dim=32 ")) << chosen->config;
  for (const Named& instance : instances()) {
    if (instance.config.general == 0) continue;
    const Verdict verdict = verify(problem, emulated_runner(kernel, instance.text, {.seed = 4}), {.seed = 4});
    EXPECT_TRUE(verdict.passed()) << instance.text;
  }
}

// Heads sliced out of wider rows: what lies behind a row's numbers is somebody else's.
TEST(Sm80Copies, TakePartOfAChunkAtAlignedAddresses) {
  Problem problem = parse_problem("b1 h1 lq40 lk90 d20 f16").value();
  for (Strides* strides : {&problem.q, &problem.k, &problem.v, &problem.o}) *strides = {0, 0, 32, 1};
  ASSERT_TRUE(validate(problem).ok());
  struct alignas(16) Rows {
    F16 numbers[90][32];
  };
  const auto input = std::make_unique<Rows[]>(3);
  const auto output = std::make_unique<Rows[]>(2);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int tensor = 0; tensor < 3; ++tensor) {
    for (auto& row : input[tensor].numbers) {
      for (int c = 0; c < 32; ++c) row[c] = c < 20 ? from_float<F16>(normal(random)) : F16{0x7e00};  // NaN
    }
  }
  Tensors tensors{.q = &input[0], .k = &input[1], .v = &input[2], .o = &output[0]};
  ASSERT_TRUE(attend(problem, tensors, {.kernel = "cpu_reference"}).ok());
  tensors.o = &output[1];
  const Result<Prepared> prepared = find_emulated("sm80")->prepare(problem, emulated_machine(), "split=1");
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  const emu::Session session({.seed = 2});
  const Status status = prepared->launch(tensors, nullptr, nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
  for (int i = 0; i < 40; ++i) {
    for (int c = 0; c < 20; ++c) {
      EXPECT_NEAR(to_float(output[1].numbers[i][c]), to_float(output[0].numbers[i][c]), 2e-3)
          << i << " " << c;
    }
    for (int c = 20; c < 32; ++c) EXPECT_EQ(output[1].numbers[i][c].bits, 0) << i << " " << c;
  }
}

TEST(Sm80Planner, TakesEveryHeadDimAndFeatureEvenOnAda) {
  const Kernel& kernel = *find_emulated("sm80");
  Machine ada = emulated_machine();
  ada.shared_bytes_per_block = std::size_t{99} << 10;
  for (int dim = 1; dim <= 256; ++dim) {
    const Problem problem = parse_problem(fmt::format("b1 h2 l64 d{} f16 softcap=3", dim)).value();
    ASSERT_FALSE(kernel.reject(problem, ada)) << dim << ": " << *kernel.reject(problem, ada);
    const Result<Prepared> prepared = kernel.prepare(problem, ada, "");
    ASSERT_TRUE(prepared.ok());
    EXPECT_NE(prepared->config.find("general=1"), std::string::npos) << prepared->config;
  }
  EXPECT_TRUE(kernel.reject(parse_problem("l64 d257 f16").value(), ada));
  EXPECT_TRUE(kernel.reject(parse_problem("l64 d64 f32").value(), ada));
}

TEST(Sm80Planner, TakesOddAddressesWhichTheLadderDoesNot) {
  const Problem problem = parse_problem("b1 h1 l64 d64 f16").value();
  Machine odd = emulated_machine();
  odd.pointer_alignment = 2;
  for (const Kernel* kernel : emulated::kernels()) {
    const bool ladder = kernel->name.starts_with("ladder");
    EXPECT_EQ(kernel->reject(problem, odd).has_value(), ladder || kernel->name == "sm90") << kernel->name;
    EXPECT_FALSE(kernel->reject(problem, emulated_machine()).has_value()) << kernel->name;
  }
  EXPECT_NE(find_emulated("sm80")->prepare(problem, odd, "")->config.find("general=1"), std::string::npos);
}

TEST(Sm80Fuzz, TakesEveryRandomProblemOfItsTypes) {
  const Kernel& kernel = *find_emulated("sm80");
  const FuzzTarget target{
      .name = "sm80",
      .accepts = [&](const Problem& p) { return flops(p) < 3e6 && !kernel.reject(p, emulated_machine()); },
      .runner = emulated_runner(kernel, "", {.seed = 7})};
  const FuzzResult result =
      fuzz_targets(static_cast<std::int64_t>(from_environment("SACCADE_FUZZ_COUNT", 200) / 4), 11, {target});
  EXPECT_GT(result.runs.at("sm80"), result.problems / 4);
  for (const FuzzFailure& failure : result.failures) {
    ADD_FAILURE() << to_string(failure.smallest) << ": " << failure.verdict.failures.front().detail;
  }
}

INSTANTIATE_TEST_SUITE_P(Instances, Sm80, testing::ValuesIn(instances()), [](const auto& named) {
  const sm80::Config& c = named.param.config;
  return fmt::format("d{}_w{}x{}_g{}{}", c.dim, c.row_warps, c.row_tiles, c.key_groups,
                     c.general != 0 ? "_general" : "");
});

}  // namespace
}  // namespace saccade
