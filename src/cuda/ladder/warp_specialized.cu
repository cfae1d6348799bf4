// Rung 9: a warp that only copies, four that only compute.
//
// Copying costs addresses, predicates and issue slots; here the computing warps no longer pay them, and they
// wait for each other only through the ring, never all together.
#include "cuda/ladder/rungs.h"
#include "cuda/ladder/specialized.h"

namespace saccade::SACCADE_MACHINE::ladder {
namespace {

template <int kDim>
SACCADE_KERNEL(kSpecializedThreads, 1)
warp_specialized(SACCADE_ARGUMENT(Arguments) a) {
  auto& ring = *reinterpret_cast<Ring<kDim>*>(ptx::shared_memory());
  ring.start();
  const Unit unit = unit_of(a, ptx::block_index().x, kSpecializedRows);
  const tile::TileRange tiles = tiles_of(a, unit);
  if (ptx::warp_index() == kConsumerWarps) {
    Producer<kDim> producer(ring);
    for (int t = tiles.first; t < tiles.last; ++t) producer.fill(a, unit, t * kSpecializedKeys);
    producer.finish();
  } else {
    RingPosition<Ring<kDim>::kStages> at;
    consume_unit(ring, a, unit, at);
  }
}

struct WarpSpecialized : BlockPerUnit {
  static constexpr char kName[] = "ladder_warp_specialized";
  static constexpr char kSummary[] = "rung 9: producer and consumer warps";
  static constexpr int kRows = kSpecializedRows;
  static constexpr int kThreads = kSpecializedThreads;
  static constexpr std::size_t shared_bytes(int dim) {
    return dim == 64 ? sizeof(Ring<64>) : sizeof(Ring<128>);
  }
  template <int kDim>
  static constexpr auto kKernel = &warp_specialized<kDim>;
};

}  // namespace

const Kernel& ladder_warp_specialized() {
  return row<WarpSpecialized>();
}

}  // namespace saccade::SACCADE_MACHINE::ladder
