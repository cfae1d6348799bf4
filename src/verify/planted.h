// Known bugs, planted on purpose: what verify() must catch, or it is not worth its name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "verify/verify.h"

namespace saccade {

/// A computation with one defect and the problem on which the defect must be caught, whatever the dtype.
struct PlantedBug {
  std::string_view name;
  std::string_view description;
  std::string_view shape;  ///< in the shape syntax, without a dtype
  Runner runner;

  [[nodiscard]] Problem problem(DType dtype) const;
};

/// Every planted bug. Each call makes fresh ones (some count their calls).
[[nodiscard]] std::vector<PlantedBug> planted_bugs();

/// How to run verify() on planted bugs: they may read too far, which must not end the process.
[[nodiscard]] VerifyOptions self_test_options(std::uint64_t seed = 1);

/// Which checks caught a bug.
struct SelfTestResult {
  std::string_view name;
  std::string_view description;
  Problem problem;
  std::vector<Check> caught_by;  ///< empty: the verifier missed it

  [[nodiscard]] bool caught() const { return !caught_by.empty(); }
};

/// Plants every bug at this dtype.
[[nodiscard]] std::vector<SelfTestResult> self_test(DType dtype, std::uint64_t seed = 1);

}  // namespace saccade
