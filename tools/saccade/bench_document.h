// A run as a JSON document: what --json prints, --out writes, evidence/ keeps and report reads.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "store/records.h"

namespace saccade::cli {

inline constexpr char kBenchSchema[] = "saccade.bench/1";

/// The whole run without its raw samples; numbers have five digits. Percentages refer to the ceilings that
/// were timed in the same rounds as the kernels.
[[nodiscard]] nlohmann::ordered_json bench_document(const store::WholeRun& whole);

/// The run that a document describes. An error names the file and the field that is missing or wrong.
[[nodiscard]] store::WholeRun read_document(const nlohmann::ordered_json& document, const std::string& file);

/// Reads a file that must hold a document: parsed, and every field checked.
[[nodiscard]] nlohmann::ordered_json load_bench_document(const std::string& file);

/// Writes text to a file, folders included; the file is either whole or as it was before.
void write_file(const std::string& file, const std::string& text);

}  // namespace saccade::cli
