// Attention exactly as include/saccade/problem.h defines it: three passes over the scores of one row.
//
// In double this is the oracle that every kernel is judged by. In float with rounded weights it is the plain
// same-precision implementation whose error bounds what a kernel may make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <saccade/problem.h>
#include <saccade/run.h>

namespace saccade {

/// How the reference calculates.
enum class Precision {
  oracle,  ///< float64 throughout.
  plain,   ///< float32 sums, softmax weights rounded to the problem's dtype before they meet V.
};

/// One row of the result.
struct ReferenceRow {
  std::int64_t batch = 0, head = 0, query = 0;
  std::span<const double> o;  ///< [dim_v]
  double lse = 0;
};

/// Which rows to calculate; all when empty. Called from several threads.
using RowFilter = std::function<bool(std::int64_t batch, std::int64_t head, std::int64_t query)>;
/// Takes one finished row. Called from several threads, once for each row.
using RowSink = std::function<void(const ReferenceRow&)>;

/// Scratch bytes that reference() needs with this many threads.
[[nodiscard]] std::size_t reference_scratch_bytes(const Problem& problem, int threads);

/// Calculates the chosen rows. Tensors must have been validated; their outputs are not touched.
void reference(const Problem& problem, const Tensors& tensors, Precision precision, int threads,
               std::span<std::byte> scratch, const RowFilter& filter, const RowSink& sink);

}  // namespace saccade
