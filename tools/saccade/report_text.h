// Benchmark documents as Markdown, and Markdown between markers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace saccade::cli {

/// Which kernels of a shape a table shows.
enum class Rows {
  fastest,  ///< the planner's choice
  all,
};

/// Where, when and from what the numbers come, in one paragraph.
[[nodiscard]] std::string provenance_markdown(const nlohmann::ordered_json& document);
/// The table of a document. The percentage of the ceiling that binds the shape is bold.
[[nodiscard]] std::string table_markdown(const nlohmann::ordered_json& document, Rows rows);

/// `text` with what stands between "<!-- saccade:NAME begin -->" and "<!-- saccade:NAME end -->" replaced;
/// nothing when the markers are not there, each once and in order.
[[nodiscard]] std::optional<std::string> replace_between_markers(const std::string& text,
                                                                 const std::string& name,
                                                                 const std::string& content);

}  // namespace saccade::cli
