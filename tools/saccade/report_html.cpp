#include "report_html.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "command.h"
#include "console.h"
#include "plot.h"
#include "report_text.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;

// Wide things scroll in their own box; the page itself never does sideways.
constexpr char kStyle[] = R"(
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1c2024; --soft: #5a6470; --rule: #d5dae0; --tint: #f4f6f8;
  --good: #1f7a45; --bad: #b3322f; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171a; --ink: #e4e7ea; --soft: #9aa5b1; --rule: #343a41; --tint: #1d2125; --good: #5cc489; --bad: #f08a80; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem 1rem 4rem; max-width: 70rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.35rem; line-height: 1.25; margin: 2.5rem 0 0.5rem; padding-top: 1rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1.1rem; margin: 2rem 0 0.3rem; }
p { margin: 0.3rem 0 0.8rem; max-width: 46rem; }
a { color: inherit; }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 0.9em; }
figure { margin: 0; }
.soft { color: var(--soft); }
.good { color: var(--good); }
.bad { color: var(--bad); }
.scroll { overflow-x: auto; margin: 0.5rem 0 1rem; }
.plot { display: block; width: 100%; min-width: 32rem; max-width: 48rem; height: auto; }
table { border-collapse: collapse; font-size: 0.85rem; line-height: 1.35; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top;
  overflow-wrap: normal; white-space: nowrap; }
th { background: var(--tint); }
.number { text-align: right; font-variant-numeric: tabular-nums; }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) minmax(0, 1fr); gap: 0.2rem 1rem; margin: 0.5rem 0;
  font-size: 0.9rem; }
dt { color: var(--soft); }
dd { margin: 0; }
)";

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

/// What stands between `begin` and the next `end`.
std::string between(const std::string& text, std::string_view begin, std::string_view end) {
  const std::size_t at = text.find(begin);
  const std::size_t end_at = at == std::string::npos ? at : text.find(end, at + begin.size());
  if (end_at == std::string::npos) throw CommandError(kInternalError, "gnuplot's SVG is not as expected");
  return text.substr(at + begin.size(), end_at - at - begin.size());
}

/// gnuplot's SVG as a part of the page: its ids begin with `prefix` so that figures do not share any, black
/// becomes the page's text colour, and the picture scales with the page.
std::string inline_svg(const std::string& svg, const std::string& prefix, const std::string& name) {
  const std::string box = between(svg, "viewBox=\"", "\"");
  std::string body = between(svg, "</desc>", "</svg>");  // without the prolog and gnuplot's own name
  // gnuplot's names for its plots would show when the pointer rests on them.
  for (std::size_t at = body.find("<title>"); at != std::string::npos; at = body.find("<title>", at)) {
    body.erase(at, between(body, "<title>", "</title>").size() + std::string_view("<title></title>").size());
  }
  for (const std::string quote : {"\"", "'"}) {
    replace_all(body, " id=" + quote, " id=" + quote + prefix);
    replace_all(body, "xlink:href=" + quote + "#", "href=" + quote + "#" + prefix);
    replace_all(body, quote + "black" + quote, quote + "currentColor" + quote);
  }
  replace_all(body, "url(#", "url(#" + prefix);
  replace_all(body, "rgb(  0,   0,   0)", "currentColor");
  replace_all(body, "rgb(0,0,0)", "currentColor");
  return fmt::format("<svg class=\"plot\" role=\"img\" aria-label=\"{}\" viewBox=\"{}\">{}</svg>\n",
                     escape_html(name), box, body);
}

std::string scrolling(const std::string& content) {
  return "<div class=\"scroll\">\n" + content + "</div>\n";
}

struct Section {
  const char* id;
  const char* heading;
  const char* words;
  Figure (*draw)(const Documents&, Paper);
};

constexpr Section kSections[] = {
    {"speed", "Speed of each shape",
     "The planner's kernel, as a percentage of the ceiling that binds the shape: the FMA peak, or where "
     "marked * "
     "the read bandwidth over the same footprint. Lines are 95% intervals of the median.",
     speed_figure},
    {"speedup", "Against the baseline",
     "Median time of the baseline divided by the kernel's, with its 95% interval; both were timed in the "
     "same "
     "rounds.",
     speedup_figure},
    {"roofline", "Roofline",
     "Every timed kernel on every shape. Roofs were measured beside the kernels: each shape's own lies "
     "between the "
     "highest and the lowest, because what fits a cache is compared with that cache.",
     roofline_figure},
    {"latency", "Time against length",
     "One line for each kernel and each family of shapes that differ in their number of keys alone. Both "
     "axes are "
     "logarithmic; lines at the marks are 95% intervals.",
     latency_figure},
    {"ladder", "The ladder",
     "All kernels timed on one shape, slowest first; behind each its median time and the factor gained over "
     "the "
     "kernel before.",
     ladder_figure},
};

