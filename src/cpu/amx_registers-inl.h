// The matrix tiles as C++: registers named by template arguments, a configuration by scope.
#if defined(SACCADE_CPU_AMX_REGISTERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SACCADE_CPU_AMX_REGISTERS_INL_H_
#undef SACCADE_CPU_AMX_REGISTERS_INL_H_
#else
#define SACCADE_CPU_AMX_REGISTERS_INL_H_
#endif

#include <atomic>
#include <cstdint>
#include <hwy/highway.h>
#include <immintrin.h>

HWY_BEFORE_NAMESPACE();
namespace saccade::HWY_NAMESPACE {

// Tiles 0 to 3 are accumulators, two rows of tiles by two columns; the factors of each two have registers
// too.
constexpr int kFactorA = 4;
constexpr int kFactorB = 6;

// The intrinsics want literal register numbers.
#define SACCADE_FOR_TILE(n, action) \
  if constexpr ((n) == 0) {         \
    action(0);                      \
  } else if constexpr ((n) == 1) {  \
    action(1);                      \
  } else if constexpr ((n) == 2) {  \
    action(2);                      \
  } else if constexpr ((n) == 3) {  \
    action(3);                      \
  } else if constexpr ((n) == 4) {  \
    action(4);                      \
  } else if constexpr ((n) == 5) {  \
    action(5);                      \
  } else if constexpr ((n) == 6) {  \
    action(6);                      \
  } else {                          \
    action(7);                      \
  }

/// Loads 16 rows of 64 bytes, `stride` bytes apart.
template <int kTile>
HWY_INLINE void tile_load(const void* from, std::int64_t stride) {
#define SACCADE_TILE_ACTION(n) _tile_loadd(n, from, stride)
  SACCADE_FOR_TILE(kTile, SACCADE_TILE_ACTION)
#undef SACCADE_TILE_ACTION
}

template <int kTile>
HWY_INLINE void tile_store(void* to, std::int64_t stride) {
#define SACCADE_TILE_ACTION(n) _tile_stored(n, to, stride)
  SACCADE_FOR_TILE(kTile, SACCADE_TILE_ACTION)
#undef SACCADE_TILE_ACTION
}

template <int kTile>
HWY_INLINE void tile_zero() {
#define SACCADE_TILE_ACTION(n) _tile_zero(n)
  SACCADE_FOR_TILE(kTile, SACCADE_TILE_ACTION)
#undef SACCADE_TILE_ACTION
}

/// Accumulator += factor a [16 x 32] * factor b [32 x 16], b as pairs of rows.
template <int kTile>
HWY_INLINE void tile_multiply_add() {
  static_assert(kTile < 4 && kFactorA == 4 && kFactorB == 6);
  if constexpr (kTile == 0) {
    _tile_dpbf16ps(0, 4, 6);
  } else if constexpr (kTile == 1) {
    _tile_dpbf16ps(1, 4, 7);
  } else if constexpr (kTile == 2) {
    _tile_dpbf16ps(2, 5, 6);
  } else {
    _tile_dpbf16ps(3, 5, 7);
  }
}
#undef SACCADE_FOR_TILE

/// Vector stores before it are in memory for the tile loads after it: GCC's tile intrinsics do not say that
/// they read memory.
HWY_INLINE void tile_fence() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

/// Every tile register is 16 rows of 64 bytes until the end of the scope.
class TileScope {
 public:
  HWY_INLINE TileScope() {
    static constexpr TileConfig kConfig;  // static: the intrinsic admits to reading 8 bytes only
    _tile_loadconfig(&kConfig);
  }
  HWY_INLINE ~TileScope() { _tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

}  // namespace saccade::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SACCADE_CPU_AMX_REGISTERS_INL_H_
