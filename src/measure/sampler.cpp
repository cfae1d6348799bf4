#include "measure/sampler.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace saccade::measure {
namespace {

constexpr std::size_t kFewestSamples = 3;
constexpr int kLargestBatch = 1 << 20;
constexpr double kSlow = 4;  // times the fastest candidate

struct Runner {
  const Candidate* candidate = nullptr;
  Samples samples;
  double call_seconds = 0;     ///< one call, from the warm-up
  double spent = 0;            ///< seconds of its own samples
  bool slow = false;           ///< much slower than the fastest candidate
  std::size_t next_check = 0;  ///< samples at which the stopping rule is asked again
  bool active = true;
};

/// A first call touches cold code and memory; the calls after it tell how many make a sample.
void warm_up(Runner& runner, const SamplerOptions& options) {
  const TimedCalls& time = runner.candidate->time;
  double one = time(1);
  if (one < 1e-2) one = std::min(time(1), time(1));
  int calls = 1;
  while (!options.before_sample && one * calls < options.shortest_sample_seconds && calls < kLargestBatch) {
    const double needed = std::ceil(options.shortest_sample_seconds / std::max(one, 1e-9));
    calls = std::min(std::max(calls * 2, static_cast<int>(needed)), kLargestBatch);
    one = std::min(time(calls), time(calls)) / calls;
  }
  runner.samples.calls_per_sample = calls;
  runner.call_seconds = one;
}

void take_sample(Runner& runner, const SamplerOptions& options) {
  if (options.before_sample) options.before_sample();
  const double seconds = runner.candidate->time(runner.samples.calls_per_sample);
  runner.samples.seconds.push_back(seconds / runner.samples.calls_per_sample);
  runner.spent += seconds;
}

void check_convergence(Runner& runner, const SamplerOptions& options) {
  const std::size_t n = runner.samples.seconds.size();
  if (n < runner.next_check) return;
  runner.samples.converged = options.stop.satisfied(runner.samples.seconds, options.seed);
  // The bootstrap costs about a millisecond, and a few more samples rarely change its answer.
  runner.next_check = std::max(options.stop.min_samples, n + n / 3);
}

void mark_slow(std::vector<Runner>& runners) {
  double fastest = std::numeric_limits<double>::infinity();
  for (const Runner& runner : runners) fastest = std::min(fastest, runner.call_seconds);
  for (Runner& runner : runners) runner.slow = runner.call_seconds > kSlow * fastest;
}

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

TimedCalls host_timer(std::function<void()> call) {
  return [call = std::move(call)](int calls) {
    const double begin = steady_seconds();
    for (int i = 0; i < calls; ++i) call();
    return steady_seconds() - begin;
  };
}

std::vector<Samples> sample(std::span<const Candidate> candidates, const SamplerOptions& options) {
  std::vector<Runner> runners;
  const double begin = options.now();
  for (const Candidate& candidate : candidates) {
    Runner& runner = runners.emplace_back();
    runner.candidate = &candidate;
    runner.samples.name = candidate.name;
    warm_up(runner, options);
  }
  mark_slow(runners);

  std::mt19937_64 random(options.seed);
  std::vector<std::size_t> order(runners.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const double share = options.budget_seconds / static_cast<double>(std::max<std::size_t>(runners.size(), 1));
  const auto had_its_turn = [&](const Runner& runner) {
    const std::size_t n = runner.samples.seconds.size();
    return n >= kFewestSamples && (runner.spent > share || (!runner.slow && n >= options.stop.min_samples));
  };
  while (std::ranges::any_of(runners, &Runner::active)) {
    std::ranges::shuffle(order, random);
    for (const std::size_t i : order) {
      if (runners[i].active) take_sample(runners[i], options);
    }
    for (Runner& runner : runners) {
      if (!runner.active) continue;
      check_convergence(runner, options);
      if (runner.slow && had_its_turn(runner)) runner.active = false;
    }
    // The others stay together to the end: pairs of one round are what a ratio is made of.
    const bool over = options.now() - begin > options.budget_seconds;
    const bool done = std::ranges::all_of(runners, [&](const Runner& r) {
      return !r.active || r.samples.converged || (over && had_its_turn(r));
    });
    const bool full = std::ranges::any_of(
        runners, [&](const Runner& r) { return r.samples.seconds.size() >= options.stop.max_samples; });
    if (done || full) break;
  }

  std::vector<Samples> result;
  for (Runner& runner : runners) {
    runner.samples.converged = options.stop.satisfied(runner.samples.seconds, options.seed);
    result.push_back(std::move(runner.samples));
  }
  return result;
}

}  // namespace saccade::measure
