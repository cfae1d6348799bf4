#include "run_command.h"

#include <cstdlib>
#include <sys/wait.h>

namespace saccade {

CommandResult run_saccade(const std::string& arguments, const std::string& environment) {
  const TemporaryFolder folder;
  const std::string out = folder.file("out"), err = folder.file("err");
  const std::string line = "XDG_DATA_HOME='" + folder.file("data") + "' " + environment +
                           " '" SACCADE_BINARY "' " + arguments + " > '" + out + "' 2> '" + err + "'";
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
}

}  // namespace saccade
