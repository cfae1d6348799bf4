// Races against SDPA (python -m saccade.bench) as Markdown.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace saccade::cli {

/// The file's document when it is a race's; nothing when it is something else or cannot be read.
[[nodiscard]] std::optional<nlohmann::ordered_json> read_race(const std::string& file);

/// One table: our kernels in the order of the race, then SDPA's backends; a column for each shape, and what
/// each kernel gained over the one before it. Then where it comes from.
[[nodiscard]] std::string race_markdown(const nlohmann::ordered_json& race);

}  // namespace saccade::cli
