#include "verify/verify.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <omp.h>
#include <optional>

#include "core/dtypes.h"
#include "core/sequence.h"
#include "core/validate.h"
#include "cpu/reference.h"
#include "verify/bounds.h"
#include "verify/case_data.h"
#include "verify/crash_note.h"
#include "verify/load.h"
#include "verify/mirror.h"
#include "verify/rows.h"

namespace saccade {
namespace {

/// How a value stands, for the positions check.
std::string_view kind(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "+inf" : "-inf";
  return "finite";
}

/// The reference's rows for the sampled part of a problem.
struct Expected {
  std::vector<double> o;  ///< [slot][dim_v]
  std::vector<double> lse;

  Expected(const Problem& p, const Tensors& t, Precision precision, const RowSample& rows)
      : o(static_cast<std::size_t>(rows.size() * p.dim_v)), lse(static_cast<std::size_t>(rows.size())) {
    const int threads = omp_get_max_threads();
    std::vector<std::byte> scratch(reference_scratch_bytes(p, threads));
    const auto filter = [&](std::int64_t b, std::int64_t h, std::int64_t i) { return rows.has(b, h, i); };
    reference(p, t, precision, threads, scratch, filter, [&](const ReferenceRow& row) {
      const std::int64_t slot = rows.slot(row.batch, row.head, row.query);
      std::ranges::copy(row.o, o.begin() + slot * p.dim_v);
      lse[static_cast<std::size_t>(slot)] = row.lse;
    });
  }
  [[nodiscard]] std::span<const double> row(std::int64_t slot, std::int64_t dim) const {
    return std::span(o).subspan(static_cast<std::size_t>(slot * dim), static_cast<std::size_t>(dim));
  }
};

/// One failure a check: the first place it was seen, or the worst.
class Findings {
 public:
  void add(Check check, std::string detail) {
    if (!has(check)) failures_.push_back({check, std::move(detail)});
  }
  [[nodiscard]] bool has(Check check) const {
    return std::ranges::any_of(failures_, [&](const Failure& failure) { return failure.check == check; });
  }
  [[nodiscard]] std::vector<Failure> take() { return std::move(failures_); }

 private:
  std::vector<Failure> failures_;
};

/// The element or log-sum-exp that is furthest past its bound.
class Worst {
 public:
  /// Calls `describe` only when this error is the furthest so far.
  template <class Describe>
  void see(double error, double bound, const Describe& describe) {
    // Written so that a NaN error would count as an excess.
    if (error <= bound || (!text_.empty() && error - bound <= excess_)) return;
    excess_ = error - bound;
    text_ = fmt::format("{}: error {:.3g}, bound {:.3g}", describe(), error, bound);
  }
  void report(Check check, Findings& findings) const {
    if (!text_.empty()) findings.add(check, text_);
  }

 private:
  double excess_ = 0;
  std::string text_;
};

/// What a pass over all rows collects. The sums are of squares, over finite elements.
struct Tally {
  Findings& findings;
  Worst worst_o{}, worst_lse{};
  double max_error = 0;
  double error = 0, plain_error = 0, o = 0, elements = 0;
  double p = 0, abs_key_lse = 0, attending_rows = 0;
};

/// Rows of output that do not repeat one another: queries may be broadcast over rows, over the query heads of
/// a key head and, if keys are, over all heads and batches. Causal rows and windows count as repeated, for
/// most of their keys are the same; masks make rows different.
double different_rows(const Problem& p) {
  const bool masked = p.mask != MaskKind::none;
  const bool keys_by_head = p.k.head != 0 || p.v.head != 0;
  const std::int64_t heads = masked || p.q.head != 0 ? p.heads_q : keys_by_head ? p.heads_kv : 1;
  const bool dense = !p.ragged_q && p.kv_layout == KvLayout::dense && !p.kv_lengths;
  const bool keys_by_batch = p.k.batch != 0 || p.v.batch != 0;
  const std::int64_t batches = masked || !dense || p.q.batch != 0 || keys_by_batch ? p.batch : 1;
  const std::int64_t rows = p.ragged_q ? p.total_q : batches * p.len_q;
  return static_cast<double>(heads * (masked || p.q.row != 0 ? rows : batches));
}

/// The data of one problem and seed, what the oracle says of them, and the judgement of runners on them.
class Trial {
 public:
  Trial(const Problem& problem, const VerifyOptions& options)
      : p_(problem), options_(options), bounds_(problem), data_(problem, options.seed, options.past_end) {
    // Sizes with which no call can be legal (keys but no pages) leave nothing to compare with; the runner is
    // expected to refuse them too.
    if (!validate_indices(problem, data_.tensors()).ok()) return;
    rows_.emplace(p_, data_.tensors(), options.max_rows, options.seed);
    oracle_.emplace(p_, data_.tensors(), Precision::oracle, *rows_);
    plain_.emplace(p_, data_.tensors(), Precision::plain, *rows_);
    for (double& x : plain_->o) {  // the plain implementation stores its output in the dtype too
      with_dtype(p_.dtype,
                 [&](auto zero) { x = to_float(from_float<decltype(zero)>(static_cast<float>(x))); });
    }
    const CaseData::Variant absolute = data_.absolute_values();
    p_abs_v_.emplace(absolute.problem, absolute.tensors, Precision::oracle, *rows_);
    const CaseData::Variant doubled = data_.doubled_scores();
    doubled_.emplace(doubled.problem, doubled.tensors, Precision::oracle, *rows_);
  }

