// Which rows of a problem are compared with the oracle.
#pragma once

#include <cstdint>
#include <vector>

#include <saccade/problem.h>
#include <saccade/run.h>

namespace saccade {

/// A choice of rows: all of them, or the first and last of every head and random others up to a limit.
class RowSample {
 public:
  /// `max_rows` 0: all. When even first and last rows are too many, as many of those as fit, spread evenly.
  RowSample(const Problem& problem, const Tensors& tensors, std::int64_t max_rows, std::uint64_t seed);

  [[nodiscard]] bool has(std::int64_t batch, std::int64_t head, std::int64_t query) const {
    return chosen_[static_cast<std::size_t>(row(batch, head, query))];
  }
  /// The place of a chosen row among the chosen ones.
  [[nodiscard]] std::int64_t slot(std::int64_t batch, std::int64_t head, std::int64_t query) const;
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(rows_.size()); }
  [[nodiscard]] std::int64_t total() const { return static_cast<std::int64_t>(chosen_.size()); }

 private:
  [[nodiscard]] std::int64_t row(std::int64_t batch, std::int64_t head, std::int64_t query) const {
    const auto b = static_cast<std::size_t>(batch);
    return first_row_[b] + head * len_q_[b] + query;
  }
  std::vector<std::int64_t> first_row_, len_q_;  ///< of each batch entry
  std::vector<bool> chosen_;
  std::vector<std::int64_t> rows_;  ///< the chosen ones, ascending
};

}  // namespace saccade
