#include "gnuplot.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <sstream>
#include <unistd.h>

#include "command.h"

namespace saccade::cli {
namespace {

/// A file with a given text that is gone at the end.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : path_((std::filesystem::temp_directory_path() / "saccade-plot-XXXXXX").string()) {
    const int descriptor = mkstemp(path_.data());
    std::FILE* file = descriptor < 0 ? nullptr : fdopen(descriptor, "w");
    if (file == nullptr) throw CommandError(kBadInput, fmt::format("{} cannot be written", path_));
    const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (std::fclose(file) != 0 || !whole) {
      unlink(path_.c_str());
      throw CommandError(kBadInput, fmt::format("{} cannot be written", path_));
    }
  }
  ~TemporaryFile() { unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct ClosePipe {
  void operator()(std::FILE* pipe) const { pclose(pipe); }
};

}  // namespace

bool has_gnuplot() {
  return std::system("command -v gnuplot > /dev/null 2>&1") == 0;
}

std::string run_gnuplot(const std::string& script) {
  if (!has_gnuplot()) throw CommandError(kMissing, "gnuplot is not installed; it draws the pictures");
  // The script goes by a file and the picture by a pipe: with two pipes each side could wait for the other.
  const TemporaryFile file(script), complaints("");
  if (file.path().find('\'') != std::string::npos) {
    throw CommandError(
        kBadInput, fmt::format("{}: the folder for temporary files has a quote in its name", file.path()));
  }
  const std::string command = fmt::format("gnuplot '{}' 2> '{}'", file.path(), complaints.path());
  std::unique_ptr<std::FILE, ClosePipe> pipe(popen(command.c_str(), "r"));
  if (pipe == nullptr) throw CommandError(kMissing, "gnuplot cannot be started");
  std::string text;
  std::array<char, 16384> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe.get())) {
    text.append(buffer.data(), count);
  }
  if (pclose(pipe.release()) != 0 || text.empty()) {
    std::ifstream stream(complaints.path());
    std::ostringstream words;
    words << stream.rdbuf();
    throw CommandError(kInternalError, fmt::format("gnuplot failed: {}", words.str()));
  }
  return text;
}

std::string gnuplot_quoted(std::string_view text) {
  std::string_view shown = text;
  if (text.size() > kLongestPlotText) {
    shown = text.substr(0, kLongestPlotText - 3);
    // Not in the middle of a character of several bytes.
    while (!shown.empty() && (static_cast<unsigned char>(text[shown.size()]) & 0xc0U) == 0x80U) {
      shown.remove_suffix(1);
    }
  }
  std::string quoted = "'";
  for (const char c : shown) {
    if (c == '\'') quoted += c;  // the only character that means something between single quotes
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return quoted + (shown.size() < text.size() ? "...'" : "'");
}

std::string gnuplot_tic(std::string_view text) {
  std::string quoted = gnuplot_quoted(text);
  for (std::size_t at = quoted.find('%'); at != std::string::npos; at = quoted.find('%', at + 2)) {
    quoted.insert(at, 1, '%');
  }
  return quoted;
}

}  // namespace saccade::cli
