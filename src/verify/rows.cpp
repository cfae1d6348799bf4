#include "verify/rows.h"

#include <algorithm>

#include "core/sequence.h"
#include "verify/random.h"

namespace saccade {

RowSample::RowSample(const Problem& problem, const Tensors& tensors, std::int64_t max_rows,
                     std::uint64_t seed) {
  std::int64_t total = 0;
  std::vector<std::int64_t> edges;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const std::int64_t len = sequence(problem, tensors, b).len_q;
    first_row_.push_back(total);
    len_q_.push_back(len);
    for (std::int64_t h = 0; h < problem.heads_q && len > 0; ++h) {
      edges.push_back(total + h * len);
      if (len > 1) edges.push_back(total + h * len + len - 1);
    }
    total += problem.heads_q * len;
  }
  const auto all = static_cast<std::size_t>(total);
  const std::size_t limit = max_rows > 0 ? std::min(all, static_cast<std::size_t>(max_rows)) : all;
  chosen_.assign(all, limit == all);
  if (limit < all) {
    // Rounded up: at most `limit` edges are taken.
    const std::size_t step = std::max<std::size_t>((edges.size() + limit - 1) / limit, 1);
    for (std::size_t n = 0; n < edges.size(); n += step) chosen_[static_cast<std::size_t>(edges[n])] = true;
    auto count = static_cast<std::size_t>(std::ranges::count(chosen_, true));
    Random random(stream(seed, 0x726f7773));
    while (count < limit) {
      const auto pick = static_cast<std::size_t>(random.below(total));
      // A row already chosen passes its turn to the next free one, so that nearly full samples end too.
      const auto next = std::find(chosen_.begin() + static_cast<std::ptrdiff_t>(pick), chosen_.end(), false);
      const auto free = next != chosen_.end() ? next : std::find(chosen_.begin(), chosen_.end(), false);
      *free = true;
      ++count;
    }
  }
  for (std::size_t row = 0; row < all; ++row) {
    if (chosen_[row]) rows_.push_back(static_cast<std::int64_t>(row));
  }
}

std::int64_t RowSample::slot(std::int64_t batch, std::int64_t head, std::int64_t query) const {
  return std::ranges::lower_bound(rows_, row(batch, head, query)) - rows_.begin();
}

}  // namespace saccade
