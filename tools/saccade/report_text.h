// Benchmark documents as tables and sentences, and Markdown between markers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "console.h"

namespace saccade::cli {

/// Which kernels of a shape a table shows.
enum class Rows {
  fastest,  ///< the planner's choice
  all,
};

/// Where, when and from what the numbers come, in one paragraph; as Markdown it ends its line.
[[nodiscard]] std::string provenance_sentence(const nlohmann::ordered_json& document);
[[nodiscard]] std::string provenance_markdown(const nlohmann::ordered_json& document);
/// The table of a document, from which Markdown and HTML are made alike. The percentage of the ceiling that
/// binds the shape is strong.
[[nodiscard]] Table result_table(const nlohmann::ordered_json& document, Rows rows);
[[nodiscard]] std::string table_markdown(const nlohmann::ordered_json& document, Rows rows);

/// `text` with what stands between "<!-- saccade:NAME begin -->" and "<!-- saccade:NAME end -->" replaced;
/// nothing when the markers are not there, each once and in order.
[[nodiscard]] std::optional<std::string> replace_between_markers(const std::string& text,
                                                                 const std::string& name,
                                                                 const std::string& content);

}  // namespace saccade::cli