std::string figure_html(const Section& section, const Json& document, const std::string& id) {
  const std::string heading = escape_html(section.heading);
  const Figure figure = section.draw({document}, Paper::clear);
  std::string html = fmt::format("<h3 id=\"{}-{}\">{}</h3>\n", id, section.id, heading);
  if (figure.svgs.empty())
    return html + fmt::format("<p class=\"soft\">{}</p>\n", escape_html(figure.left_out));
  html += fmt::format("<figure>\n<figcaption><p class=\"soft\">{}</p></figcaption>\n",
                      escape_html(section.words));
  for (std::size_t i = 0; i < figure.svgs.size(); ++i) {
    const std::string prefix = fmt::format("{}-{}-{}-", id, section.id, i + 1);
    html += scrolling(inline_svg(figure.svgs[i], prefix, section.heading));
  }
  return html + "</figure>\n";
}

struct Bars {
  std::string summary;
  std::string table;  ///< empty when no shape has a bar
};

/// Every bar with what was reached.
Bars bars_html(const Json& document) {
  using enum Table::Align;
  Table table({{"Shape"}, {"Bar"}, {"Reached", right}, {"Verdict"}});
  int met = 0, all = 0;
  for (const Json& result : document.at("results")) {
    for (const Json& bar : result.value("bars", Json::array())) {
      const std::string text = bar.at("bar").get<std::string>();
      const std::string value = format_number(bar.at("value").get<double>());
      const bool is_met = bar.at("met").get<bool>();
      table.add_styled({{result.at("shape").get<std::string>(), Table::Style::code},
                        {text},
                        {value + (text.find('%') != std::string::npos ? "%" : " MiB")},
                        {is_met ? "met" : "NOT MET", is_met ? Table::Style::plain : Table::Style::strong}});
      met += is_met ? 1 : 0;
      ++all;
    }
  }
  if (all == 0) return {"<p class=\"soft\">These shapes have no bars.</p>\n", ""};
  return {fmt::format("<p class=\"{}\"><strong>{} of {} bars are met.</strong></p>\n",
                      met == all ? "good" : "bad", met, all),
          scrolling(table.html())};
}

/// Adds a term for each value, those of nested objects under "outer: inner".
void add_terms(const Json& object, const std::string& outer, std::string& html) {
  for (const auto& [key, value] : object.items()) {
    std::string term = outer + key;
    std::ranges::replace(term, '_', ' ');
    if (value.is_object()) {
      add_terms(value, term + ": ", html);
      continue;
    }
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (value.is_boolean()) text = value.get<bool>() ? "yes" : "no";
    if (value.is_number() && key.ends_with("_bytes")) {
      text += fmt::format(" ({})", format_bytes(value.get<double>()));
    }
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape_html(term), escape_html(text));
  }
}

/// Everything that the document says about itself except its results.
std::string provenance_html(const Json& document) {
  Json about = document.at("provenance");
  for (const auto& [key, value] : document.items()) {
    if (key != "results" && key != "provenance") about[key] = value;
  }
  std::string html = "<dl>\n";
  add_terms(about, "", html);
  return html + "</dl>\n";
}

std::string heading_of(const Json& document) {
  const Json& from = document.at("provenance");
  return fmt::format("{}, {} threads, {} caches, {}", from.at("host").at("cpu").get<std::string>(),
                     document.at("threads").get<int>(), document.at("caches").get<std::string>(),
                     from.at("date").get<std::string>().substr(0, 10));
}

std::string document_html(const Json& document, const std::string& id) {
  std::string html =
      fmt::format("<section>\n<h2 id=\"{}\">{}</h2>\n<p>{}</p>\n", id, escape_html(heading_of(document)),
                  escape_html(provenance_sentence(document)));
  const Bars bars = bars_html(document);
  html += bars.summary;
  for (const Section& section : kSections) html += figure_html(section, document, id);
  if (!bars.table.empty()) html += fmt::format("<h3 id=\"{}-bars\">Bars</h3>\n", id) + bars.table;
  html += fmt::format("<h3 id=\"{}-table\">All times</h3>\n", id) +
          scrolling(result_table(document, Rows::all).html());
  html += fmt::format("<h3 id=\"{}-provenance\">Provenance</h3>\n", id) + provenance_html(document);
  return html + "</section>\n";
}

}  // namespace

std::string html_report(const std::vector<Json>& documents) {
  std::string contents, body;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const std::string id = fmt::format("run{}", i + 1);
    contents += fmt::format("<li><a href=\"#{}\">{}</a></li>\n", id, escape_html(heading_of(documents[i])));
    body += document_html(documents[i], id);
  }
  if (documents.size() < 2) contents.clear();
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>Saccade: measured results</title>\n<style>{}</style>\n</head>\n<body>\n"
      "<h1>Saccade: measured results</h1>\n{}{}</body>\n</html>\n",
      kStyle, contents.empty() ? "" : "<ul>\n" + contents + "</ul>\n", body);
}

}  // namespace saccade::cli
