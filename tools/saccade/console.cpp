#include "console.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>

namespace saccade::cli {
namespace {

std::string markdown_cell(const Table::Cell& cell) {
  switch (cell.style) {
    case Table::Style::code:
      return fmt::format("`{}`", cell.text);
    case Table::Style::strong:
      return fmt::format("**{}**", cell.text);
    case Table::Style::plain:
      break;
  }
  return cell.text;
}

std::string html_cell(const Table::Cell& cell) {
  const std::string text = escape_html(cell.text);
  switch (cell.style) {
    case Table::Style::code:
      return fmt::format("<code>{}</code>", text);
    case Table::Style::strong:
      return fmt::format("<strong>{}</strong>", text);
    case Table::Style::plain:
      break;
  }
  return text;
}

}  // namespace

void Table::add(const std::vector<std::string>& cells) {
  std::vector<Cell> row;
  for (const std::string& text : cells) row.push_back({text});
  add_styled(std::move(row));
}

void Table::add_styled(std::vector<Cell> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::vector<std::size_t> Table::used_columns() const {
  std::vector<std::size_t> used;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (std::ranges::any_of(rows_, [c](const auto& row) { return !row[c].text.empty(); })) used.push_back(c);
  }
  return used;
}

std::string Table::text(const std::string& indent) const {
  const std::vector<std::size_t> used = used_columns();
  std::vector<std::size_t> widths;
  for (const std::size_t c : used) {
    std::size_t width = columns_[c].title.size();
    for (const auto& row : rows_) width = std::max(width, row[c].text.size());
    widths.push_back(width);
  }
  const auto line = [&](const auto& cell_of) {
    std::string text = indent;
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (i > 0) text += "  ";
      const bool right = columns_[used[i]].align == Align::right;
      text += right ? fmt::format("{:>{}}", cell_of(used[i]), widths[i])
                    : fmt::format("{:<{}}", cell_of(used[i]), widths[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text + '\n';
  };
  std::string all = line([&](std::size_t c) { return columns_[c].title; });
  for (const auto& row : rows_) all += line([&](std::size_t c) { return row[c].text; });
  return all;
}

std::string Table::markdown() const {
  const std::vector<std::size_t> used = used_columns();
  std::string text = "|", rule = "|";
  for (const std::size_t c : used) {
    text += fmt::format(" {} |", columns_[c].title);
    rule += columns_[c].align == Align::right ? "-:|" : "-|";
  }
  text += '\n' + rule + '\n';
  for (const auto& row : rows_) {
    text += '|';
    for (const std::size_t c : used) text += fmt::format(" {} |", markdown_cell(row[c]));
    text += '\n';
  }
  return text;
}

std::string Table::html() const {
  const std::vector<std::size_t> used = used_columns();
  const auto line = [&](const char* tag, const auto& cell_of) {
    std::string text = "<tr>";
    for (const std::size_t c : used) {
      text += fmt::format("<{}{}>{}</{}>", tag, columns_[c].align == Align::right ? " class=\"number\"" : "",
                          cell_of(c), tag);
    }
    return text + "</tr>\n";
  };
  std::string text =
      "<table>\n<thead>" + line("th", [&](std::size_t c) { return escape_html(columns_[c].title); });
  text += "</thead>\n<tbody>\n";
  for (const auto& row : rows_) text += line("td", [&](std::size_t c) { return html_cell(row[c]); });
  return text + "</tbody>\n</table>\n";
}

Progress::Progress(std::size_t total) : total_(total), on_terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  clear();
}

void Progress::show(std::size_t done, const std::string& what) {
  if (!on_terminal_) return;
  constexpr std::size_t kWidth = 20;
  const std::size_t filled = total_ > 0 ? done * kWidth / total_ : kWidth;
  fmt::print(stderr, "\r\033[K[{}{}] {}/{} {}", std::string(filled, '#'), std::string(kWidth - filled, '.'),
             done, total_, what);
  std::fflush(stderr);
}

void Progress::clear() {
  if (!on_terminal_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string format_number(double x) {
  if (!std::isfinite(x)) return "-";
  if (x == 0) return "0";
  const int decimals = std::clamp(2 - static_cast<int>(std::floor(std::log10(std::abs(x)))), 0, 6);
  return fmt::format("{:.{}f}", x, decimals);
}

std::string format_seconds(double seconds) {
  if (seconds < 1e-3) return format_number(seconds * 1e6) + " us";
  if (seconds < 1) return format_number(seconds * 1e3) + " ms";
  return format_number(seconds) + " s";
}

std::string format_bytes(double bytes) {
  if (bytes < 1024) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1024 * 1024) return format_number(bytes / 1024) + " KiB";
  if (bytes < 1024.0 * 1024 * 1024) return format_number(bytes / 1024 / 1024) + " MiB";
  return format_number(bytes / 1024 / 1024 / 1024) + " GiB";
}

std::string format_percent(double percent) {
  return fmt::format("{:.1f}%", percent);
}

}  // namespace saccade::cli
