// Rung 6: tensor cores for the first product. Scores come from WMMA; the values are still added by scalar
// code.
//
// Half of the arithmetic becomes almost free, so the other half is all that is left: Amdahl's law on a
// ladder.
#include "cuda/ladder/rungs.h"
#include "cuda/ladder/wmma_tile.h"

namespace saccade::SACCADE_MACHINE::ladder {
namespace {

template <int kDim>
SACCADE_KERNEL(kWmmaThreads, 1)
wmma_qk(SACCADE_ARGUMENT(Arguments) a) {
  attend_by_wmma<kDim>(a, [](WmmaShared<kDim>& shared) {
    constexpr int kColumns = kDim / ptx::kWarpThreads;  // of a lane: lane, lane + 32, ...
    constexpr int kRowsAtOnce = 8;                      // share each value that is loaded
    const int lane = ptx::lane_index();
    for (int r = 0; r < kWmmaWarpRows; r += kRowsAtOnce) {
      const int first = ptx::warp_index() * kWmmaWarpRows + r;
      float o[kRowsAtOnce][kColumns];
      SACCADE_UNROLL
      for (int n = 0; n < kRowsAtOnce; ++n) {
        const float keep = ptx::load(&shared.keep[first + n]);
        SACCADE_UNROLL
        for (int c = 0; c < kColumns; ++c)
          o[n][c] = keep * ptx::load(&shared.o[first + n][c * ptx::kWarpThreads + lane]);
      }
      for (int j = 0; j < kWmmaKeys; ++j) {
        SACCADE_UNROLL
        for (int c = 0; c < kColumns; ++c) {
          const float v = ptx::to_float(ptx::load(&shared.kv[j][c * ptx::kWarpThreads + lane]));
          SACCADE_UNROLL
          for (int n = 0; n < kRowsAtOnce; ++n) {
            o[n][c] = ptx::fma(ptx::to_float(ptx::load(&shared.weights[first + n][j])), v, o[n][c]);
          }
        }
      }
      SACCADE_UNROLL
      for (int n = 0; n < kRowsAtOnce; ++n) {
        SACCADE_UNROLL
        for (int c = 0; c < kColumns; ++c)
          ptx::store(&shared.o[first + n][c * ptx::kWarpThreads + lane], o[n][c]);
      }
    }
  });
}

struct WmmaQk : BlockPerUnit {
  static constexpr char kName[] = "ladder_wmma_qk";
  static constexpr char kSummary[] = "rung 6: WMMA for the scores";
  static constexpr int kRows = kWmmaRows;
  static constexpr int kThreads = kWmmaThreads;
  static constexpr std::size_t shared_bytes(int dim) {
    return dim == 64 ? sizeof(WmmaShared<64>) : sizeof(WmmaShared<128>);
  }
  template <int kDim>
  static constexpr auto kKernel = &wmma_qk<kDim>;
};

}  // namespace

const Kernel& ladder_wmma_qk() {
  return row<WmmaQk>();
}

}  // namespace saccade::SACCADE_MACHINE::ladder