  Verdict judge(const NamedRunner& named) {
    Verdict verdict;
    Findings findings;
    const CrashNote note(fmt::format("\ncrashed in: {}\n", repro_line(p_, named.name, options_)));
    data_.poison();
    const Status status = named.runner(p_, data_.tensors());
    if (!status.ok()) findings.add(Check::status, status.message());
    if (std::string damage = data_.damage(); !damage.empty()) findings.add(Check::guards, std::move(damage));
    if (status.ok() && rows_) {
      verdict.rows_checked = rows_->size();
      verdict.rows_total = rows_->total();
      Tally tally{.findings = findings};
      look_at_all_rows(tally);
      weigh(tally, verdict);
      // With memory damaged, a second run would not be a run on the same input.
      if (!findings.has(Check::guards)) run_again(named.runner, findings);
      if (!findings.has(Check::guards) && !findings.has(Check::determinism)) {
        run_under_load(named.runner, findings);
      }
    }
    verdict.failures = findings.take();
    return verdict;
  }

 private:
  void look_at_all_rows(Tally& tally) const {
    for (std::int64_t b = 0; b < p_.batch; ++b) {
      const Sequence s = sequence(p_, data_.tensors(), b);
      for (std::int64_t h = 0; h < p_.heads_q; ++h) {
        for (std::int64_t i = 0; i < s.len_q; ++i) {
          if (rows_->has(b, h, i)) {
            compare(s, h, i, tally);
          } else {
            inspect(s, h, i, tally.findings);
          }
        }
      }
    }
  }

  static std::string name_of_o(const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t d) {
    return fmt::format("o[batch {}, head {}, query {}, dim {}]", s.batch, h, i, d);
  }
  static std::string name_of_lse(const Sequence& s, std::int64_t h, std::int64_t i) {
    return fmt::format("lse[batch {}, head {}, query {}]", s.batch, h, i);
  }

  /// The kernel's element, unless it was not written.
  [[nodiscard]] std::optional<double> element(const Sequence& s, std::int64_t h, std::int64_t i,
                                              std::int64_t d, Findings& findings) const {
    const std::int64_t offset = query_offset(p_, p_.o, s, h, i) + d;
    if (!data_.poisoned_o(offset)) return load(p_.dtype, data_.tensors().o, offset);
    findings.add(Check::written, name_of_o(s, h, i, d) + " was not written");
    return std::nullopt;
  }
  [[nodiscard]] std::optional<double> log_sum_exp(const Sequence& s, std::int64_t h, std::int64_t i,
                                                  Findings& findings) const {
    if (!p_.lse) return std::nullopt;
    const std::int64_t offset = lse_offset(p_, s, h, i);
    if (!data_.poisoned_lse(offset)) return data_.tensors().lse[offset];
    findings.add(Check::written, name_of_lse(s, h, i) + " was not written");
    return std::nullopt;
  }

  /// The log-sum-exp of the keys alone. Where they have less than 1e-16 of the weight, as if they had that.
  [[nodiscard]] double without_sink(double lse, std::int64_t h) const {
    if (!p_.sinks) return lse;
    const double weight_of_keys = -std::expm1(data_.tensors().sinks[h] - lse);
    return lse + std::log(std::max(weight_of_keys, 1e-16));
  }

