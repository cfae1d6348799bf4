#include "child_process.h"

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"

namespace saccade::cli {
namespace {

/// A file's name that is unlinked at the end; both sides would wait for each other with two pipes.
class OutputFile {
 public:
  OutputFile() : path_((std::filesystem::temp_directory_path() / "saccade-child-XXXXXX").string()) {
    const int descriptor = mkstemp(path_.data());
    if (descriptor < 0) throw CommandError(kBadInput, fmt::format("{} cannot be written", path_));
    close(descriptor);
  }
  ~OutputFile() { unlink(path_.c_str()); }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  [[nodiscard]] const char* path() const { return path_.c_str(); }
  [[nodiscard]] std::string text() const {
    std::ifstream stream(path_);
    std::ostringstream words;
    words << stream.rdbuf();
    return words.str();
  }

 private:
  std::string path_;
};

/// Our environment with numbers written as in C.
std::vector<std::string> c_locale_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::strncmp(*variable, "LC_ALL=", 7) != 0) variables.emplace_back(*variable);
  }
  variables.emplace_back("LC_ALL=C");
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(std::string(path != nullptr ? path : "") + ":/usr/local/cuda/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (folder.empty()) continue;
    const std::string file = (std::filesystem::path(folder) / name).string();
    if (access(file.c_str(), X_OK) == 0 && std::filesystem::is_regular_file(file)) return file;
  }
  return {};
}

std::string own_program() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

ChildResult run_child(const std::vector<std::string>& arguments) {
  const OutputFile out, err;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.path(), O_WRONLY | O_TRUNC, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.path(), O_WRONLY | O_TRUNC, 0);
  std::vector<std::string> words = arguments;
  std::vector<std::string> variables = c_locale_environment();
  pid_t child = 0;
  const int error = posix_spawn(&child, words.front().c_str(), &actions, nullptr, pointers(words).data(),
                                pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw CommandError(kMissing,
                       fmt::format("{} cannot be started: {}", arguments.front(), std::strerror(error)));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out.text(), err.text()};
}

std::string last_lines(const std::string& text, std::size_t count) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(line);
  }
  std::string result;
  for (std::size_t i = lines.size() > count ? lines.size() - count : 0; i < lines.size(); ++i) {
    result += fmt::format("{}  {}", result.empty() ? "" : "\n", lines[i]);
  }
  return result;
}

}  // namespace saccade::cli
