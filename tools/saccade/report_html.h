// Benchmark documents as one HTML page that needs nothing else: no network, no scripts, no other files.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace saccade::cli {

/// Figures, tables, bars and provenance of all documents. The figures are drawn by gnuplot; the command ends
/// when it is missing.
[[nodiscard]] std::string html_report(const std::vector<nlohmann::ordered_json>& documents);

}  // namespace saccade::cli
