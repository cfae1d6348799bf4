// Random problems for every kernel, and the smallest ones that still fail.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "verify/verify.h"

namespace saccade {

/// A valid problem of at most about 20 MFLOP, with any combination of features, sizes (0 included) and
/// strides that the definition allows.
[[nodiscard]] Problem random_problem(std::uint64_t seed);

/// Reduces a problem that fails to the smallest that still does: features go, strides become packed and sizes
/// shrink, one after the other, as long as `still_fails` says so. `still_fails` gets valid problems only.
[[nodiscard]] Problem shrink(const Problem& problem, const std::function<bool(const Problem&)>& still_fails);

struct FuzzFailure {
  std::string kernel;
  std::uint64_t seed = 0;  ///< of its data; the problem's too unless it was drawn again
  Problem problem;
  Problem smallest;   ///< after shrinking
  Verdict verdict;    ///< of the smallest
  std::string repro;  ///< the command that repeats the smallest
};

struct FuzzResult {
  std::int64_t problems = 0;
  std::map<std::string, std::int64_t> runs;  ///< problems that each kernel accepted
  std::vector<FuzzFailure> failures;
};

/// Something to fuzz.
struct FuzzTarget {
  std::string name;
  std::function<bool(const Problem&)> accepts;
  Runner runner;
};

/// Verifies `count` random problems on every target that accepts them; stops early after ten failures. What
/// no target accepts is drawn again, as often as it takes; after 5000 times in vain that is the
/// end. Problem n has the seed `seed` *
/// 1'000'000 + n. `progress` (may be empty) is told the number done so far.
[[nodiscard]] FuzzResult fuzz_targets(std::int64_t count, std::uint64_t seed,
                                      const std::vector<FuzzTarget>& targets,
                                      const std::function<void(std::int64_t done)>& progress = {});

/// The same for kernels of the registry: each of the options names one and its device.
[[nodiscard]] FuzzResult fuzz(std::int64_t count, std::uint64_t seed, const std::vector<PlanOptions>& kernels,
                              const std::function<void(std::int64_t done)>& progress = {});

}  // namespace saccade
