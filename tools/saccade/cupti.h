// Kernel times by CUPTI, which is loaded at run time: no toolkit is needed to build or to run.
#pragma once

#include <string>
#include <vector>

namespace saccade::cli {

/// From its start on, the device time of every kernel of this process. One at a time.
class CuptiTrace {
 public:
  CuptiTrace();

  /// A sentence when CUPTI is missing or refused; then there are no times.
  [[nodiscard]] const std::string& why_none() const { return why_none_; }
  /// Microseconds of each kernel so far, in the order of their ends.
  [[nodiscard]] std::vector<double> microseconds() const;

 private:
  int (*flush_)(unsigned flag) = nullptr;
  std::string why_none_;
};

}  // namespace saccade::cli
