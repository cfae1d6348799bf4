// Rung 2: block tiling. Still a thread per row, but keys and values come in tiles of shared memory that all
// rows use.
//
// Global memory is read once a block instead of once a row, 16 bytes at a time. The scores of a tile stay in
// registers, so that the softmax (and the rescaling of the output) works once a tile.
#include "cuda/ladder/copy_tile.h"
#include "cuda/ladder/rungs.h"
#include "cuda/ptx/barrier.h"

namespace saccade::SACCADE_MACHINE::ladder {
namespace {

constexpr int kRows = 64;
constexpr int kKeys = 32;

/// Rows of the query tile are padded by 4 bytes: threads read one column of it, 32 rows at a time.
template <int kDim>
struct Shared {
  F16 k[kKeys][kDim];
  F16 v[kKeys][kDim];
  float o[kDim][kRows];
  F16 q[kRows][kDim + 2];
};

template <int kDim>
SACCADE_KERNEL(kRows, 1)
tiled(SACCADE_ARGUMENT(Arguments) a) {
  auto& shared = *reinterpret_cast<Shared<kDim>*>(ptx::shared_memory());
  const Unit unit = unit_of(a, ptx::block_index().x, kRows);
  const int thread = ptx::thread_index();
  const int row = unit.first_row + thread;
  const int last_row = unit.first_row + kRows - 1;
  for (int n = thread; n < kRows * kDim; n += kRows) {
    const bool inside = unit.first_row + n / kDim < a.len_q;
    const F16* from = unit.q + (unit.first_row + n / kDim) * a.q.row + n % kDim;
    ptx::store(&shared.q[n / kDim][n % kDim], inside ? ptx::load_constant(from) : F16{});
  }
  for (int d = 0; d < kDim; ++d) ptx::store(&shared.o[d][thread], 0.0F);

  tile::RowState state;
  const tile::TileRange tiles = tile::tiles_of<kKeys>(a.span, unit.first_row, last_row);
  for (int t = tiles.first; t < tiles.last; ++t) {
    ptx::sync_block();  // the tile before is done with
    copy_tile<kKeys, kDim, kDim, kRows>(&shared.k[0][0], unit.k, a.k.row, t * kKeys, a.span.len_kv);
    copy_tile<kKeys, kDim, kDim, kRows>(&shared.v[0][0], unit.v, a.v.row, t * kKeys, a.span.len_kv);
    ptx::sync_block();
    float scores[kKeys] = {};
    for (int d = 0; d < kDim; ++d) {
      const float q = ptx::to_float(ptx::load(&shared.q[thread][d]));
      SACCADE_UNROLL
      for (int j = 0; j < kKeys; ++j)
        scores[j] = ptx::fma(q, ptx::to_float(ptx::load(&shared.k[j][d])), scores[j]);
    }
    float max = -tile::kInfinity;
    SACCADE_UNROLL
    for (int j = 0; j < kKeys; ++j) {
      const bool visible = t * kKeys + j < a.span.end(row);
      scores[j] = visible ? scores[j] * a.scale : -tile::kInfinity;
      max = tile::larger(scores[j], max);
    }
    const float keep = state.raise(max);
    state.l *= keep;
    SACCADE_UNROLL
    for (int j = 0; j < kKeys; ++j) {
      scores[j] = ptx::fast_exp2(scores[j] - state.base());
      state.l += scores[j];
    }
    for (int d = 0; d < kDim; ++d) {
      float sum = ptx::load(&shared.o[d][thread]) * keep;
      SACCADE_UNROLL
      for (int j = 0; j < kKeys; ++j)
        sum = ptx::fma(scores[j], ptx::to_float(ptx::load(&shared.v[j][d])), sum);
      ptx::store(&shared.o[d][thread], sum);
    }
  }
  if (row >= a.len_q) return;
  for (int d = 0; d < kDim; ++d) {
    ptx::store(unit.o + row * a.o.row + d,
               ptx::from_float<F16>(ptx::load(&shared.o[d][thread]) * state.weight()));
  }
}

struct Tiled : BlockPerUnit {
  static constexpr char kName[] = "ladder_tiled";
  static constexpr char kSummary[] = "rung 2: tiles of keys and values in shared memory";
  static constexpr int kRows = ladder::kRows;
  static constexpr int kThreads = kRows;
  static constexpr std::size_t shared_bytes(int dim) {
    return dim == 64 ? sizeof(Shared<64>) : sizeof(Shared<128>);
  }
  template <int kDim>
  static constexpr auto kKernel = &tiled<kDim>;
};

}  // namespace

const Kernel& ladder_tiled() {
  return row<Tiled>();
}

}  // namespace saccade::SACCADE_MACHINE::ladder
