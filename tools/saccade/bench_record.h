// Benchmark results as the records that the store keeps.
#pragma once

#include <vector>

#include "bench_shape.h"
#include "measure/provenance.h"
#include "store/records.h"

namespace saccade::cli {

/// Which ceiling a problem meets first, by its operations per byte.
enum class Bound { compute, memory };
[[nodiscard]] Bound bound(const ShapeResult& shape);

/// How a bar came out; `value` is in the bar's own unit.
struct BarResult {
  Bar bar;
  double value = 0;
  bool met = false;
};

/// The bars of a shape, held against the first kernel that was timed, which is the planner's choice. Empty
/// when none was timed. Speeds are the kernel's median against the ceiling's, as in every table: what a
/// caller gets on this machine, not its luckiest moment.
[[nodiscard]] std::vector<BarResult> judge_bars(const ShapeResult& shape);

/// A run that begins now, with all that is known before the first shape.
[[nodiscard]] store::Run run_record(const measure::Provenance& provenance, const Bench& bench);

/// One record for each kernel of a shape, timed or not.
[[nodiscard]] std::vector<store::Measurement> shape_records(const ShapeResult& shape);

/// Five digits: more than any timing holds, and diffs stay readable.
[[nodiscard]] double rounded(double x);

}  // namespace saccade::cli
