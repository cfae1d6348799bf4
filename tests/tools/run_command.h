// Running the built command and looking at what it did.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace saccade {

struct CommandResult {
  int exit_code = -1;
  std::string out;
  std::string err;

  /// stdout as JSON; a discarded value when it is not exactly one document.
  [[nodiscard]] nlohmann::json json() const { return nlohmann::json::parse(out, nullptr, false); }
};

/// Runs `saccade ARGUMENTS` through the shell, with a user's data folder of its own that is gone afterwards.
[[nodiscard]] CommandResult run_saccade(const std::string& arguments);

/// A folder that is gone with its contents at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }
  /// Writes a file and returns its path.
  [[nodiscard]] std::string write(const std::string& name, const std::string& text) const;

 private:
  std::filesystem::path path_;
};

[[nodiscard]] std::string read_file(const std::string& file);

}  // namespace saccade
