// Rung 10: persistent blocks. As many as the chip holds at once, each taking one unit of work after the
// other.
//
// The producer runs ahead into the next unit while the consumers finish the last one, so the pipeline never
// drains; units are dealt out longest first, so that the tail of a causal problem is short.
#include "cuda/ladder/rungs.h"
#include "cuda/ladder/specialized.h"

namespace saccade::SACCADE_MACHINE::ladder {
namespace {

/// What registers allow.
constexpr int blocks_per_multiprocessor(int dim) {
  return dim == 64 ? 2 : 1;
}

SACCADE_DEVICE Unit dealt(const Arguments& a, int number) {
  return unit_of(a, tile::longest_first(number, a.tiles, a.units / a.tiles), kSpecializedRows);
}

template <int kDim>
SACCADE_KERNEL(kSpecializedThreads, blocks_per_multiprocessor(kDim))
persistent(SACCADE_ARGUMENT(Arguments) a) {
  auto& ring = *reinterpret_cast<Ring<kDim>*>(ptx::shared_memory());
  ring.start();
  const int first = ptx::block_index().x;
  const int step = ptx::grid_size().x;
  if (ptx::warp_index() == kConsumerWarps) {
    Producer<kDim> producer(ring);
    for (int number = first; number < a.units; number += step) {
      const Unit unit = dealt(a, number);
      const tile::TileRange tiles = tiles_of(a, unit);
      for (int t = tiles.first; t < tiles.last; ++t) producer.fill(a, unit, t * kSpecializedKeys);
    }
    producer.finish();
  } else {
    RingPosition<Ring<kDim>::kStages> at;
    for (int number = first; number < a.units; number += step) consume_unit(ring, a, dealt(a, number), at);
  }
}

struct Persistent {
  static constexpr char kName[] = "ladder_persistent";
  static constexpr char kSummary[] = "rung 10: persistent blocks, longest units first";
  static constexpr int kRows = kSpecializedRows;
  static constexpr int kThreads = kSpecializedThreads;
  static constexpr std::size_t shared_bytes(int dim) {
    return dim == 64 ? sizeof(Ring<64>) : sizeof(Ring<128>);
  }
  template <int kDim>
  static constexpr auto kKernel = &persistent<kDim>;
  static int blocks(int units, int dim, const Machine& machine) {
    const int most = blocks_per_multiprocessor(dim) * machine.multiprocessors;
    return units < most ? units : most;
  }
};

}  // namespace

const Kernel& ladder_persistent() {
  return row<Persistent>();
}

}  // namespace saccade::SACCADE_MACHINE::ladder
