// Rung 7: tensor cores for both products, fused, accumulating in f32.
//
// WMMA hides which lane holds which element, so a row of the accumulator cannot be rescaled in registers: the
// output lives in shared memory, is rescaled there, and goes through the fragments and back once a tile.
#include "cuda/ladder/rungs.h"
#include "cuda/ladder/wmma_tile.h"

namespace saccade::SACCADE_MACHINE::ladder {
namespace {

template <int kDim>
SACCADE_KERNEL(kWmmaThreads, 1)
wmma(SACCADE_ARGUMENT(Arguments) a) {
  attend_by_wmma<kDim>(a, [](WmmaShared<kDim>& shared) {
    const int first = ptx::warp_index() * kWmmaWarpRows;
    for (int r = 0; r < kWmmaWarpRows; ++r) {
      const float keep = ptx::load(&shared.keep[first + r]);
      for (int d = ptx::lane_index(); d < kDim; d += ptx::kWarpThreads) {
        ptx::store(&shared.o[first + r][d], keep * ptx::load(&shared.o[first + r][d]));
      }
    }
    ptx::sync_warp();
    SACCADE_UNROLL
    for (int d = 0; d < kDim; d += kFragment) {
      ptx::FragmentD o;
      ptx::load_fragment(o, &shared.o[first][d], WmmaShared<kDim>::kOutputStride);
      SACCADE_UNROLL
      for (int j = 0; j < kWmmaKeys; j += kFragment) {
        ptx::FragmentA weights;
        ptx::FragmentB<false> v;
        ptx::load_fragment(weights, &shared.weights[first][j], WmmaShared<kDim>::kWeightStride);
        ptx::load_fragment(v, &shared.kv[j][d], WmmaShared<kDim>::kStride);
        ptx::multiply_add(o, weights, v);
      }
      ptx::store_fragment(&shared.o[first][d], o, WmmaShared<kDim>::kOutputStride);
    }
  });
}

struct Wmma : BlockPerUnit {
  static constexpr char kName[] = "ladder_wmma";
  static constexpr char kSummary[] = "rung 7: WMMA for both products, fused";
  static constexpr int kRows = kWmmaRows;
  static constexpr int kThreads = kWmmaThreads;
  static constexpr std::size_t shared_bytes(int dim) {
    return dim == 64 ? sizeof(WmmaShared<64>) : sizeof(WmmaShared<128>);
  }
  template <int kDim>
  static constexpr auto kKernel = &wmma<kDim>;
};

}  // namespace

const Kernel& ladder_wmma() {
  return row<Wmma>();
}

}  // namespace saccade::SACCADE_MACHINE::ladder
