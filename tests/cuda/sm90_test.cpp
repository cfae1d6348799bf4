// Every instance of the sm90 family in the emulator: odd shapes, several seeds, no bank conflicts.
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <span>

#include "core/dtypes.h"
#include "cuda/kernels.h"
#include "cuda/sm90/config.h"
#include "cuda/tile/arrivals.h"
#include "cuda/tile/queue.h"
#include "emu/session.h"
#include "family.h"
#include "support/from_environment.h"
#include "verify/case_data.h"
#include "verify/emulated.h"
#include "verify/fuzz.h"

namespace saccade {
namespace {

using Named = saccade::Named<sm90::Config>;

std::vector<Named> instances() {
  std::vector<Named> list;
  const auto add = [&](const sm90::Config& c) {
    list.push_back(
        {c,
         fmt::format(
             "dim={} row_groups={} key_groups={} cluster={} tile_keys={} stages={} general={} warp_rows={} "
             "ragged={}{}",
             c.dim, c.row_groups, c.key_groups, c.cluster, c.tile_keys, c.stages, c.general, c.warp_rows,
             c.ragged, c.splits() ? " split=1" : "")});
  };
#define SACCADE_SM90(price, ...) add(sm90::Instance<__VA_ARGS__>::kConfig);
#include "cuda/sm90/instances.def"
#undef SACCADE_SM90
  return list;
}

/// Full of garbage.
std::vector<std::byte> workspace_of(const Prepared& prepared) {
  return std::vector<std::byte>(prepared.workspace_bytes, std::byte{0xee});
}

class Sm90 : public testing::TestWithParam<Named> {
 protected:
  static const Kernel& kernel() { return *find_emulated("sm90"); }
  /// Keys that the instance can have, of so many.
  static int keys(int wanted) {
    const sm90::Config& c = GetParam().config;
    return c.single() ? std::min(wanted, c.tile_keys * c.parts()) : wanted;
  }
  /// The instance must be right for the shape, whose head dim is the instance's unless it says another.
  static void expect_right(const std::string& text, std::uint64_t seed) {
    saccade::expect_right(kernel(), fmt::format("d{} {}", GetParam().config.dim, text), GetParam().text,
                          seed);
  }
};

TEST_P(Sm90, IsRightForEveryKindOfProblem) {
  std::uint64_t seed = 3;
  const int dim = GetParam().config.dim;
  const auto lk = [](int wanted) { return fmt::format("lk{}", keys(wanted)); };
  const auto lq = [](int wanted) {  // as many tiles where they are lower, and half as many of large clusters
    const sm90::Config& c = GetParam().config;
    return fmt::format("lq{} ", wanted * std::min(c.rows(), 64) / (c.cluster > 2 ? 128 : 64));
  };
  for (const std::string& shape :
       {std::string("b1 h1 l64 f16"), std::string("b1 h2 l100 bf16 causal"),
        "b2 h4/2 lq33 f16 causal br lse " + lk(330), "b1 h1 lk33 f16 causal br lse " + lq(130),
        "b1 h3 lq1 bf16 lse " + lk(270), std::string("b1 h1 lq65 lk1 f16"),
        std::string("b1 h1 lq40 lk90 bf16 scale=0"), "b1 h1 f16 window=40,0 " + lq(300) + lk(300),
        "b1 h1 f16 window=30,17 br lse " + lq(70) + lk(290), std::string("b1 h2 l70 f16 blhd"),
        "b2 h6/2 lq1 f16 blhd causal br lse " + lk(300), "b1 h1 f16 scale=2 lse " + lq(530) + lk(530),
        "b1 h2 f16 scale=3 lse " + lq(70) + lk(128), "b1 h1 bf16 scale=4 causal br lse " + lq(150) + lk(500),
        "b1 h2 lk90 f16 scale=4 causal br lse " + lq(200),
        fmt::format("dqk{} dv{} b1 h2 l90 f16", dim - 24, dim - 8),
        fmt::format("dqk8 dv{} b1 h1 lq20 lk90 bf16 lse", dim), "dv8 b2 h1 lq70 f16 " + lk(200)}) {
    expect_right(shape, seed++);
  }
}

TEST_P(Sm90, HasEveryFeatureOrSaysThatItHasNone) {
  const int dim = GetParam().config.dim;
  if (GetParam().config.general == 0) {
    const Result<Prepared> prepared =
        kernel().prepare(parse_problem(fmt::format("d{} l64 f16 softcap=9", std::min(dim, 192))).value(),
                         emulated_machine(), GetParam().text);
    EXPECT_NE(prepared.status().message().find("no softcap"), std::string::npos)
        << prepared.status().message();
    return;
  }
  std::uint64_t seed = 70;
  for (const std::string& shape :
       {std::string("b2 h2/1 lq50 lk290 f16 softcap=5"), std::string("b2 h2 lq70 lk330 bf16 mask=qk lse"),
        std::string("b2 h4/2 l170 f16 bias causal"), std::string("b1 h2 lq40 lk130 f16 bias32=hqk softcap=9"),
        std::string("b2 h2 lq33 lk300 bf16 alibi=2 causal br"),
        std::string("b1 h4 l290 f16 sinks window=20,0 lse"),
        std::string("b1 h2 lq200 lk33 f16 sinks causal br lse"), std::string("b1 h2 lq130 lk190 f16 mask=bk"),
        std::string("b2 h6/2 lq1 lk300 f16 bias32=hqk lse"),
        std::string("b1 h2 lq30 lk90 f16 softcap=100000"), std::string("b1 h1 lq30 lk90 f16 softcap=1e-30"),
        fmt::format("dqk{} dv{} b2 h4/2 l70 bf16 alibi softcap=20 sinks causal lse", dim - 24, dim - 8)}) {
    expect_right(shape, seed++);
  }
}

TEST_P(Sm90, TakesSequencesOfTheirOwnLengthsOrSaysThatItDoesNot) {
  const int dim = GetParam().config.dim;
  if (GetParam().config.ragged == 0) {
    const Result<Prepared> prepared = kernel().prepare(
        parse_problem(fmt::format("d{} l64 f16 varlen", dim)).value(), emulated_machine(), GetParam().text);
    EXPECT_NE(prepared.status().message().find("one length"), std::string::npos)
        << prepared.status().message();
    return;
  }
  std::uint64_t seed = 90;
  for (const std::string& shape :
       {std::string("b3 h2/1 lq150 lk330 f16 varlen lse"), std::string("b4 h1 l200 bf16 varlen causal"),
        std::string("b3 h2 lq90 lk300 f16 varlen causal br lse"),
        std::string("b2 h2 l270 f16 varlen window=40,10"), std::string("b3 h4/2 lq70 lk290 bf16 kvlens lse"),
        std::string("b3 h6/2 lq1 lk300 f16 kvlens lse"), std::string("b2 h1 lq1 lk200 f16 varlen"),
        std::string("b2 h2 lq130 lk190 f16 varlen-q=150 lse"),
        std::string("b2 h2 lq33 lk190 bf16 varlen-kv=230"),
        fmt::format("dqk{} dv{} b2 h2 l90 f16 varlen causal lse", dim - 24, dim - 8)}) {
    expect_right(shape, seed++);
  }
}

TEST_P(Sm90, IsRightWhateverTheOrder) {
  const std::uint64_t seeds = from_environment("SACCADE_EMULATOR_SEEDS", 6);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed)
    expect_right(seed % 2 == 0 ? fmt::format("b1 h1 lq70 lk{} f16 causal br", keys(400))
                               : fmt::format("b1 h1 lq40 lk{} bf16", keys(390)),
                 seed);
}

// Fewer multiprocessors than tiles of queries: blocks that stay take several, one after the other, with odd
// lengths, masks that cut, and row groups that have no rows at all. To others it only matters in which order
// tiles of different lengths come.
TEST_P(Sm90, IsRightWhenTilesAreManyForTheChip) {
  std::uint64_t seed = 40;
  std::vector<std::string> shapes = {
      fmt::format("b2 h2/1 lq{} lk{} bf16 causal br", GetParam().config.rows() < 64 ? 100 : 200, keys(300))};
  if (GetParam().config.stays())
    shapes.insert(shapes.end(), {"b1 h3 lq300 lk330 f16 lse", "b1 h4 lq33 lk200 f16",
                                 "b1 h2 lq290 lk310 f16 window=70,20"});
  for (const std::string& shape : shapes) {
    Machine machine = emulated_machine();
    machine.multiprocessors = 1 + static_cast<int>(seed % 3);
    const Runner runner = [&](const Problem& p, const Tensors& t) -> Status {
      const Result<Prepared> prepared = kernel().prepare(p, machine, GetParam().text);
      if (!prepared.ok()) return prepared.status();
      const emu::Session session({.seed = seed});
      return prepared->launch(t, workspace_of(prepared.value()).data(), nullptr);
    };
    const std::string text = fmt::format("d{} {}", GetParam().config.dim, shape);
    const Verdict verdict = verify(parse_problem(text).value(), runner, {.seed = seed});
    ASSERT_TRUE(verdict.passed()) << text << " with " << GetParam().text << ", seed " << seed << ": "
                                  << verdict.failures.front().detail;
    ++seed;
  }
}

TEST_P(Sm90, HasNoBankConflicts) {
  const Problem problem =
      parse_problem(fmt::format("b1 h1 lq300 lk{} f16 d{}", keys(300), GetParam().config.dim)).value();
  const CaseData data(problem, 1);
  const emu::Session session({.seed = 1, .count = true});
  const Result<Prepared> prepared = kernel().prepare(problem, emulated_machine(), GetParam().text);
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  ASSERT_TRUE(prepared->launch(data.tensors(), workspace_of(prepared.value()).data(), nullptr).ok());
  EXPECT_EQ(session.counters().bank_conflicts(), 0U);
}

emu::Counters counted(const Named& instance, int lq, std::span<const float> scores) {
  return saccade::counted(*find_emulated("sm90"), instance.text, instance.config.dim, lq, scores);
}

/// Where scores are a tile ahead, those of the last one come again, and nobody reads them.
std::uint64_t unread_scores(const sm90::Config& c, int lq) {
  return c.ahead() ? static_cast<std::uint64_t>(2L * lq * c.parts() * c.tile_keys * c.dim) : 0;
}

// Nothing else is computed or copied twice, and rows exchange what they must and no more.
TEST_P(Sm90, CountsWhatItsScheduleSays) {
  const sm90::Config& c = GetParam().config;
  const int lq = 2 * c.rows(), lk = keys(4 * c.tile_keys * c.parts());
  const emu::Counters count = counted(GetParam(), lq, std::vector<float>(static_cast<std::size_t>(lk), 0.5F));
  const auto number = [](auto n) { return static_cast<std::uint64_t>(n); };
  EXPECT_EQ(count.blocks, number(2 * c.cluster));
  const int idle = 16 / c.warp_rows;  // products are so many times as high as there are rows
  EXPECT_EQ(count.matrix_flops, number(4L * idle * lq * lk * c.dim) + unread_scores(c, lq));
  const int queries = 2 * c.row_groups * c.query_rows() * c.cluster;
  EXPECT_EQ(count.copied_bytes, number(128L * c.boxes() * (queries + 2 * 2 * lk)));
  // An exponential a score. In each part four lanes raise a row's base, once, unless they only take one, and
  // in those that write they divide; where parts meet, four lanes of each ask what another one's sums are
  // worth, in every step, and with one tile their own.
  const int shares = 4 * lq * c.parts() * c.steps() * (c.single() ? 2 : 1);
  const int writing = c.parts() >> std::popcount(static_cast<unsigned>(c.silent()));
  EXPECT_EQ(count.mufu, number(lq * lk + (c.ahead() ? 0 : 4 * lq * c.parts()) + 4 * lq * writing + shares));
}

// Scores that climb from tile to tile, or in the only tile: a little does not move what weights are relative
// to; a lot does, and where weights are computed boldly the first product is computed again, or both.
TEST_P(Sm90, MovesTheBaseWhenScoresClimb) {
  const sm90::Config& c = GetParam().config;
  const int lq = c.rows(), lk = keys(6 * c.tile_keys * c.parts());
  const auto climbing = [&](float step) {
    std::vector<float> scores(static_cast<std::size_t>(lk));
    for (int j = 0; j < lk; ++j) {
      const int stairs = c.single() ? 2 * j / c.tile_keys % 2 : j / c.tile_keys;
      scores[static_cast<std::size_t>(j)] = step * static_cast<float>(stairs);
    }
    return counted(GetParam(), lq, scores);
  };
  const int idle = 16 / c.warp_rows;
  const std::uint64_t products =
      static_cast<std::uint64_t>(4L * idle * lq * lk * c.dim) + unread_scores(c, lq);
  EXPECT_EQ(climbing(0.01F).matrix_flops, products);
  const auto again =
      c.single() ? products
                 : static_cast<std::uint64_t>(2L * idle * lq * (lk - c.parts() * c.tile_keys) * c.dim);
  EXPECT_EQ(climbing(16).matrix_flops, products + (c.bold() ? again : 0));
  // Far beyond what an exponential can hold.
  EXPECT_EQ(climbing(200).matrix_flops, products + (c.bold() ? again : 0));
}

// Parts of the keys (without parts: tiles) whose scores lie far apart, each as far as may be from the one
// before, and farther.
TEST_P(Sm90, PartsMeetHoweverFarTheirScoresAre) {
  const sm90::Config& c = GetParam().config;
  const int parts = std::max(c.parts(), 2);
  const int lk = keys(2 * c.tile_keys * parts);
  for (const float step : {9.0F, 30.0F, 44.0F, 88.0F, -44.0F, -9.0F}) {
    std::vector<float> scores(static_cast<std::size_t>(lk));
    for (int j = 0; j < lk; ++j) {
      const int above = j / c.tile_keys % parts - parts / 2 + 1;  // of four parts: 0, 0, 1, 2
      scores[static_cast<std::size_t>(j)] = step * static_cast<float>(std::max(above, 0));
    }
    (void)saccade::counted(kernel(), GetParam().text, c.dim, c.rows(), scores, true);
  }
}

TEST_P(Sm90, TheSameBitsWhateverTheOrder) {
  const Problem problem =
      parse_problem(fmt::format("b1 h2 lq200 lk{} f16 d{}", keys(700), GetParam().config.dim)).value();
  const Result<Prepared> prepared = kernel().prepare(problem, emulated_machine(), GetParam().text);
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  expect_same_bits(problem, prepared.value(), workspace_of(prepared.value()));
}

/// Instances whose clusters share keys, named without how many do, and the keys that a cluster has in a
/// round.
struct Splitting {
  sm90::Config config;
  std::string text;
  int keys;
};
std::vector<Splitting> splitting_instances() {
  std::vector<Splitting> list;
  for (const Named& instance : instances()) {
    const sm90::Config& c = instance.config;
    if (c.splits())
      list.push_back({c, instance.text.substr(0, instance.text.find(" split=")), c.tile_keys * c.parts()});
  }
  EXPECT_EQ(list.size(), 3U);
  return list;
}

// Several clusters share the keys of a tile of queries, and some of them get none.
TEST(Sm90Split, ClustersShareTheKeys) {
  const Kernel& kernel = *find_emulated("sm90");
  std::uint64_t seed = 20;
  for (const Splitting& instance : splitting_instances()) {
    const std::string dim = fmt::format("d{} ", instance.config.dim);
    expect_right(kernel, dim + fmt::format("b2 h2/1 lq20 lk{} bf16 causal br lse", instance.keys * 5 / 4),
                 instance.text + " split=2", seed++);
    expect_right(kernel, dim + "b1 h1 lq33 lk300 f16 scale=4 lse", instance.text + " split=3", seed++);
    expect_right(kernel, dim + "dv24 b1 h1 lq3 lk700 f16 window=200,30 br", instance.text + " split=16",
                 seed++);
  }
}

TEST(Sm90Split, ClustersMeetHoweverFarTheirScoresAre) {
  for (const Splitting& instance : splitting_instances()) {
    for (const float step : {30.0F, 88.0F, -44.0F}) {
      std::vector<float> scores(static_cast<std::size_t>(2 * instance.keys + 100));
      for (std::size_t j = 0; j < scores.size(); ++j)
        scores[j] = step * static_cast<float>(static_cast<int>(j) / instance.keys);
      (void)saccade::counted(*find_emulated("sm90"), instance.text + " split=3", instance.config.dim, 5,
                             scores, true);
    }
  }
}

// Whichever cluster is the last one. The counters of a launch are those of the launch before; the first one
// finds what happens to lie there.
TEST(Sm90Split, TheSameBitsWhateverTheOrder) {
  for (const Splitting& instance : splitting_instances()) {
    const Problem problem =
        parse_problem(fmt::format("b1 h1 lq20 lk{} f16 d{}", instance.keys * 5 / 4, instance.config.dim))
            .value();
    const Result<Prepared> prepared =
        find_emulated("sm90")->prepare(problem, emulated_machine(), instance.text + " split=3");
    ASSERT_TRUE(prepared.ok()) << prepared.status().message();
    ASSERT_GT(prepared->workspace_bytes, 0U);
    constexpr std::uint64_t kTag =
        0x7fc5ac08ade7fc00;  // of tile/arrivals.h: a few below become it by counting
    for (const std::uint64_t garbage : {~std::uint64_t{0}, kTag - 1, kTag - 2}) {
      std::vector<std::byte> workspace(prepared->workspace_bytes);
      for (std::size_t at = 0; at + 8 <= workspace.size(); at += 8) std::memcpy(&workspace[at], &garbage, 8);
      expect_same_bits(problem, prepared.value(), workspace);
    }
  }
}

// A key that is no number makes every row that sees it none, whichever tile it is in; a query only its own.
TEST_P(Sm90, NotANumberReachesTheOutput) {
  const int dim = GetParam().config.dim;
  const int lk = keys(700);
  const Problem problem = parse_problem(fmt::format("b1 h1 lq40 lk{} f16 d{}", lk, dim)).value();
  for (const int key : {0, -1, lk - 1}) {  // -1: a query
    const CaseData data(problem, 1);
    const auto numbers = [](const void* tensor) { return static_cast<F16*>(const_cast<void*>(tensor)); };
    numbers(key < 0 ? data.tensors().q : data.tensors().k)[(key < 0 ? 7 : key) * dim + 5] = F16{0x7e00};
    const emu::Session session({.seed = 1});
    const Result<Prepared> prepared = kernel().prepare(problem, emulated_machine(), GetParam().text);
    ASSERT_TRUE(prepared->launch(data.tensors(), workspace_of(prepared.value()).data(), nullptr).ok());
    for (int i = 0; i < 40; ++i) {
      EXPECT_EQ(std::isnan(to_float(numbers(data.tensors().o)[i * dim])), key >= 0 || i == 7)
          << "key " << key << " row " << i;
    }
  }
}

// Heads whose keys would fill the cache come one after the other, though the longest tiles of a head come
// first. Only the first keys are seen, so that it takes no time.
TEST(Sm90Bands, AreRight) {
  int instances_seen = 0;
  for (const Named& instance : instances()) {
    const sm90::Config& c = instance.config;
    if (!c.stays() || c.draws() || c.general != 0 || c.row_groups % 2 == 0 || c.dim % 64 != 0) continue;
    ++instances_seen;
    const std::int64_t keys = 7'000'000 / c.dim;  // of 27 MB
    const Problem problem =
        parse_problem(fmt::format("b1 h3 lq200 lk{} d{} f16 causal", keys, c.dim)).value();
    ASSERT_EQ(emulated::tile::BandedQueue::of(problem, c.rows()).bands, 3);
    Machine machine = emulated_machine();
    machine.multiprocessors = 2;
    const Runner runner = [&](const Problem& p, const Tensors& t) -> Status {
      const Result<Prepared> prepared = find_emulated("sm90")->prepare(p, machine, instance.text);
      if (!prepared.ok()) return prepared.status();
      const emu::Session session({.seed = 5});
      return prepared->launch(t, nullptr, nullptr);
    };
    const Verdict verdict = verify(problem, runner, {.seed = 5});
    EXPECT_TRUE(verdict.passed()) << instance.text << ": " << verdict.failures.front().detail;
  }
  EXPECT_EQ(instances_seen, 3);
}

// Fewer blocks than tiles, and more; a counter that holds anything, and then what the launch before has left.
TEST(Sm90Draw, HandsEveryTileOutOnceAndClearsTheCounter) {
  constexpr std::uint64_t kTag = emulated::tile::TaggedCounter<sm90::Config::kDrawBits>::kTag;
  int instances_seen = 0;
  for (const Named& instance : instances()) {
    if (!instance.config.draws()) continue;
    ++instances_seen;
    std::uint64_t seed = 1;
    const std::pair<const char*, std::uint64_t> cases[] = {
        {"b5 h2 l300 f16 varlen causal lse", ~std::uint64_t{0}},
        {"b5 h2 l200 f16 varlen", kTag - 1},
        {"b3 h4/2 lq300 lk200 bf16 kvlens lse", kTag - 2},
        {"b4 h1 lq9 lk70 f16 varlen", kTag}};
    for (const auto& [shape, garbage] : cases) {
      const Problem problem = parse_problem(fmt::format("{} d{}", shape, instance.config.dim)).value();
      Machine machine = emulated_machine();
      machine.multiprocessors = 1 + static_cast<int>(seed % 4);
      std::uint64_t counter = garbage;
      const Runner runner = [&](const Problem& p, const Tensors& t) -> Status {
        const Result<Prepared> prepared = find_emulated("sm90")->prepare(p, machine, instance.text);
        if (!prepared.ok()) return prepared.status();
        const emu::Session session({.seed = seed});
        Status status = prepared->launch(t, reinterpret_cast<std::byte*>(&counter), nullptr);
        EXPECT_EQ(counter, kTag) << instance.text;
        return status;
      };
      const Verdict verdict = verify(problem, runner, {.seed = seed++});
      for (const Failure& failure : verdict.failures)
        ADD_FAILURE() << to_string(problem) << " with " << instance.text << ": " << failure.detail;
    }
  }
  EXPECT_EQ(instances_seen, 5);
}

TEST(Sm90Fuzz, IsRightForRandomProblems) {
  const Kernel& kernel = *find_emulated("sm90");
  const FuzzTarget target{
      .name = "sm90",
      .accepts = [&](const Problem& p) { return flops(p) < 3e6 && !kernel.reject(p, emulated_machine()); },
      .runner = emulated_runner(kernel, "", {.seed = 7})};
  const auto count = static_cast<std::int64_t>(from_environment("SACCADE_FUZZ_COUNT", 200) / 5);
  const FuzzResult result = fuzz_targets(count, 11, {target});
  EXPECT_EQ(result.runs.at("sm90"), result.problems);
  for (const FuzzFailure& failure : result.failures) {
    ADD_FAILURE() << to_string(failure.smallest) << ": " << failure.verdict.failures.front().detail;
  }
}

INSTANTIATE_TEST_SUITE_P(Instances, Sm90, testing::ValuesIn(instances()), [](const auto& named) {
  const sm90::Config& c = named.param.config;
  return fmt::format("d{}_r{}_k{}_c{}_t{}_s{}{}{}{}", c.dim, c.row_groups, c.key_groups, c.cluster,
                     c.tile_keys, c.stages, c.general != 0 ? "_general" : "",
                     c.warp_rows != 16 ? "_half" : "", c.ragged != 0 ? "_ragged" : "");
});

}  // namespace
}  // namespace saccade
