// Rung 4: light barriers. Eight warps, one block barrier a tile instead of two, and softmax once a tile.
//
// Two buffers take turns: while the warps work on one tile, its successor is on its way through registers
// into the other, and one barrier both publishes it and frees the old. Inside a warp, lanes own keys while
// they score (no shuffles there), and columns while they add values; the weights change hands in the warp's
// own corner of shared memory, behind a warp barrier, which costs a few cycles where a block barrier costs
// the slowest warp.
#include "cuda/ladder/rungs.h"
#include "cuda/ladder/write_rows.h"
#include "cuda/ptx/barrier.h"
#include "cuda/ptx/memory.h"
#include "cuda/ptx/warp.h"

namespace saccade::SACCADE_MACHINE::ladder {
namespace {

constexpr int kWarps = 8;
constexpr int kRowsPerWarp = 4;
constexpr int kRows = kWarps * kRowsPerWarp;
constexpr int kThreads = kWarps * ptx::kWarpThreads;
constexpr int kKeys = 32;  // a lane each

/// Key rows are padded by 16 bytes: lanes read 16 bytes of 32 rows, eight rows at a time.
template <int kDim>
struct Shared {
  alignas(16) F16 k[2][kKeys][kDim + 8];
  alignas(16) F16 v[2][kKeys][kDim];
  alignas(16) float q[kRows][kDim];
  float weights[kWarps][kRowsPerWarp][kKeys];
};

/// A thread's share of a tile of keys and values, on its way through registers.
template <int kDim>
struct Share {
  static constexpr int kChunks = kKeys * kDim / 8 / kThreads;
  ptx::Bytes16 k[kChunks], v[kChunks];

  SACCADE_DEVICE void load(const Arguments& a, const Unit& unit, int first) {
    SACCADE_UNROLL
    for (int n = 0; n < kChunks; ++n) {
      const int at = n * kThreads + ptx::thread_index();
      const int key = first + at / (kDim / 8);
      const int column = at % (kDim / 8) * 8;
      k[n] = v[n] = {};
      if (key < a.span.len_kv) {
        k[n] = ptx::load_constant(reinterpret_cast<const ptx::Bytes16*>(unit.k + key * a.k.row + column));
        v[n] = ptx::load_constant(reinterpret_cast<const ptx::Bytes16*>(unit.v + key * a.v.row + column));
      }
    }
  }
  SACCADE_DEVICE void store(Shared<kDim>& shared, int buffer) const {
    SACCADE_UNROLL
    for (int n = 0; n < kChunks; ++n) {
      const int at = n * kThreads + ptx::thread_index();
      const int row = at / (kDim / 8);
      const int column = at % (kDim / 8) * 8;
      ptx::store(reinterpret_cast<ptx::Bytes16*>(&shared.k[buffer][row][column]), k[n]);
      ptx::store(reinterpret_cast<ptx::Bytes16*>(&shared.v[buffer][row][column]), v[n]);
    }
  }
};

template <int kDim>
SACCADE_KERNEL(kThreads, 1)
light_barriers(SACCADE_ARGUMENT(Arguments) a) {
  auto& shared = *reinterpret_cast<Shared<kDim>*>(ptx::shared_memory());
  constexpr int kColumns = kDim / ptx::kWarpThreads;  // of a lane: lane, lane + 32, ...
  const Unit unit = unit_of(a, ptx::block_index().x, kRows);
  const int lane = ptx::lane_index();
  const int warp_row = ptx::warp_index() * kRowsPerWarp;
  const int first = unit.first_row + warp_row;
  for (int n = lane; n < kRowsPerWarp * kDim; n += ptx::kWarpThreads) {
    const int row = n / kDim;
    const F16* from = unit.q + (first + row) * a.q.row + n % kDim;
    const float q = first + row < a.len_q ? a.scale * ptx::to_float(ptx::load_constant(from)) : 0.0F;
    ptx::store(&shared.q[warp_row + row][n % kDim], q);
  }
  tile::RowState state[kRowsPerWarp];
  float o[kRowsPerWarp][kColumns] = {};
  const tile::TileRange tiles = tile::tiles_of<kKeys>(a.span, unit.first_row, unit.first_row + kRows - 1);
  Share<kDim> share;
  if (tiles.first < tiles.last) {
    share.load(a, unit, tiles.first * kKeys);
    share.store(shared, tiles.first % 2);
  }
  for (int t = tiles.first; t < tiles.last; ++t) {
    ptx::sync_block();  // this tile is there, and the other buffer is free
    const bool more = t + 1 < tiles.last;
    if (more) share.load(a, unit, (t + 1) * kKeys);

    float scores[kRowsPerWarp] = {};
    for (int d = 0; d < kDim; d += 8) {
      const auto chunk = ptx::load(reinterpret_cast<const ptx::Bytes16*>(&shared.k[t % 2][lane][d]));
      SACCADE_UNROLL
      for (int n = 0; n < 4; ++n) {
        const float low = ptx::to_float(F16{static_cast<std::uint16_t>(chunk.words[n])});
        const float high = ptx::to_float(F16{static_cast<std::uint16_t>(chunk.words[n] >> 16)});
        SACCADE_UNROLL
        for (int r = 0; r < kRowsPerWarp; ++r) {
          scores[r] = ptx::fma(ptx::load(&shared.q[warp_row + r][d + 2 * n]), low, scores[r]);
          scores[r] = ptx::fma(ptx::load(&shared.q[warp_row + r][d + 2 * n + 1]), high, scores[r]);
        }
      }
    }
    SACCADE_UNROLL
    for (int r = 0; r < kRowsPerWarp; ++r) {
      const float score = t * kKeys + lane < a.span.end(first + r) ? scores[r] : -tile::kInfinity;
      const float keep = state[r].raise(tile::max_over_lanes(score));
      const float weight = ptx::fast_exp2(score - state[r].base());
      state[r].l = state[r].l * keep + tile::sum_over_lanes(weight);
      ptx::store(&shared.weights[ptx::warp_index()][r][lane], weight);
      SACCADE_UNROLL
      for (int c = 0; c < kColumns; ++c) o[r][c] *= keep;
    }
    ptx::sync_warp();  // the weights are there
    for (int j = 0; j < kKeys; ++j) {
      float v[kColumns];
      SACCADE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        v[c] = ptx::to_float(ptx::load(&shared.v[t % 2][j][c * ptx::kWarpThreads + lane]));
      }
      SACCADE_UNROLL
      for (int r = 0; r < kRowsPerWarp; ++r) {
        const float weight = ptx::load(&shared.weights[ptx::warp_index()][r][j]);
        SACCADE_UNROLL
        for (int c = 0; c < kColumns; ++c) o[r][c] = ptx::fma(weight, v[c], o[r][c]);
      }
    }
    ptx::sync_warp();  // the weights are done with
    if (more) share.store(shared, (t + 1) % 2);
  }
  write_rows(a, unit, first, o, state);
}

struct LightBarriers : BlockPerUnit {
  static constexpr char kName[] = "ladder_light_barriers";
  static constexpr char kSummary[] = "rung 4: eight warps, one block barrier a tile";
  static constexpr int kRows = ladder::kRows;
  static constexpr int kThreads = ladder::kThreads;
  static constexpr std::size_t shared_bytes(int dim) {
    return dim == 64 ? sizeof(Shared<64>) : sizeof(Shared<128>);
  }
  template <int kDim>
  static constexpr auto kKernel = &light_barriers<kDim>;
};

}  // namespace

const Kernel& ladder_light_barriers() {
  return row<LightBarriers>();
}

}  // namespace saccade::SACCADE_MACHINE::ladder
