// Rung 1: a thread per query row, scalar, straight from global memory.
//
// Every thread walks all its keys: a dot product, an online softmax step, a weighted sum of values. The
// threads of a warp read the same key at the same time, so loads are broadcasts; each moves two bytes. A row
// of outputs is too long for a thread's registers, so it is summed up in shared memory, column by column.
#include "cuda/ladder/rungs.h"
#include "cuda/ptx/memory.h"

namespace saccade::SACCADE_MACHINE::ladder {
namespace {

constexpr int kRows = 64;

template <int kDim>
SACCADE_KERNEL(kRows, 1)
minimal(SACCADE_ARGUMENT(Arguments) a) {
  const Unit unit = unit_of(a, ptx::block_index().x, kRows);
  const int row = unit.first_row + ptx::thread_index();
  if (row >= a.len_q) return;
  const F16* q = unit.q + row * a.q.row;
  tile::RowState state;
  float* o = reinterpret_cast<float*>(ptx::shared_memory()) + ptx::thread_index();  // [kDim][kRows]
  for (int d = 0; d < kDim; ++d) ptx::store(o + d * kRows, 0.0F);
  for (int j = a.span.begin(row); j < a.span.end(row); ++j) {
    float score = 0;
    for (int d = 0; d < kDim; ++d) {
      score = ptx::fma(ptx::to_float(ptx::load_constant(q + d)),
                       ptx::to_float(ptx::load_constant(unit.k + j * a.k.row + d)), score);
    }
    score *= a.scale;
    const float keep = state.raise(score);
    const float weight = ptx::fast_exp2(score - state.base());
    state.l = state.l * keep + weight;
    for (int d = 0; d < kDim; ++d) {
      const float value = ptx::to_float(ptx::load_constant(unit.v + j * a.v.row + d));
      ptx::store(o + d * kRows, ptx::fma(weight, value, ptx::load(o + d * kRows) * keep));
    }
  }
  for (int d = 0; d < kDim; ++d) {
    ptx::store(unit.o + row * a.o.row + d, ptx::from_float<F16>(ptx::load(o + d * kRows) * state.weight()));
  }
}

struct Minimal : BlockPerUnit {
  static constexpr char kName[] = "ladder_minimal";
  static constexpr char kSummary[] = "rung 1: a thread per row, scalar";
  static constexpr int kRows = ladder::kRows;
  static constexpr int kThreads = kRows;
  static constexpr std::size_t shared_bytes(int dim) {
    return sizeof(float) * static_cast<std::size_t>(dim * kRows);
  }
  template <int kDim>
  static constexpr auto kKernel = &minimal<kDim>;
};

}  // namespace

const Kernel& ladder_minimal() {
  return row<Minimal>();
}

}  // namespace saccade::SACCADE_MACHINE::ladder
