#include "race_report.h"

#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "console.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The row of a candidate in a shape; null when it did not take part.
const Json* row_of(const Json& shape, const std::string& name) {
  for (const Json& row : shape.at("kernels")) {
    if (row.at("kernel") == name) return &row;
  }
  return nullptr;
}

/// Microseconds of a candidate; nothing when it was not timed.
std::optional<double> time_of(const Json& shape, const std::string& name) {
  const Json* row = row_of(shape, name);
  if (row == nullptr || !row->contains("time")) return std::nullopt;
  return row->at("time").at("median_us").get<double>();
}

std::string cell(const Json& shape, const std::string& name, bool rival) {
  const auto time = time_of(shape, name);
  if (!time) return "-";
  const std::string text = format_seconds(*time * 1e-6);
  if (shape.at("best_sdpa") == name) return fmt::format("**{}**", text);
  const Json& row = *row_of(shape, name);
  if (rival || !row.contains("speedup")) return text;
  return fmt::format("{} ({}x)", text, format_number(row.at("speedup").at("value").get<double>()));
}

}  // namespace

std::optional<Json> read_race(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  Json json = Json::parse(stream, nullptr, false);
  const bool race =
      json.is_object() && json.contains("totals") && json.contains("results") && !json.at("results").empty();
  return race ? std::optional(std::move(json)) : std::nullopt;
}

std::string race_markdown(const Json& race) {
  const Json& shapes = race.at("results");
  const bool several = race.at("totals").size() > 1;
  std::string text = several ? "| Kernel | Gain over the one before |" : "| Kernel |";
  for (const Json& shape : shapes) text += fmt::format(" `{}` |", shape.at("shape").get<std::string>());
  text += several ? "\n|-|-:|" : "\n|-|";
  for (std::size_t n = 0; n < shapes.size(); ++n) text += "-:|";
  text += "\n";
  std::optional<double> before;
  for (const Json& row : shapes.at(0).at("kernels")) {
    const std::string name = row.at("kernel").get<std::string>();
    const bool rival = row.value("rival", !race.at("totals").contains(name));
    const auto time = rival ? std::nullopt : time_of(shapes.at(0), name);
    if (rival && !time_of(shapes.at(0), name))
      continue;  // who is not there does not race; who failed is shown
    text += fmt::format("| {} |", name);
    if (several) text += fmt::format(" {} |", time && before ? format_number(*before / *time) + "x" : "");
    for (const Json& shape : shapes) text += fmt::format(" {} |", cell(shape, name, rival));
    text += "\n";
    if (time) before = time;
  }
  const Json& from = race.at("provenance");
  const bool on_gpu = !from.at("gpus").empty();
  const std::string machine = on_gpu
                                  ? fmt::format("{}, driver {}, SM clock up to {}",
                                                from.at("gpus").at(0).at("name").get<std::string>(),
                                                from.at("driver").get<std::string>(),
                                                from.at("gpus").at(0).at("clocks.max.sm").get<std::string>())
                                  : from.at("host").at("cpu").get<std::string>();
  text += fmt::format(
      "\n{} time, medians; in brackets the speed-up over the fastest SDPA backend of that shape (bold){}. "
      "{}, "
      "PyTorch {}, commit {}, {}.\n",
      on_gpu ? "Device" : "Host", several ? ", the gain is that of the first shape" : "", machine,
      from.at("torch").get<std::string>(), from.at("commit").get<std::string>().substr(0, 12),
      from.at("date").get<std::string>());
  return text;
}

}  // namespace saccade::cli
