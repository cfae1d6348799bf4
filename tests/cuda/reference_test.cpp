#include <cstdlib>
#include <gtest/gtest.h>

#include "cuda/kernels.h"
#include "verify/emulated.h"
#include "verify/fuzz.h"

namespace saccade {
namespace {

TEST(Reference, TakesEveryRandomProblem) {
  const Kernel* kernel = find_emulated("cuda_reference");
  ASSERT_NE(kernel, nullptr);
  const char* count = std::getenv("SACCADE_FUZZ_COUNT");
  const FuzzTarget target{.name = "cuda_reference",
                          .accepts = [](const Problem& p) { return flops(p) < 3e6; },
                          .runner = emulated_runner(*kernel, "", {.seed = 7})};
  const FuzzResult result = fuzz_targets(count != nullptr ? std::atoll(count) : 100, 3, {target});
  EXPECT_GT(result.runs.at("cuda_reference"), result.problems / 3);
  for (const FuzzFailure& failure : result.failures) {
    ADD_FAILURE() << to_string(failure.smallest) << ": " << failure.verdict.failures.front().detail;
  }
}

}  // namespace
}  // namespace saccade