  /// A row that the oracle calculated: every number is compared.
  void compare(const Sequence& s, std::int64_t h, std::int64_t i, Tally& tally) const {
    const std::int64_t slot = rows_->slot(s.batch, h, i);
    const double lse = oracle_->lse[static_cast<std::size_t>(slot)];
    const double key_lse = without_sink(lse, h);
    const std::span<const double> exact = oracle_->row(slot, p_.dim_v);
    const std::span<const double> plain = plain_->row(slot, p_.dim_v);
    const std::span<const double> p_abs_v = p_abs_v_->row(slot, p_.dim_v);
    for (std::int64_t d = 0; d < p_.dim_v; ++d) {
      const auto at = static_cast<std::size_t>(d);
      const std::optional<double> got = element(s, h, i, d, tally.findings);
      if (!got) continue;
      if (kind(*got) != kind(exact[at])) {
        tally.findings.add(Check::positions, fmt::format("{} is {}, the oracle has {}", name_of_o(s, h, i, d),
                                                         *got, exact[at]));
      }
      if (!std::isfinite(*got) || !std::isfinite(exact[at])) continue;
      const double error = std::abs(*got - exact[at]);
      tally.worst_o.see(error, bounds_.element(exact[at], p_abs_v[at], key_lse), [&] {
        return fmt::format("{} is {:.9g}, the oracle has {:.9g}", name_of_o(s, h, i, d), *got, exact[at]);
      });
      tally.max_error = std::max(tally.max_error, error);
      tally.error += error * error;
      tally.plain_error += (plain[at] - exact[at]) * (plain[at] - exact[at]);
      tally.o += exact[at] * exact[at];
      tally.elements += 1;
    }
    if (std::isfinite(key_lse)) {
      tally.p += std::exp(doubled_->lse[static_cast<std::size_t>(slot)] - 2 * lse);
      tally.abs_key_lse += std::abs(key_lse);
      tally.attending_rows += 1;
    }
    const std::optional<double> got = log_sum_exp(s, h, i, tally.findings);
    if (!got) return;
    const auto describe = [&] {
      return fmt::format("{} is {:.9g}, the oracle has {:.9g}", name_of_lse(s, h, i), *got, lse);
    };
    if (kind(*got) != kind(lse)) {
      tally.findings.add(Check::positions, describe());
    } else if (std::isfinite(lse)) {
      tally.worst_lse.see(std::abs(*got - lse), bounds_.lse(lse), describe);
    }
  }

  /// A row that was not sampled: it must be written, and finite or empty as the masks say.
  void inspect(const Sequence& s, std::int64_t h, std::int64_t i, Findings& findings) const {
    const bool empty = !data_.attends_any(s, h, i);
    for (std::int64_t d = 0; d < p_.dim_v; ++d) {
      const std::optional<double> got = element(s, h, i, d, findings);
      if (!got || data_.has_nan() || (empty ? *got == 0 : std::isfinite(*got))) continue;
      findings.add(Check::positions,
                   fmt::format("{} is {}; {}", name_of_o(s, h, i, d), *got,
                               empty ? "a row without keys is 0" : "all inputs are finite"));
    }
    const std::optional<double> lse = log_sum_exp(s, h, i, findings);
    const std::string_view expected = empty && !p_.sinks ? "-inf" : "finite";
    if (lse && !data_.has_nan() && kind(*lse) != expected) {
      findings.add(Check::positions,
                   fmt::format("{} is {}; it must be {}", name_of_lse(s, h, i), *lse, expected));
    }
  }

  /// The checks that need all rows.
  void weigh(const Tally& tally, Verdict& verdict) const {
    tally.worst_o.report(Check::max_error, tally.findings);
    tally.worst_lse.report(Check::lse, tally.findings);
    verdict.max_error = tally.max_error;
    const double o = std::sqrt(tally.o);
    if (o == 0) return;  // every row is empty or not finite: the checks above have said all
    const double error = std::sqrt(tally.error);
    const double plain = std::sqrt(tally.plain_error);
    const RowSummary rows{.o_norm = o,
                          .elements = tally.elements,
                          .mean_abs_key_lse = tally.abs_key_lse / tally.attending_rows,
                          .deviation = std::sqrt(tally.p / tally.attending_rows),
                          .copies = std::max(1.0, tally.attending_rows / different_rows(p_))};
    verdict.relative_l2 = error / o;
    verdict.plain_relative_l2 = plain / o;
    if (const double bound = bounds_.l2(rows); error > bound) {
      tally.findings.add(Check::relative_l2,
                         fmt::format("relative L2 error {:.3g}, bound {:.3g}", error / o, bound / o));
    }
    if (const double bound = 2 * plain + bounds_.plain_floor(rows); error > bound) {
      tally.findings.add(
          Check::plain,
          fmt::format("relative L2 error {:.3g}, bound {:.3g}: the plain implementation makes {:.3g}",
                      error / o, bound / o, plain / o));
    }
  }

