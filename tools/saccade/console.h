// Text for people: tables, numbers with units, progress on a terminal.
#pragma once

#include <cstddef>
#include <string>
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

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// As many cells as there are columns.
  void add(std::vector<std::string> cells);
  /// Lines for a terminal, each after `indent`; columns without any content are left out.
  [[nodiscard]] std::string text(const std::string& indent = "") const;
  /// A Markdown table of the same.
  [[nodiscard]] std::string markdown() const;

 private:
  [[nodiscard]] std::vector<std::size_t> used_columns() const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
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

/// "12.3 us", "4.56 ms", "1.23 s".
[[nodiscard]] std::string format_seconds(double seconds);
/// "0 B", "1.5 KiB", "3.2 MiB".
[[nodiscard]] std::string format_bytes(double bytes);
/// Three significant digits, without an exponent.
[[nodiscard]] std::string format_number(double x);
/// "74.1%".
[[nodiscard]] std::string format_percent(double percent);

}  // namespace saccade::cli
