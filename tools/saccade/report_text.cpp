#include "report_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "console.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;

Table::Cell percent_cell(const Json& kernel, const char* key, bool binds) {
  return {format_percent(kernel.at(key).get<double>()), binds ? Table::Style::strong : Table::Style::plain};
}

std::string time_cell(const Json& time) {
  const auto seconds = [&](const char* key) { return time.at(key).get<double>() * 1e-6; };
  return fmt::format("{} ({} .. {})", format_seconds(seconds("median_us")), format_seconds(seconds("low_us")),
                     format_seconds(seconds("high_us")));
}

std::string speedup_cell(const Json& kernel) {
  if (!kernel.contains("speedup")) return "";
  const Json& speedup = kernel.at("speedup");
  return fmt::format("{}x {} ({})", format_number(speedup.at("value").get<double>()),
                     speedup.at("verdict").get<std::string>(), speedup.at("baseline").get<std::string>());
}

std::string bar_cell(const Json& result) {
  std::string text;
  for (const Json& bar : result.value("bars", Json::array())) {
    text += fmt::format("{}{}: {} ({})", text.empty() ? "" : "; ", bar.at("bar").get<std::string>(),
                        bar.at("met").get<bool>() ? "met" : "not met",
                        format_number(bar.at("value").get<double>()));
  }
  return text;
}

}  // namespace

std::string provenance_sentence(const Json& document) {
  const Json& from = document.at("provenance");
  const Json& host = from.at("host");
  const Json& ceilings = document.at("ceilings");
  return fmt::format(
      "{} ({}), {} threads, {} caches; FMA peak {} GFLOP/s, copy {} GB/s, measured in the same run. "
      "Saccade {} at {}{}, {} {}, {}.",
      host.at("cpu").get<std::string>(), host.at("simd_target").get<std::string>(),
      document.at("threads").get<int>(), document.at("caches").get<std::string>(),
      format_number(ceilings.at("fma_gflops").get<double>()),
      format_number(ceilings.at("copy_gbps").get<double>()), from.at("version").get<std::string>(),
      from.at("commit").get<std::string>(), from.at("dirty").get<bool>() ? " (changed)" : "",
      from.at("compiler").get<std::string>(), from.at("flags").get<std::string>(),
      from.at("date").get<std::string>());
}

std::string provenance_markdown(const Json& document) {
  return provenance_sentence(document) + "\n";
}

Table result_table(const Json& document, Rows rows) {
  using enum Table::Align;
  Table table({{"Shape"},
               {"Kernel"},
               {"Time (95% interval)", right},
               {"GFLOP/s", right},
               {"% of FMA peak", right},
               {"GB/s", right},
               {"% of read bandwidth", right},
               {"Speed-up"},
               {"Extra memory", right},
               {"Bar"}});
  for (const Json& result : document.at("results")) {
    const Table::Cell shape{result.at("shape").get<std::string>(), Table::Style::code};
    bool first = true;
    for (const Json& kernel : result.at("kernels")) {
      const std::string name = kernel.at("kernel").get<std::string>();
      if (!kernel.contains("time")) {
        const std::string why = kernel.value("not_timed", "");
        if (rows == Rows::all && !why.empty()) table.add_styled({shape, {name}, {why}});
        continue;
      }
      const bool memory_binds = result.at("bound") == "memory";
      const bool has_extra = kernel.contains("extra_bytes");
      table.add_styled({shape,
                        {name},
                        {time_cell(kernel.at("time"))},
                        {format_number(kernel.at("gflops").get<double>())},
                        percent_cell(kernel, "fma_percent", !memory_binds),
                        {format_number(kernel.at("gbps").get<double>())},
                        percent_cell(kernel, "read_percent", memory_binds),
                        {speedup_cell(kernel)},
                        {has_extra ? format_bytes(kernel.at("extra_bytes").get<double>()) : ""},
                        {first ? bar_cell(result) : ""}});
      first = false;
      if (rows == Rows::fastest) break;
    }
  }
  return table;
}

std::string table_markdown(const Json& document, Rows rows) {
  return result_table(document, rows).markdown();
}

std::optional<std::string> replace_between_markers(const std::string& text, const std::string& name,
                                                   const std::string& content) {
  const std::string begin = fmt::format("<!-- saccade:{} begin -->", name);
  const std::string end = fmt::format("<!-- saccade:{} end -->", name);
  const std::size_t begin_at = text.find(begin);
  const std::size_t end_at = text.find(end);
  if (begin_at == std::string::npos || end_at == std::string::npos || end_at < begin_at) return std::nullopt;
  if (text.find(begin, begin_at + 1) != std::string::npos ||
      text.find(end, end_at + 1) != std::string::npos) {
    return std::nullopt;
  }
  return text.substr(0, begin_at + begin.size()) + "\n" + content + text.substr(end_at);
}

}  // namespace saccade::cli
