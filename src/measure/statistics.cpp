#include "measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace saccade::measure {
namespace {

constexpr double kTail = 0.025;  // on each side of a 95% interval

std::vector<double> sorted(std::span<const double> samples) {
  std::vector<double> copy(samples.begin(), samples.end());
  std::ranges::sort(copy);
  return copy;
}

double percentile_of_sorted(const std::vector<double>& ordered, double p) {
  if (ordered.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double at = p * static_cast<double>(ordered.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, ordered.size() - 1);
  return std::lerp(ordered[below], ordered[above], at - static_cast<double>(below));
}

/// Medians of bootstrap resamples without resampling. The order statistics of n draws from n sorted values
/// are the values at floor(n * U), U the order statistics of n uniform numbers: the k-th of those follows
/// Beta(k, n - k + 1), and the one after it is the least of n - k uniform numbers above it.
class ResampledMedian {
 public:
  explicit ResampledMedian(std::span<const double> samples)
      : ordered_(sorted(samples)), n_(static_cast<double>(ordered_.size())), k_((ordered_.size() + 1) / 2) {
    const auto k = static_cast<double>(k_);
    left_ = std::gamma_distribution<double>(k);
    right_ = std::gamma_distribution<double>(n_ - k + 1);
  }

  double operator()(std::mt19937_64& random) {
    const double a = left_(random);
    const double u = a / (a + right_(random));
    if (ordered_.size() % 2 == 1) return at(u);
    const double above = n_ - static_cast<double>(k_);
    const double next = 1 - (1 - u) * std::pow(uniform_(random), 1 / above);
    return (at(u) + at(next)) / 2;
  }

 private:
  [[nodiscard]] double at(double u) const {
    return ordered_[std::min(static_cast<std::size_t>(n_ * u), ordered_.size() - 1)];
  }

  std::vector<double> ordered_;
  double n_;
  std::size_t k_;
  std::gamma_distribution<double> left_, right_;
  std::uniform_real_distribution<double> uniform_;
};

/// The median of a resample given as how often each sorted value was drawn.
class CountedMedian {
 public:
  explicit CountedMedian(std::span<const double> samples)
      : ordered_(sorted(samples)), rank_(samples.size()), counts_(samples.size()) {
    std::vector<std::size_t> order(samples.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return samples[i]; });
    for (std::size_t rank = 0; rank < order.size(); ++rank) rank_[order[rank]] = rank;
  }

  void draw(std::size_t sample) { ++counts_[rank_[sample]]; }

  /// The median of what was drawn, and a fresh start.
  double take() {
    const std::size_t n = ordered_.size();
    const double low = ordered_[position((n - 1) / 2)];
    const double high = n % 2 == 1 ? low : ordered_[position(n / 2)];
    std::ranges::fill(counts_, 0U);
    return (low + high) / 2;
  }

 private:
  [[nodiscard]] std::size_t position(std::size_t drawn_before) const {
    std::size_t seen = 0, rank = 0;
    while (seen + counts_[rank] <= drawn_before) seen += counts_[rank++];
    return rank;
  }

  std::vector<double> ordered_;
  std::vector<std::size_t> rank_;
  std::vector<std::uint32_t> counts_;
};

template <class Draw>
Interval bootstrap(Draw&& draw) {
  std::vector<double> draws(kResamples);
  std::ranges::generate(draws, draw);
  const auto at = [&draws](double p) {  // of so many draws, no interpolation is needed
    const auto position = draws.begin() + std::lround(p * (kResamples - 1));
    std::ranges::nth_element(draws, position);
    return *position;
  };
  return {at(kTail), at(1 - kTail)};
}

Interval independent_ratio(std::span<const double> candidate, std::span<const double> baseline,
                           std::mt19937_64& random) {
  ResampledMedian of_candidate(candidate);
  ResampledMedian of_baseline(baseline);
  return bootstrap([&] { return of_baseline(random) / of_candidate(random); });
}

Interval paired_ratio(std::span<const double> candidate, std::span<const double> baseline,
                      std::mt19937_64& random) {
  const std::uint64_t n = candidate.size();
  CountedMedian of_candidate(candidate);
  CountedMedian of_baseline(baseline);
  return bootstrap([&] {
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::size_t round = (random() >> 32) * n >> 32;  // uniform below n, up to a bias of n / 2^32
      of_candidate.draw(round);
      of_baseline.draw(round);
    }
    return of_baseline.take() / of_candidate.take();
  });
}

Speedup compare(std::span<const double> candidate, std::span<const double> baseline, std::uint64_t seed,
                bool paired) {
  if (candidate.empty() || baseline.empty()) return {};
  std::mt19937_64 random(seed);
  const Interval interval =
      paired ? paired_ratio(candidate, baseline, random) : independent_ratio(candidate, baseline, random);
  const double ratio = median(baseline) / median(candidate);
  return {ratio, interval, judge(ratio, interval, std::min(candidate.size(), baseline.size()))};
}

}  // namespace

double percentile(std::span<const double> samples, double p) {
  return percentile_of_sorted(sorted(samples), p);
}

double median(std::span<const double> samples) {
  return percentile(samples, 0.5);
}

Interval median_interval(std::span<const double> samples, std::uint64_t seed) {
  if (samples.empty())
    return {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
  std::mt19937_64 random(seed);
  ResampledMedian draw(samples);
  return bootstrap([&] { return draw(random); });
}

Summary summarize(std::span<const double> samples, std::uint64_t seed) {
  const std::vector<double> ordered = sorted(samples);
  return {.samples = ordered.size(),
          .median = percentile_of_sorted(ordered, 0.5),
          .interval = median_interval(samples, seed),
          .min = percentile_of_sorted(ordered, 0),
          .p95 = percentile_of_sorted(ordered, 0.95)};
}

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster:
      return "faster";
    case Verdict::same:
      return "same";
    case Verdict::slower:
      return "slower";
    case Verdict::unclear:
      break;
  }
  return "unclear";
}

Verdict judge(double ratio, const Interval& interval, std::size_t fewest_samples) {
  // A handful of samples only speaks about differences that no noise of this kind makes.
  const double margin = fewest_samples < kFewSamples ? 0.25 : 0.0;
  if (interval.low > 1 + margin && ratio > 1 + kSameMargin) return Verdict::faster;
  if (interval.high < 1 / (1 + margin) && ratio < 1 / (1 + kSameMargin)) return Verdict::slower;
  const bool narrow = interval.low > 1 - kSameMargin && interval.high < 1 + kSameMargin;
  return narrow && fewest_samples >= kFewSamples ? Verdict::same : Verdict::unclear;
}

Speedup speedup(std::span<const double> candidate, std::span<const double> baseline, std::uint64_t seed) {
  return compare(candidate, baseline, seed, candidate.size() == baseline.size());
}

Speedup independent_speedup(std::span<const double> candidate, std::span<const double> baseline,
                            std::uint64_t seed) {
  return compare(candidate, baseline, seed, false);
}

bool StoppingRule::satisfied(std::span<const double> samples, std::uint64_t seed) const {
  if (samples.size() < min_samples) return false;
  if (samples.size() >= max_samples) return true;
  return median_interval(samples, seed).width() <= relative_width * median(samples);
}

}  // namespace saccade::measure
