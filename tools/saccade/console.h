// Text for people: tables, numbers with units, progress on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace saccade::cli {

/// Columns that line up. Numbers are told apart by the caller's alignment.
class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };
  enum class Style { plain, code, strong };
  struct Cell {
    std::string text{};
    Style style = Style::plain;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// As many cells as there are columns; missing ones are empty.
  void add(const std::vector<std::string>& cells);
  void add_styled(std::vector<Cell> cells);
  /// Lines for a terminal, each after `indent`; columns without any content are left out.
  [[nodiscard]] std::string text(const std::string& indent = "") const;
  /// A Markdown table of the same.
  [[nodiscard]] std::string markdown() const;
  /// The same as HTML, every text escaped.
  [[nodiscard]] std::string html() const;

 private:
  [[nodiscard]] std::vector<std::size_t> used_columns() const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

/// One line on stderr that is overwritten as work goes on; silent when stderr is not a terminal.
class Progress {
 public:
  explicit Progress(std::size_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Work on item `done + 1` of the total begins.
  void show(std::size_t done, const std::string& what);
  /// Removes the line, so that other output can be printed.
  void clear();

 private:
  std::size_t total_;
  bool on_terminal_;
};

/// The text with the characters that HTML and SVG read as markup written as entities.
[[nodiscard]] std::string escape_html(std::string_view text);

/// "12.3 us", "4.56 ms", "1.23 s".
[[nodiscard]] std::string format_seconds(double seconds);
/// "0 B", "1.5 KiB", "3.2 MiB".
[[nodiscard]] std::string format_bytes(double bytes);
/// Three significant digits, without an exponent.
[[nodiscard]] std::string format_number(double x);
/// "74.1%".
[[nodiscard]] std::string format_percent(double percent);

}  // namespace saccade::cli
