#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>

#include "core/dtypes.h"
#include "cuda/kernels.h"
#include "emu/session.h"
#include "verify/case_data.h"
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

// Only -inf hides a key: a row whose biases are all the lowest number attends to all alike.
TEST(LowestBias, HidesNothing) {
  for (const char* text : {"b1 h1 lq3 lk70 d32 bf16 bias=qk", "b1 h1 lq3 lk70 d32 bf16 bias32=qk"}) {
    const Problem problem = parse_problem(text).value();
    const CaseData data(problem, 1);
    Tensors tensors = data.tensors();
    const std::vector<float> wide(3 * 70, std::numeric_limits<float>::lowest());
    const std::vector<BF16> narrow(3 * 70, BF16{0xff7f});
    tensors.mask = problem.mask_dtype == DType::f32 ? static_cast<const void*>(wide.data()) : narrow.data();
    for (const char* name : {"sm80", "cuda_reference"}) {
      const Result<Prepared> prepared = find_emulated(name)->prepare(problem, emulated_machine(), "");
      std::vector<std::byte> workspace(prepared->workspace_bytes);
      const emu::Session session({.seed = 2});
      ASSERT_TRUE(prepared->launch(tensors, workspace.data(), nullptr).ok());
      for (int c = 0; c < 32; ++c) {
        float mean = 0;
        for (int j = 0; j < 70; ++j) mean += to_float(static_cast<const BF16*>(tensors.v)[j * 32 + c]) / 70;
        EXPECT_NEAR(to_float(static_cast<const BF16*>(tensors.o)[32 + c]), mean, 5e-3) << name << " " << text;
      }
    }
  }
}

}  // namespace
}  // namespace saccade
