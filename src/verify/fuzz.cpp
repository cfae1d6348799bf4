#include "verify/fuzz.h"

#include <algorithm>

namespace saccade {
namespace {

constexpr std::size_t kMaxFailures = 10;
constexpr std::uint64_t kMaxDraws = 5000;

FuzzFailure shrunk(const Problem& problem, const FuzzTarget& target, const Verdict& verdict,
                   const VerifyOptions& options) {
  // A smaller problem counts only when it fails a check that the first one failed, not for a new reason.
  const auto fails_alike = [&](const Verdict& other) {
    return std::ranges::any_of(other.failures, [&](const Failure& failure) {
      return std::ranges::find(verdict.failures, failure.check, &Failure::check) != verdict.failures.end();
    });
  };
  const NamedRunner named{target.name, target.runner};
  const auto judge = [&](const Problem& p) { return verify_each(p, {&named, 1}, options).front(); };
  const Problem smallest = shrink(problem, [&](const Problem& candidate) {
    return target.accepts(candidate) && fails_alike(judge(candidate));
  });
  return {target.name, options.seed,    problem,
          smallest,    judge(smallest), repro_line(smallest, target.name, options)};
}

}  // namespace

FuzzResult fuzz_targets(std::int64_t count, std::uint64_t seed, const std::vector<FuzzTarget>& targets,
                        const std::function<void(std::int64_t done)>& progress) {
  FuzzResult result;
  for (std::int64_t n = 0; n < count && result.failures.size() < kMaxFailures; ++n) {
    const VerifyOptions options{.seed = seed * 1'000'000 + static_cast<std::uint64_t>(n)};
    const auto accepted = [&](const Problem& p) {
      return std::ranges::any_of(targets, [&](const FuzzTarget& target) { return target.accepts(p); });
    };
    Problem problem = random_problem(options.seed);
    for (std::uint64_t draw = 1; draw < kMaxDraws && !accepted(problem); ++draw)
      problem = random_problem(options.seed + draw * 1'000'000'007);
    if (!accepted(problem)) break;  // nor will the next one be
    std::vector<const FuzzTarget*> accepting;
    std::vector<NamedRunner> runners;
    for (const FuzzTarget& target : targets) {
      if (!target.accepts(problem)) continue;
      accepting.push_back(&target);
      runners.push_back({target.name, target.runner});
      ++result.runs[target.name];
    }
    const std::vector<Verdict> verdicts = verify_each(problem, runners, options);
    for (std::size_t k = 0; k < verdicts.size(); ++k) {
      if (!verdicts[k].passed()) {
        result.failures.push_back(shrunk(problem, *accepting[k], verdicts[k], options));
      }
    }
    ++result.problems;
    if (progress) progress(result.problems);
  }
  return result;
}

FuzzResult fuzz(std::int64_t count, std::uint64_t seed, const std::vector<PlanOptions>& kernels,
                const std::function<void(std::int64_t done)>& progress) {
  std::vector<FuzzTarget> targets;
  for (const PlanOptions& options : kernels) {
    targets.push_back({options.kernel, [options](const Problem& p) { return make_plan(p, options).ok(); },
                       kernel_runner(options)});
  }
  return fuzz_targets(count, seed, targets, progress);
}

}  // namespace saccade
