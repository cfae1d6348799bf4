// Benchmark results as a JSON document: what --json prints, --out writes, evidence/ keeps and report reads.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench_shape.h"
#include "measure/provenance.h"

namespace saccade::cli {

inline constexpr char kBenchSchema[] = "saccade.bench/1";

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
/// when none was timed.
[[nodiscard]] std::vector<BarResult> judge_bars(const ShapeResult& shape);

/// The whole document. Percentages refer to the ceilings that were timed in the same rounds as the kernels.
[[nodiscard]] nlohmann::ordered_json bench_document(const measure::Provenance& provenance, const Bench& bench,
                                                    const std::vector<ShapeResult>& shapes);

/// Reads a document back; an error names the file and what is wrong with it.
[[nodiscard]] nlohmann::ordered_json load_bench_document(const std::string& file);

/// Writes text to a file, folders included; the file is either whole or as it was before.
void write_file(const std::string& file, const std::string& text);

}  // namespace saccade::cli
