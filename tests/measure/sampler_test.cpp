#include "measure/sampler.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <set>

namespace saccade::measure {
namespace {

/// A machine whose time passes only when something runs on it: calls with noise, a slow drift and
/// interruptions.
class SimulatedMachine {
 public:
  explicit SimulatedMachine(std::uint64_t seed) : random_(seed) {}

  TimedCalls calls(double seconds) {
    return [this, seconds](int count) {
      double total = 0;
      for (int i = 0; i < count; ++i) total += one_call(seconds);
      now_ += total;
      return total;
    };
  }
  [[nodiscard]] std::function<double()> clock() const {
    return [this] { return now_; };
  }
  void pass(double seconds) { now_ += seconds; }

 private:
  double one_call(double seconds) {
    drift_ = 0.98 * drift_ + normal_(random_) * 0.002;
    const double interruption = uniform_(random_) < 0.03 ? uniform_(random_) : 0;
    return seconds * std::exp(drift_ + 0.015 * normal_(random_)) * (1 + interruption);
  }

  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
  double drift_ = 0;
  double now_ = 0;
};

Verdict compare_simulated(double candidate_seconds, double baseline_seconds, std::uint64_t seed) {
  SimulatedMachine machine(seed);
  const std::vector<Candidate> candidates = {{"candidate", machine.calls(candidate_seconds)},
                                             {"baseline", machine.calls(baseline_seconds)}};
  SamplerOptions options;
  options.seed = seed;
  options.now = machine.clock();
  const std::vector<Samples> samples = sample(candidates, options);
  return speedup(samples[0].seconds, samples[1].seconds, seed).verdict;
}

TEST(Sampler, ComparedWithItselfAKernelIsHardlyEverFasterOrSlower) {
  int wrong = 0;
  for (std::uint64_t run = 0; run < 200; ++run) {
    const Verdict verdict = compare_simulated(2e-3, 2e-3, 1000 + run);
    wrong += verdict == Verdict::faster || verdict == Verdict::slower ? 1 : 0;
  }
  EXPECT_LE(wrong, 14);  // 7%
}

TEST(Sampler, ASlowdownOfThreePercentIsSeen) {
  int seen = 0;
  for (std::uint64_t run = 0; run < 50; ++run) {
    seen += compare_simulated(2e-3 * 1.03, 2e-3, 5000 + run) == Verdict::slower ? 1 : 0;
  }
  EXPECT_GE(seen, 45);  // 90%
}

TEST(Sampler, TakesEachCandidateOnceARoundInChangingOrder) {
  std::vector<char> calls;
  bool warm = false;
  const auto candidate = [&](char name) {
    return Candidate{std::string(1, name), [&calls, name](int) {
                       calls.push_back(name);
                       return 1e-3;
                     }};
  };
  const std::vector<Candidate> candidates = {candidate('a'), candidate('b'), candidate('c')};
  SamplerOptions options;
  options.stop.min_samples = 30;
  options.now = [&] {
    if (!warm) calls.clear();  // the first look at the clock comes before the warm-up
    warm = true;
    return 0.0;
  };
  const std::vector<Samples> samples = sample(candidates, options);
  const std::size_t rounds = samples[0].seconds.size();
  ASSERT_EQ(samples[1].seconds.size(), rounds);
  std::set<std::string> orders;
  for (std::size_t round = 0; round < rounds; ++round) {
    std::string order(calls.end() - static_cast<std::ptrdiff_t>(3 * (rounds - round)),
                      calls.end() - static_cast<std::ptrdiff_t>(3 * (rounds - round) - 3));
    orders.insert(order);
    std::ranges::sort(order);
    EXPECT_EQ(order, "abc");
  }
  EXPECT_GE(orders.size(), 4U);
}

TEST(Sampler, StopsWhenTheMediansAreSharp) {
  const std::vector<Candidate> candidates = {{"steady", [](int) { return 1e-3; }}};
  SamplerOptions options;
  options.now = [] { return 0.0; };
  const std::vector<Samples> samples = sample(candidates, options);
  EXPECT_TRUE(samples[0].converged);
  EXPECT_LE(samples[0].seconds.size(), 2 * options.stop.min_samples);
}

TEST(Sampler, StopsWhenTheBudgetEnds) {
  SimulatedMachine machine(1);
  const std::vector<Candidate> candidates = {{"a", machine.calls(0.1)}, {"b", machine.calls(0.1)}};
  SamplerOptions options;
  options.budget_seconds = 1;
  options.stop.relative_width = 1e-9;
  options.now = machine.clock();
  const std::vector<Samples> samples = sample(candidates, options);
  EXPECT_FALSE(samples[0].converged);
  EXPECT_EQ(samples[0].seconds.size(), samples[1].seconds.size());
  EXPECT_LT(machine.clock()(), 1.6);
}

TEST(Sampler, ASlowCandidateLeavesEarlyButNotBeforeItsThirdSample) {
  SimulatedMachine machine(1);
  const std::vector<Candidate> candidates = {{"quick", machine.calls(1e-3)}, {"slow", machine.calls(0.4)}};
  SamplerOptions options;
  options.budget_seconds = 2;
  options.stop.relative_width = 1e-9;
  options.stop.max_samples = 100;
  options.now = machine.clock();
  const std::vector<Samples> samples = sample(candidates, options);
  EXPECT_EQ(samples[1].seconds.size(), 3U);
  EXPECT_EQ(samples[0].seconds.size(), 100U);
}

TEST(Sampler, WhatASlowCandidateOverspendsIsNotTakenFromTheOthers) {
  SimulatedMachine machine(1);
  const std::vector<Candidate> candidates = {{"quick", machine.calls(1e-2)}, {"slow", machine.calls(2)}};
  SamplerOptions options;
  options.budget_seconds = 2;
  options.stop.relative_width = 1e-9;
  options.now = machine.clock();
  const std::vector<Samples> samples = sample(candidates, options);
  EXPECT_EQ(samples[1].seconds.size(), 3U);
  EXPECT_GE(samples[0].seconds.size(), options.stop.min_samples);
}

TEST(Sampler, TimesShortCallsInBatchesAndReportsTheTimeOfOne) {
  const std::vector<Candidate> candidates = {{"short", [](int calls) { return 1e-7 * calls; }}};
  SamplerOptions options;
  options.now = [] { return 0.0; };
  const std::vector<Samples> samples = sample(candidates, options);
  EXPECT_GE(samples[0].calls_per_sample, 200);
  EXPECT_NEAR(median(samples[0].seconds), 1e-7, 1e-12);
}

TEST(Sampler, ColdSamplesAreSingleCallsAfterAnEviction) {
  int evictions = 0;
  const std::vector<Candidate> candidates = {{"short", [](int calls) { return 1e-7 * calls; }}};
  SamplerOptions options;
  options.before_sample = [&] { ++evictions; };
  options.now = [] { return 0.0; };
  const std::vector<Samples> samples = sample(candidates, options);
  EXPECT_EQ(samples[0].calls_per_sample, 1);
  EXPECT_EQ(static_cast<std::size_t>(evictions), samples[0].seconds.size());
}

TEST(Sampler, NoCandidatesIsNoWork) {
  EXPECT_TRUE(sample({}, {}).empty());
}

TEST(HostTimer, MakesTheCallsItIsAskedFor) {
  int calls = 0;
  EXPECT_GE(host_timer([&] { ++calls; })(17), 0.0);
  EXPECT_EQ(calls, 17);
}

}  // namespace
}  // namespace saccade::measure