  /// Runs once more on the same input and holds the bits against the first run's.
  void repeat(const Runner& runner, const std::vector<std::byte>& first, Check check, std::string_view which,
              Findings& findings) {
    data_.poison();
    const Status status = runner(p_, data_.tensors());
    if (!status.ok()) {
      findings.add(Check::status, fmt::format("the {} run failed: {}", which, status.message()));
      return;
    }
    const std::vector<std::byte> again = data_.output_bytes();
    const auto [at, ignored] = std::ranges::mismatch(first, again);
    if (at == first.end()) return;
    findings.add(check,
                 fmt::format("the {} run on the same input differs, first in byte {} of o followed by lse",
                             which, at - first.begin()));
  }

  void run_again(const Runner& runner, Findings& findings) {
    repeat(runner, data_.output_bytes(), Check::determinism, "second", findings);
  }

  void run_under_load(const Runner& runner, Findings& findings) {
    if (options_.runs_under_load == 0) return;
    const std::vector<std::byte> quiet = data_.output_bytes();
    const Load load;
    for (int n = 0; n < options_.runs_under_load; ++n) {
      repeat(runner, quiet, Check::load, "loaded", findings);
      if (std::string damage = data_.damage(); !damage.empty()) {
        findings.add(Check::guards, std::move(damage));
        return;
      }
    }
  }

  Problem p_;
  VerifyOptions options_;
  ErrorBounds bounds_;
  CaseData data_;
  std::optional<RowSample> rows_;
  std::optional<Expected> oracle_, plain_, p_abs_v_, doubled_;
};

}  // namespace

std::string_view to_string(Check check) {
  switch (check) {
    case Check::status:
      return "status";
    case Check::written:
      return "written";
    case Check::guards:
      return "guards";
    case Check::positions:
      return "positions";
    case Check::relative_l2:
      return "relative_l2";
    case Check::max_error:
      return "max_error";
    case Check::plain:
      return "plain";
    case Check::lse:
      return "lse";
    case Check::determinism:
      return "determinism";
    case Check::load:
      return "load";
  }
  return "unknown";
}

std::vector<Verdict> verify_each(const Problem& problem, std::span<const NamedRunner> runners,
                                 const VerifyOptions& options) {
  std::vector<Verdict> verdicts;
  if (Status status = validate(problem); !status.ok()) {
    Verdict invalid;
    invalid.failures.push_back({Check::status, status.message()});
    verdicts.assign(runners.size(), invalid);
    return verdicts;
  }
  Trial trial(problem, options);
  for (const NamedRunner& runner : runners) verdicts.push_back(trial.judge(runner));
  return verdicts;
}

Verdict verify(const Problem& problem, const Runner& runner, const VerifyOptions& options) {
  const NamedRunner named{"", runner};
  return verify_each(problem, {&named, 1}, options).front();
}

Runner kernel_runner(const PlanOptions& options) {
  return [options](const Problem& problem, const Tensors& tensors) -> Status {
    const Result<Plan> plan = make_plan(problem, options);
    if (!plan.ok()) return plan.status();
    if (options.device.kind == DeviceKind::cuda) return run_mirrored(plan.value(), tensors);
    const GuardedBuffer workspace(plan.value().workspace_bytes(), kWorkspaceAlignment, PastEnd::fault);
    Status status = run(plan.value(), tensors, {workspace.bytes().data(), workspace.bytes().size()});
    if (status.ok() && !workspace.bands_intact()) {
      return {Code::internal, fmt::format("{} wrote outside its workspace of {} bytes", plan.value().kernel(),
                                          workspace.bytes().size())};
    }
    return status;
  };
}

std::string repro_line(const Problem& problem, const std::string& kernel, const VerifyOptions& options) {
  std::string line = fmt::format("saccade verify '{}'", to_string(problem));
  if (!kernel.empty()) line += fmt::format(" --kernel {}", kernel);
  line += fmt::format(" --seed {}", options.seed);
  if (const VerifyOptions standard; options.max_rows != standard.max_rows) {
    line += fmt::format(" --max-rows {}", options.max_rows);
  }
  return line;
}

}  // namespace saccade
