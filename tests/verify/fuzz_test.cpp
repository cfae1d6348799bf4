#include "verify/fuzz.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>

#include "support/from_environment.h"

namespace saccade {
namespace {

TEST(RandomProblem, IsValidAffordableAndPrintsExactly) {
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    const Problem p = random_problem(seed);
    const Status status = validate(p);
    ASSERT_TRUE(status.ok()) << to_string(p) << ": " << status.message();
    ASSERT_LE(flops(p), 40e6) << to_string(p);
    const Result<Problem> read = parse_problem(to_string(p));
    ASSERT_TRUE(read.ok()) << to_string(p) << ": " << read.status().message();
    ASSERT_EQ(read.value(), p) << to_string(p);
  }
}

TEST(RandomProblem, CoversEveryFeature) {
  std::map<std::string, int> seen;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const Problem p = random_problem(seed);
    const std::pair<const char*, bool> features[] = {
        {"f16", p.dtype == DType::f16},
        {"bf16", p.dtype == DType::bf16},
        {"f32", p.dtype == DType::f32},
        {"grouped heads", p.heads_q > p.heads_kv},
        {"no queries", p.len_q == 0},
        {"no keys", p.len_kv == 0},
        {"no batch", p.batch == 0},
        {"no heads", p.heads_q == 0},
        {"dim_qk 0", p.dim_qk == 0},
        {"dim_v 0", p.dim_v == 0},
        {"dims differ", p.dim_qk != p.dim_v},
        {"large dim", p.dim_qk > 256},
        {"zero scale", p.scale == 0.0F},
        {"negative scale", p.scale.has_value() && *p.scale < 0},
        {"softcap", p.softcap > 0},
        {"causal top left", p.causal && p.alignment == Alignment::top_left},
        {"causal bottom right", p.causal && p.alignment == Alignment::bottom_right},
        {"window", p.window_left != kUnbounded && p.window_right != kUnbounded},
        {"boolean mask", p.mask == MaskKind::boolean},
        {"bias of the dtype", p.mask == MaskKind::additive && p.mask_dtype == p.dtype},
        {"bias32", p.mask == MaskKind::additive && p.mask_dtype != p.dtype},
        {"mask broadcast over keys", p.mask != MaskKind::none && p.mask_strides.key == 0},
        {"mask strided over keys", p.mask != MaskKind::none && std::abs(p.mask_strides.key) > 1},
        {"alibi", p.alibi},
        {"alibi of each batch", p.alibi && p.alibi_batch_stride != 0},
        {"sinks", p.sinks},
        {"lse", p.lse},
        {"ragged", p.ragged_q && p.kv_layout == KvLayout::ragged},
        {"ragged queries, paged keys", p.ragged_q && p.kv_layout == KvLayout::paged},
        {"dense queries, ragged keys", !p.ragged_q && p.kv_layout == KvLayout::ragged},
        {"paged", p.kv_layout == KvLayout::paged},
        {"lengths", p.kv_layout == KvLayout::dense && p.kv_lengths},
        {"negative stride of q", p.q.row < 0},
        {"negative stride of o", p.o.head < 0},
        {"broadcast k", p.k.row == 0 && p.len_kv > 1},
        {"broadcast v", p.v.head == 0 && p.heads_kv > 1},
    };
    for (const auto& [name, present] : features) seen[name] += present ? 1 : 0;
  }
  for (const auto& [name, count] : seen) EXPECT_GE(count, 5) << name;
}

// SACCADE_FUZZ_SEED and SACCADE_FUZZ_COUNT (problems a shard) override the fixed choice.
class Fuzz : public testing::TestWithParam<int> {};

TEST_P(Fuzz, EveryKernelAgreesWithTheOracle) {
  const std::uint64_t seed =
      from_environment("SACCADE_FUZZ_SEED", 2024) + static_cast<std::uint64_t>(GetParam());
  const auto count = static_cast<std::int64_t>(from_environment("SACCADE_FUZZ_COUNT", 500));
  std::vector<PlanOptions> of_the_cpu;
  const Problem plain =
      Problem::dense(1, 1, 64, 64);  // what a kernel takes if this machine can run it at all
  for (const KernelInfo& kernel : kernels()) {
    const PlanOptions options{.kernel = std::string(kernel.name)};
    if (kernel.device != DeviceKind::cpu) continue;
    if (kernel.name == "cpu_decode" || make_plan(plain, options).ok()) of_the_cpu.push_back(options);
  }
  const FuzzResult result = fuzz(count, seed, of_the_cpu);
  for (const FuzzFailure& failure : result.failures) {
    std::string details;
    for (const Failure& check : failure.verdict.failures) {
      details += fmt::format("\n  {}: {}", to_string(check.check), check.detail);
    }
    ADD_FAILURE() << failure.repro << details << "\n  found on " << to_string(failure.problem);
  }
  for (const PlanOptions& each : of_the_cpu)
    EXPECT_GT(result.runs.at(each.kernel), count / 20) << each.kernel;
  EXPECT_TRUE(!result.failures.empty() || result.problems == count);
}

INSTANTIATE_TEST_SUITE_P(Shards, Fuzz, testing::Range(0, 4));

TEST(FuzzFailures, AreShrunkAndCarryTheirCommand) {
  const FuzzTarget broken{"broken", [](const Problem&) { return true; },
                          [](const Problem& p, const Tensors& t) {
                            Problem changed = p;
                            if (p.window_left != kUnbounded) ++changed.window_left;
                            return attend(changed, t, {.kernel = "cpu_reference"});
                          }};
  const FuzzResult result = fuzz_targets(200, 1, {broken});
  ASSERT_GE(result.failures.size(), 3U);
  for (const FuzzFailure& failure : result.failures) {
    const Problem& p = failure.smallest;
    EXPECT_FALSE(failure.verdict.passed());
    EXPECT_NE(p.window_left, kUnbounded);
    EXPECT_LE(flops(p), 2000) << failure.repro;
    EXPECT_EQ(p.mask, MaskKind::none) << failure.repro;
    EXPECT_EQ(failure.repro,
              fmt::format("saccade verify '{}' --kernel broken --seed {}", to_string(p), failure.seed));
    EXPECT_FALSE(verify(p, broken.runner, {.seed = failure.seed}).passed()) << "the command repeats it";
  }
}

TEST(FuzzFailures, AKernelThatAcceptsNothingIsNeverRun) {
  std::int64_t done = 0;
  const FuzzResult result = fuzz(2, 1, {{.kernel = "no_such_kernel"}}, [&](std::int64_t n) { done = n; });
  EXPECT_EQ(result.problems, 0);
  EXPECT_EQ(done, 0);
  EXPECT_TRUE(result.runs.empty() && result.failures.empty());
}

}  // namespace
}  // namespace saccade
