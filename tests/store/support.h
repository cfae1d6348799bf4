// What the tests of the store share: records and processes of their own.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <sys/types.h>
#include <utility>

#include "store/store.h"
#include "support/temporary_folder.h"

namespace saccade::store {

/// A run with every field set.
[[nodiscard]] Run some_run();
/// A measurement with every field set, different for every number.
[[nodiscard]] Measurement some_measurement(int number);

/// A store with one unfinished run of some_measurement(0), (1), ...; closed again.
std::string make_store(const std::filesystem::path& file, int measurements);

/// A forked process that is killed and waited for at the latest at the end of this object's life.
class Child {
 public:
  /// `work` gets the end of a pipe to write to and returns the exit status.
  explicit Child(const std::function<int(int pipe)>& work);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void kill();
  /// All that the child wrote, once it has closed its end.
  [[nodiscard]] std::string read_to_end();
  /// The exit status; -1 when a signal ended it.
  int wait();

 private:
  pid_t pid_ = -1;
  int read_end_ = -1;
};

/// Writes all of `text`; ends the process when that fails.
void write_all(int pipe, const std::string& text);

/// What `work` returned when run in a process of its own, where it may give up rights or set limits.
[[nodiscard]] std::string in_child(const std::function<std::string()>& work);

/// In a child: from now on permissions count, even for root.
void give_up_root();
/// Lets a child that gave up root use the folder.
void hand_over(const std::filesystem::path& path);

}  // namespace saccade::store
