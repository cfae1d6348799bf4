#include "measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace saccade::measure {
namespace {

std::vector<double> lognormal(std::mt19937_64& random, std::size_t n, double sigma, double median_value = 1) {
  std::lognormal_distribution<double> noise(std::log(median_value), sigma);
  std::vector<double> samples(n);
  std::ranges::generate(samples, [&] { return noise(random); });
  return samples;
}

TEST(Percentile, InterpolatesBetweenOrderStatistics) {
  const std::vector<double> samples = {4, 1, 3, 2, 5};
  EXPECT_EQ(percentile(samples, 0), 1);
  EXPECT_EQ(percentile(samples, 0.25), 2);
  EXPECT_EQ(median(samples), 3);
  EXPECT_DOUBLE_EQ(percentile(samples, 0.95), 4.8);
  EXPECT_EQ(percentile(samples, 1), 5);
}

TEST(Percentile, MedianOfAnEvenNumberIsTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(median(std::vector<double>{1, 2, 4, 9}), 3);
}

TEST(Percentile, NothingHasNoMedian) {
  EXPECT_TRUE(std::isnan(median({})));
  EXPECT_TRUE(std::isnan(median_interval({}, 1).low));
}

TEST(MedianInterval, OfOneValueIsThatValue) {
  const std::vector<double> samples(20, 7.0);
  const Interval interval = median_interval(samples, 1);
  EXPECT_EQ(interval.low, 7);
  EXPECT_EQ(interval.high, 7);
}

TEST(MedianInterval, DependsOnTheSeedOnly) {
  std::mt19937_64 random(5);
  const std::vector<double> samples = lognormal(random, 40, 0.1);
  EXPECT_EQ(median_interval(samples, 3).low, median_interval(samples, 3).low);
  std::vector<double> shuffled = samples;
  std::ranges::shuffle(shuffled, random);
  EXPECT_EQ(median_interval(samples, 3).high, median_interval(shuffled, 3).high);
}

// The closed form must have the distribution of real resampling, for odd and even numbers of samples.
TEST(MedianInterval, EqualsThatOfExplicitResampling) {
  std::mt19937_64 random(11);
  for (const std::size_t n : {5U, 12U, 31U, 200U}) {
    const std::vector<double> samples = lognormal(random, n, 0.2);
    std::uniform_int_distribution<std::size_t> pick(0, n - 1);
    std::vector<double> medians(20'000);
    for (double& each : medians) {
      std::vector<double> drawn(n);
      std::ranges::generate(drawn, [&] { return samples[pick(random)]; });
      each = median(drawn);
    }
    const Interval interval = median_interval(samples, 1);
    // The share of resampled medians below each end, allowing for ties at the ends themselves.
    const auto below = [&](double x) {
      return static_cast<double>(std::ranges::count_if(medians, [x](double m) { return m < x - 1e-12; })) /
             20'000;
    };
    const auto up_to = [&](double x) {
      return static_cast<double>(std::ranges::count_if(medians, [x](double m) { return m <= x + 1e-12; })) /
             20'000;
    };
    EXPECT_LE(below(interval.low), 0.030) << n;
    EXPECT_GE(up_to(interval.low), 0.020) << n;
    EXPECT_LE(below(interval.high), 0.980) << n;
    EXPECT_GE(up_to(interval.high), 0.970) << n;
  }
}

TEST(MedianInterval, CoversTheTrueMedianAboutAsOftenAsItSays) {
  std::mt19937_64 random(2);
  for (const std::size_t n : {10U, 31U, 100U}) {
    int covered = 0;
    constexpr int kTrials = 400;
    for (int i = 0; i < kTrials; ++i) {
      covered +=
          median_interval(lognormal(random, n, 0.3), static_cast<std::uint64_t>(i)).contains(1.0) ? 1 : 0;
    }
    EXPECT_GE(covered, kTrials * 0.91) << n;
    EXPECT_LE(covered, kTrials * 0.995) << n;
  }
}

TEST(Speedup, IntervalCoversTheTrueRatioPairedOrNot) {
  std::mt19937_64 random(3);
  for (const std::size_t baseline_samples : {40U, 55U}) {
    int covered = 0;
    constexpr int kTrials = 300;
    for (int i = 0; i < kTrials; ++i) {
      const auto candidate = lognormal(random, 40, 0.1, 1.0);
      const auto baseline = lognormal(random, baseline_samples, 0.1, 1.5);
      const Speedup result = speedup(candidate, baseline, static_cast<std::uint64_t>(i));
      covered += result.interval.contains(1.5) ? 1 : 0;
      EXPECT_EQ(result.verdict, Verdict::faster);
    }
    EXPECT_GE(covered, kTrials * 0.91);
    EXPECT_LE(covered, kTrials * 0.995);
  }
}

TEST(Speedup, NamesTheDirection) {
  std::mt19937_64 random(4);
  const auto quick = lognormal(random, 50, 0.02, 1.0);
  const auto slow = lognormal(random, 50, 0.02, 1.2);
  EXPECT_NEAR(speedup(quick, slow, 1).value, 1.2, 0.03);
  EXPECT_EQ(speedup(quick, slow, 1).verdict, Verdict::faster);
  EXPECT_EQ(speedup(slow, quick, 1).verdict, Verdict::slower);
  EXPECT_EQ(speedup(quick, quick, 1).verdict, Verdict::same);
}

// However narrow the interval: 1% is where two buffers happen to lie, 3% is a difference.
TEST(Speedup, NeedsMoreThanTheMarginForAVerdict) {
  std::vector<double> times, hundredth_more, thirtieth_more;
  for (int i = 0; i < 50; ++i) {
    times.push_back(1 + 1e-6 * (i % 7));
    hundredth_more.push_back(1.01 * times.back());
    thirtieth_more.push_back(1.03 * times.back());
  }
  const Speedup slight = speedup(times, hundredth_more, 1);
  EXPECT_GT(slight.interval.low, 1.009);
  EXPECT_LT(slight.interval.high, 1.011);
  EXPECT_EQ(slight.verdict, Verdict::same);
  EXPECT_EQ(speedup(hundredth_more, times, 1).verdict, Verdict::same);
  EXPECT_EQ(speedup(times, thirtieth_more, 1).verdict, Verdict::faster);
  EXPECT_EQ(speedup(thirtieth_more, times, 1).verdict, Verdict::slower);
}

TEST(Speedup, WideIntervalsAroundOneAreUnclear) {
  std::mt19937_64 random(6);
  EXPECT_EQ(speedup(lognormal(random, 9, 0.5), lognormal(random, 12, 0.5), 1).verdict, Verdict::unclear);
}

TEST(Speedup, AHandfulOfSamplesOnlyCarriesLargeDifferences) {
  const std::vector<double> baseline = {1.10, 1.11, 1.12};
  EXPECT_EQ(speedup(std::vector<double>{1.00, 1.01, 1.02}, baseline, 1).verdict, Verdict::unclear);
  EXPECT_EQ(speedup(std::vector<double>{0.10, 0.11, 0.12}, baseline, 1).verdict, Verdict::faster);
  EXPECT_EQ(speedup({}, baseline, 1).verdict, Verdict::unclear);
}

// A drift that both feel: with rounds drawn together it cancels, drawn apart it would hide 3%.
TEST(Speedup, PairsCancelADriftOfTheMachine) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise(1, 0.002);
  std::vector<double> candidate, baseline;
  for (int round = 0; round < 60; ++round) {
    const double drift = 1 + 0.2 * std::sin(round * 0.2);
    candidate.push_back(drift * noise(random));
    baseline.push_back(drift * noise(random) * 1.03);
  }
  EXPECT_EQ(speedup(candidate, baseline, 1).verdict, Verdict::faster);
}

TEST(StoppingRule, WaitsForTheFewestSamplesAndEndsAtTheMost) {
  const StoppingRule rule{.relative_width = 0.01, .min_samples = 10, .max_samples = 50};
  EXPECT_FALSE(rule.satisfied(std::vector<double>(9, 1.0), 1));
  EXPECT_TRUE(rule.satisfied(std::vector<double>(10, 1.0), 1));
  std::mt19937_64 random(8);
  const auto noisy = lognormal(random, 50, 1.0);
  EXPECT_TRUE(rule.satisfied(noisy, 1));
  EXPECT_FALSE(rule.satisfied(std::span(noisy).first(49), 1));
}

TEST(StoppingRule, ComparesTheWidthWithTheMedian) {
  const StoppingRule rule{.relative_width = 0.01, .min_samples = 10, .max_samples = 1000};
  std::mt19937_64 random(9);
  EXPECT_TRUE(rule.satisfied(lognormal(random, 100, 0.01), 1));
  EXPECT_FALSE(rule.satisfied(lognormal(random, 100, 0.10), 1));
}

TEST(Summary, AgreesWithItsParts) {
  std::mt19937_64 random(10);
  const auto samples = lognormal(random, 33, 0.1);
  const Summary summary = summarize(samples, 5);
  EXPECT_EQ(summary.samples, 33U);
  EXPECT_EQ(summary.median, median(samples));
  EXPECT_EQ(summary.interval.low, median_interval(samples, 5).low);
  EXPECT_EQ(summary.min, *std::ranges::min_element(samples));
  EXPECT_EQ(summary.p95, percentile(samples, 0.95));
}

}  // namespace
}  // namespace saccade::measure
