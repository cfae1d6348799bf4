#include "core/extent.h"

#include <algorithm>
#include <functional>
#include <span>

namespace saccade {
namespace {

__extension__ using Wide = __int128;  // differences of any two addresses and strides

Wide magnitude(Wide x) {
  return x < 0 ? -x : x;
}

Wide floor_div(Wide a, Wide b) {  // b > 0
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

struct Term {
  Wide step;  // of either sign
  Wide last;  // largest multiple
};

/// Is there a choice of multiples in [0, last] that puts `sum` strictly between lo and hi? Terms come with
/// the largest step first; each step is bounded by what the smaller ones can still correct, so nested layouts
/// search a handful of nodes. `budget` bounds pathological ones; running out counts as yes.
bool reachable(std::span<const Term> terms, Wide sum, Wide lo, Wide hi, int& budget) {
  if (--budget < 0) return true;
  if (terms.empty()) return lo < sum && sum < hi;
  const Term& term = terms.front();
  Wide rest_min = 0;
  Wide rest_max = 0;
  for (const Term& t : terms.subspan(1)) (t.step < 0 ? rest_min : rest_max) += t.step * t.last;
  // lo - rest_max < sum + step * x < hi - rest_min
  const Wide above = lo - rest_max - sum;
  const Wide below = hi - rest_min - sum;
  const Wide size = magnitude(term.step);
  Wide first = term.step > 0 ? floor_div(above, size) + 1 : floor_div(-below, size) + 1;
  Wide last = term.step > 0 ? floor_div(below - 1, size) : floor_div(-above - 1, size);
  first = std::max<Wide>(first, 0);
  last = std::min(last, term.last);
  for (Wide x = first; x <= last; ++x) {
    if (reachable(terms.subspan(1), sum + term.step * x, lo, hi, budget)) return true;
  }
  return false;
}

}  // namespace

bool Extent::empty() const {
  return run == 0 || std::ranges::any_of(axes, [](const Axis& axis) { return axis.size == 0; });
}

std::optional<Bounds> bounds(const Extent& extent) {
  Bounds result;
  if (extent.empty()) return result;
  for (const auto& [size, stride] : extent.axes) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(size - 1, stride, &reach)) return std::nullopt;
    std::int64_t& side = reach < 0 ? result.begin : result.end;
    if (__builtin_add_overflow(side, reach, &side)) return std::nullopt;
  }
  if (__builtin_add_overflow(result.end, extent.run, &result.end)) return std::nullopt;
  return result;
}

bool overlaps_itself(const Extent& extent) {
  if (extent.empty()) return false;
  auto axes = extent.axes;
  std::ranges::sort(axes, {}, [](const Extent::Axis& axis) { return magnitude(axis.stride); });
  Wide span = extent.run;
  for (const auto& [size, stride] : axes) {
    if (size == 1) continue;
    if (magnitude(stride) < span) return true;
    span += magnitude(stride) * (size - 1);
  }
  return false;
}

bool overlap(const Extent& a, std::uintptr_t a_base, const Extent& b, std::uintptr_t b_base) {
  if (a.empty() || b.empty()) return false;
  std::array<Term, 8> storage{};
  std::size_t count = 0;
  for (const auto& [size, stride] : a.axes) {
    if (size > 1 && stride != 0) storage[count++] = {stride, size - 1};
  }
  for (const auto& [size, stride] : b.axes) {
    if (size > 1 && stride != 0) storage[count++] = {-Wide{stride}, size - 1};
  }
  // Unused terms have a step of 0 and sort to the end.
  std::ranges::sort(storage, std::greater{}, [](const Term& term) { return magnitude(term.step); });
  int budget = 100'000;
  return reachable(std::span(storage).first(count), Wide{a_base} - Wide{b_base}, -Wide{a.run}, Wide{b.run},
                   budget);
}

}  // namespace saccade
