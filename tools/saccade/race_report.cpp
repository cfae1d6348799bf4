#include "race_report.h"

#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "console.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;

bool is_rival(const std::string& name) {
  return name.starts_with("sdpa_");
}

/// Microseconds of a candidate; nothing when it was not timed.
std::optional<double> time_of(const Json& shape, const std::string& name) {
  const Json& candidates = shape.at("candidates");
  if (!candidates.contains(name) || !candidates.at(name).contains("median_us")) return std::nullopt;
  return candidates.at(name).at("median_us").get<double>();
}

std::string cell(const Json& shape, const std::string& name) {
  const auto time = time_of(shape, name);
  if (!time) return "-";
  const Json& candidate = shape.at("candidates").at(name);
  const std::string text = format_seconds(*time * 1e-6);
  if (!candidate.contains("speedup_over_best_sdpa")) {
    return shape.value("best_sdpa", "") == name ? fmt::format("**{}**", text) : text;
  }
  const Json& ratio = candidate.at("speedup_over_best_sdpa");
  return fmt::format("{} ({}x)", text, format_number(ratio.at("value").get<double>()));
}

}  // namespace

std::optional<Json> read_race(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  Json json = Json::parse(stream, nullptr, false);
  if (!json.is_object() || json.value("schema", "") != "saccade.race/1" || json.at("shapes").empty())
    return std::nullopt;
  return json;
}

std::string race_markdown(const Json& race) {
  const Json& shapes = race.at("shapes");
  std::string text = "| Kernel | Gain over the one before |";
  for (const Json& shape : shapes) text += fmt::format(" `{}` |", shape.at("shape").get<std::string>());
  text += "\n|-|-:|";
  for (std::size_t n = 0; n < shapes.size(); ++n) text += "-:|";
  text += "\n";
  std::optional<double> before;
  for (const auto& [name, candidate] : shapes.at(0).at("candidates").items()) {
    const auto time = is_rival(name) ? std::nullopt : time_of(shapes.at(0), name);
    text += fmt::format("| {} | {} |", name, time && before ? format_number(*before / *time) + "x" : "");
    for (const Json& shape : shapes) text += fmt::format(" {} |", cell(shape, name));
    text += "\n";
    if (time) before = time;
  }
  const Json& from = race.at("provenance");
  const Json& gpu = from.at("gpu");
  const std::string commit = from.at("commit").get<std::string>();
  text += fmt::format(
      "\nDevice time, medians; in brackets the speed-up over the fastest SDPA backend of that shape (bold), "
      "the gain is that "
      "of the first shape. {}, driver {}, SM clock up to {}, PyTorch {}, cuDNN {}, commit {}, {}.\n",
      gpu.at("name").get<std::string>(), gpu.at("driver_version").get<std::string>(),
      gpu.at("clocks.max.sm").get<std::string>(), from.at("torch").get<std::string>(),
      from.at("cudnn").get<std::int64_t>(), commit.substr(0, 12), from.at("date").get<std::string>());
  return text;
}

}  // namespace saccade::cli
