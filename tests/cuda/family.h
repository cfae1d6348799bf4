// What the tests of the fast families have in common: an instance must be right, count what it should, and
// give the same bits in every order.
#pragma once

#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <vector>

#include "core/dtypes.h"
#include "core/kernel.h"
#include "emu/session.h"
#include "verify/case_data.h"
#include "verify/emulated.h"
#include "verify/verify.h"

namespace saccade {

/// An instance of a family and what names it.
template <class Config>
struct Named {
  Config config;
  std::string text;

  friend void PrintTo(const Named& named, std::ostream* out) { *out << named.text; }
};

/// The kernel must be right for the shape with this configuration.
inline void expect_right(const Kernel& kernel, const std::string& shape, const std::string& config,
                         std::uint64_t seed) {
  const Verdict verdict =
      verify(parse_problem(shape).value(), emulated_runner(kernel, config, {.seed = seed}), {.seed = seed});
  ASSERT_TRUE(verdict.passed()) << shape << " with " << config << ", seed " << seed << ": "
                                << verdict.failures.front().detail;
}

/// Three launches in different orders give the same output. They share the workspace.
inline void expect_same_bits(const Problem& problem, const Prepared& prepared,
                             std::vector<std::byte> workspace = {}) {
  std::vector<std::byte> first;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    CaseData data(problem, 1);
    data.poison();
    const emu::Session session({.seed = seed});
    const Status status = prepared.launch(data.tensors(), workspace.data(), nullptr);
    ASSERT_TRUE(status.ok()) << status.message();
    const auto* o = static_cast<const std::byte*>(data.tensors().o);
    const std::vector<std::byte> bytes(o, o + problem.heads_q * problem.len_q * problem.dim_v * 2);
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first) << "seed " << seed;
  }
}

/// What one launch counts when the keys' scores are these, the same for every query. Its results must be
/// right, LSE too if it is asked for.
inline emu::Counters counted(const Kernel& kernel, const std::string& config, int dim, int lq,
                             std::span<const float> scores, bool lse = false) {
  const auto lk = static_cast<int>(scores.size());
  const Problem problem =
      parse_problem(fmt::format("b1 h1 lq{} lk{} f16 d{} scale=1{}", lq, lk, dim, lse ? " lse" : "")).value();
  const CaseData data(problem, 1);
  const auto numbers = [](const void* tensor) { return static_cast<F16*>(const_cast<void*>(tensor)); };
  for (int i = 0; i < lq * dim; ++i)
    numbers(data.tensors().q)[i] = from_float<F16>(i % dim == 0 ? 1.0F : 0.0F);
  for (int j = 0; j < lk; ++j) numbers(data.tensors().k)[j * dim] = from_float<F16>(scores[j]);
  const emu::Session session({.seed = 1, .count = true});
  const Result<Prepared> prepared = kernel.prepare(problem, emulated_machine(), config);
  std::vector<std::byte> workspace(prepared.ok() ? prepared->workspace_bytes : 0);
  EXPECT_TRUE(prepared.ok() && prepared->launch(data.tensors(), workspace.data(), nullptr).ok());
  std::vector<F16> expected(static_cast<std::size_t>(lq) * dim);
  Tensors reference = data.tensors();
  reference.o = expected.data();
  std::vector<float> expected_lse(static_cast<std::size_t>(lq));
  if (lse) reference.lse = expected_lse.data();
  EXPECT_TRUE(attend(problem, reference, {.kernel = "cpu_reference"}).ok());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const float found = to_float(numbers(data.tensors().o)[i]);
    if (!(std::abs(found - to_float(expected[i])) < 5e-3F)) {  // NaN is not below either
      ADD_FAILURE() << "number " << i << " is " << found << " instead of " << to_float(expected[i]);
      break;
    }
  }
  for (std::size_t i = 0; lse && i < expected_lse.size(); ++i) {
    if (!(std::abs(data.tensors().lse[i] - expected_lse[i]) < 1e-3F * (1 + std::abs(expected_lse[i])))) {
      ADD_FAILURE() << "LSE " << i << " is " << data.tensors().lse[i] << " instead of " << expected_lse[i];
      break;
    }
  }
  return session.counters();
}

}  // namespace saccade
