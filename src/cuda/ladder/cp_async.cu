// Rung 8: cp.async and an XOR swizzle. Copies pass the registers by and run two tiles ahead; matrices go from
// shared memory to registers by ldmatrix without bank conflicts; scores, weights and outputs never leave the
// registers.
//
// One block barrier a tile does all: it publishes the tile that has arrived and frees the buffer of the one
// before.
#include "cuda/ladder/rungs.h"
#include "cuda/ptx/barrier.h"
#include "cuda/tile/copy.h"
#include "cuda/tile/warp_rows.h"

namespace saccade::SACCADE_MACHINE::ladder {
namespace {

constexpr int kWarps = 4;
constexpr int kRows = 16 * kWarps;
constexpr int kKeys = 64;
constexpr int kThreads = kWarps * ptx::kWarpThreads;

template <int kDim>
struct Shared {
  static constexpr int kStages = kDim == 64 ? 3 : 2;  // within the 99 KB of Ada
  F16 q[kRows * kDim];
  F16 k[kStages][kKeys * kDim];
  F16 v[kStages][kKeys * kDim];
};

template <int kDim>
SACCADE_KERNEL(kThreads, 1)
cp_async(SACCADE_ARGUMENT(Arguments) a) {
  auto& shared = *reinterpret_cast<Shared<kDim>*>(ptx::shared_memory());
  constexpr int kStages = Shared<kDim>::kStages;
  const Unit unit = unit_of(a, ptx::block_index().x, kRows);
  const int thread = ptx::thread_index();
  const int row = unit.first_row + 16 * ptx::warp_index();
  const tile::TileRange tiles = tile::tiles_of<kKeys>(a.span, unit.first_row, unit.first_row + kRows - 1);

  constexpr int kTile = kKeys * kDim;
  const ptx::SharedPointer<F16> q(shared.q);
  const ptx::SharedPointer<F16> k(shared.k[0]);
  const ptx::SharedPointer<F16> v(shared.v[0]);
  const auto fetch = [&](int t) {  // always closes a group, so that groups can be counted
    if (t < tiles.last) {
      tile::copy_rows<F16, kKeys, kDim, kThreads>(k + t % kStages * kTile, unit.k, a.k.row, t * kKeys,
                                                  a.span.len_kv, thread);
      tile::copy_rows<F16, kKeys, kDim, kThreads>(v + t % kStages * kTile, unit.v, a.v.row, t * kKeys,
                                                  a.span.len_kv, thread);
    }
    ptx::commit_copies();
  };
  tile::copy_rows<F16, kRows, kDim, kThreads>(q, unit.q, a.q.row, unit.first_row, a.len_q, thread);
  SACCADE_UNROLL
  for (int n = 0; n < kStages - 1; ++n) fetch(tiles.first + n);

  tile::WarpRows<F16, kDim> rows;
  for (int t = tiles.first; t < tiles.last; ++t) {
    ptx::wait_copies<kStages - 2>();
    ptx::sync_block();
    fetch(t + kStages - 1);
    if (t == tiles.first) rows.load_queries(q, 16 * ptx::warp_index(), a.split_scale);
    const int stage = t % kStages * kTile;
    rows.template attend_tile<kKeys>(k + stage, v + stage, tile::PlainScores{a.span, a.split_scale}, row,
                                     t * kKeys, tiles.coverage(t), [] {});
  }
  ptx::wait_copies<0>();
  rows.write(unit.o, a.o.row, row, a.len_q);
}

struct CpAsync : BlockPerUnit {
  static constexpr char kName[] = "ladder_cp_async";
  static constexpr char kSummary[] = "rung 8: cp.async stages, swizzle, mma";
  static constexpr int kRows = ladder::kRows;
  static constexpr int kThreads = ladder::kThreads;
  static constexpr std::size_t shared_bytes(int dim) {
    return dim == 64 ? sizeof(Shared<64>) : sizeof(Shared<128>);
  }
  template <int kDim>
  static constexpr auto kKernel = &cp_async<kDim>;
};

}  // namespace

const Kernel& ladder_cp_async() {
  return row<CpAsync>();
}

}  // namespace saccade::SACCADE_MACHINE::ladder
