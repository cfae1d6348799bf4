// Judging a kernel: fresh random data, poisoned outputs, guard bands, the float64 oracle and the 2x rule.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <saccade/plan.h>
#include <saccade/problem.h>
#include <saccade/run.h>

#include "verify/guarded_buffer.h"

namespace saccade {

/// What is run under judgement: computes the problem on these tensors. Normally make_plan + run.
using Runner = std::function<Status(const Problem&, const Tensors&)>;

/// The checks; each can fail on its own and names what it saw.
enum class Check {
  status,       ///< the kernel returned an error
  written,      ///< every output element was written (no poison left)
  guards,       ///< nothing around any buffer, and no input, was changed
  positions,    ///< finite, +inf, -inf and NaN stand where the oracle has them
  relative_l2,  ///< ||o - oracle|| / ||oracle|| within the dtype's bound
  max_error,    ///< the largest element error within the dtype's bound
  plain,        ///< no worse than 2x the error of a plain same-precision implementation
  lse,          ///< the log-sum-exp within its bound
  determinism,  ///< the same input gives the same bits
  load,         ///< and still does while other threads keep every core busy
};

/// The check's name as printed.
[[nodiscard]] std::string_view to_string(Check check);

struct Failure {
  Check check;
  std::string detail;  ///< where, expected, got
};

struct VerifyOptions {
  std::uint64_t seed = 1;
  /// Rows compared with the oracle at most, always including the first and last of every head; the poison,
  /// guard and position checks look at all rows regardless. 0: all.
  std::int64_t max_rows = 4096;
  /// Further runs while other threads keep every core busy; their bits must be those of the quiet run.
  int runs_under_load = 0;
  /// Whether reading past the end of a buffer ends the process (after printing the repro line) or finds NaN.
  PastEnd past_end = PastEnd::fault;
};

/// The outcome for one problem, kernel and seed.
struct Verdict {
  std::vector<Failure> failures;  ///< empty: passed
  double relative_l2 = 0;         ///< error of o against the oracle
  double max_error = 0;
  double plain_relative_l2 = 0;  ///< the plain implementation's error on the same rows
  std::int64_t rows_checked = 0;
  std::int64_t rows_total = 0;

  [[nodiscard]] bool passed() const { return failures.empty(); }
};

/// Runs and judges. Data depend only on the problem and the seed.
[[nodiscard]] Verdict verify(const Problem& problem, const Runner& runner, const VerifyOptions& options = {});

/// A runner and what it is called in messages.
struct NamedRunner {
  std::string name;
  Runner runner;
};

/// Judges several runners on the same data; the oracle works once.
[[nodiscard]] std::vector<Verdict> verify_each(const Problem& problem, std::span<const NamedRunner> runners,
                                               const VerifyOptions& options = {});

/// The runner that plans with these options and runs, in a guarded workspace of exactly the plan's size.
[[nodiscard]] Runner kernel_runner(const PlanOptions& options);

/// The one command that repeats this verification, with every option that differs from the command's own
/// default.
[[nodiscard]] std::string repro_line(const Problem& problem, const std::string& kernel,
                                     const VerifyOptions& options);

}  // namespace saccade
