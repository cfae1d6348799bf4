// The one statistics module: medians, bootstrap intervals, ratios with a verdict, and when to stop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace saccade::measure {

/// Both ends of a 95% interval.
struct Interval {
  double low = 0;
  double high = 0;

  [[nodiscard]] bool contains(double x) const { return low <= x && x <= high; }
  [[nodiscard]] double width() const { return high - low; }
};

/// Resamples behind every interval.
inline constexpr int kResamples = 10'000;
/// Fewer samples than this cannot carry a 95% interval of a median: with 5 the whole range covers 93.8%.
inline constexpr std::size_t kFewSamples = 6;

/// The p-quantile (0 <= p <= 1) with linear interpolation between order statistics; NaN without samples.
[[nodiscard]] double percentile(std::span<const double> samples, double p);
/// The middle value, or the mean of the middle two; NaN without samples.
[[nodiscard]] double median(std::span<const double> samples);

/// The percentile-bootstrap 95% interval of the median. Its cost does not grow with the samples beyond a
/// sort.
[[nodiscard]] Interval median_interval(std::span<const double> samples, std::uint64_t seed);

/// What a benchmark prints about one list of samples.
struct Summary {
  std::size_t samples = 0;
  double median = 0;
  Interval interval;  ///< of the median
  double min = 0;
  double p95 = 0;
};
[[nodiscard]] Summary summarize(std::span<const double> samples, std::uint64_t seed);

/// How a candidate compares with a baseline.
enum class Verdict {
  faster,
  same,  ///< the interval of the ratio lies within kSameMargin of 1
  slower,
  unclear,  ///< neither: the interval is too wide, or the samples are too few
};
[[nodiscard]] std::string_view to_string(Verdict verdict);

/// Closer to 1 than this no difference is called: where two buffers happen to lie in memory makes as much,
/// and stays the same however often it is sampled.
inline constexpr double kSameMargin = 0.02;

/// median(baseline) / median(candidate): above 1 the candidate is faster.
struct Speedup {
  double value = 0;
  Interval interval;
  Verdict verdict = Verdict::unclear;
};

/// Compares two lists of times. Lists of one length are taken as rounds of interleaved measurement: sample i
/// of both is drawn together, so that a drift of the machine that both felt cancels.
[[nodiscard]] Speedup speedup(std::span<const double> candidate, std::span<const double> baseline,
                              std::uint64_t seed);

/// Compares two lists that were not measured together, such as those of two runs.
[[nodiscard]] Speedup independent_speedup(std::span<const double> candidate, std::span<const double> baseline,
                                          std::uint64_t seed);

/// What a ratio and its interval say when the shorter list has this many samples.
[[nodiscard]] Verdict judge(double ratio, const Interval& interval, std::size_t fewest_samples);

/// When sampling may end: the width of the median's interval as a share of the median.
struct StoppingRule {
  double relative_width = 0.01;
  std::size_t min_samples = 10;
  std::size_t max_samples = 300;

  /// Whether these samples suffice.
  [[nodiscard]] bool satisfied(std::span<const double> samples, std::uint64_t seed) const;
};

}  // namespace saccade::measure
