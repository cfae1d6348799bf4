// Rung 3: a warp per row. The lanes share a row's head dimension, and dot products are sums over lanes by
// shuffles.
//
// Queries and outputs fit in registers now (two or four numbers a lane), and 32 lanes read a row of keys as
// one line. The price is five shuffles for every score. Each warp keeps four rows, so that a key is read once
// for all of them.
#include "cuda/ladder/copy_tile.h"
#include "cuda/ladder/rungs.h"
#include "cuda/ladder/write_rows.h"
#include "cuda/ptx/barrier.h"
#include "cuda/ptx/warp.h"

namespace saccade::SACCADE_MACHINE::ladder {
namespace {

constexpr int kWarps = 4;
constexpr int kRowsPerWarp = 4;
constexpr int kRows = kWarps * kRowsPerWarp;
constexpr int kThreads = kWarps * ptx::kWarpThreads;
constexpr int kKeys = 64;

template <int kDim>
struct Shared {
  F16 k[kKeys][kDim];
  F16 v[kKeys][kDim];
};

template <int kDim>
SACCADE_KERNEL(kThreads, 1)
warp_reduce(SACCADE_ARGUMENT(Arguments) a) {
  auto& shared = *reinterpret_cast<Shared<kDim>*>(ptx::shared_memory());
  constexpr int kColumns = kDim / ptx::kWarpThreads;  // of a lane: lane, lane + 32, ...
  const Unit unit = unit_of(a, ptx::block_index().x, kRows);
  const int lane = ptx::lane_index();
  const int first = unit.first_row + ptx::warp_index() * kRowsPerWarp;
  float q[kRowsPerWarp][kColumns];
  float o[kRowsPerWarp][kColumns] = {};
  tile::RowState state[kRowsPerWarp];
  SACCADE_UNROLL
  for (int r = 0; r < kRowsPerWarp; ++r) {
    SACCADE_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const F16* from = unit.q + (first + r) * a.q.row + c * ptx::kWarpThreads + lane;
      q[r][c] = first + r < a.len_q ? a.scale * ptx::to_float(ptx::load_constant(from)) : 0.0F;
    }
  }
  const tile::TileRange tiles = tile::tiles_of<kKeys>(a.span, unit.first_row, unit.first_row + kRows - 1);
  for (int t = tiles.first; t < tiles.last; ++t) {
    ptx::sync_block();
    copy_tile<kKeys, kDim, kDim, kThreads>(&shared.k[0][0], unit.k, a.k.row, t * kKeys, a.span.len_kv);
    copy_tile<kKeys, kDim, kDim, kThreads>(&shared.v[0][0], unit.v, a.v.row, t * kKeys, a.span.len_kv);
    ptx::sync_block();
    for (int j = 0; j < kKeys; ++j) {
      float k[kColumns];
      float v[kColumns];
      SACCADE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        k[c] = ptx::to_float(ptx::load(&shared.k[j][c * ptx::kWarpThreads + lane]));
        v[c] = ptx::to_float(ptx::load(&shared.v[j][c * ptx::kWarpThreads + lane]));
      }
      SACCADE_UNROLL
      for (int r = 0; r < kRowsPerWarp; ++r) {
        float part = 0;
        SACCADE_UNROLL
        for (int c = 0; c < kColumns; ++c) part = ptx::fma(q[r][c], k[c], part);
        const float sum = tile::sum_over_lanes(part);
        const float score = t * kKeys + j < a.span.end(first + r) ? sum : -tile::kInfinity;
        const float keep = state[r].raise(score);
        const float weight = ptx::fast_exp2(score - state[r].base());
        state[r].l = state[r].l * keep + weight;
        SACCADE_UNROLL
        for (int c = 0; c < kColumns; ++c) o[r][c] = ptx::fma(weight, v[c], o[r][c] * keep);
      }
    }
  }
  write_rows(a, unit, first, o, state);
}

struct WarpReduce : BlockPerUnit {
  static constexpr char kName[] = "ladder_warp_reduce";
  static constexpr char kSummary[] = "rung 3: a warp per row, sums by shuffles";
  static constexpr int kRows = ladder::kRows;
  static constexpr int kThreads = ladder::kThreads;
  static constexpr std::size_t shared_bytes(int dim) {
    return dim == 64 ? sizeof(Shared<64>) : sizeof(Shared<128>);
  }
  template <int kDim>
  static constexpr auto kKernel = &warp_reduce<kDim>;
};

}  // namespace

const Kernel& ladder_warp_reduce() {
  return row<WarpReduce>();
}

}  // namespace saccade::SACCADE_MACHINE::ladder
