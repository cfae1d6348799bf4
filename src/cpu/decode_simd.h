// What the decode kernel's host side (decode.cpp) asks of its SIMD side (decode_simd.cpp).
//
// Few query rows against many keys: the time goes into reading K and V once. The SIMD lanes run over the head
// dimension, numbers are converted in registers on their way in, and all rows that share a key head use each
// load.
#pragma once

#include <cstddef>
#include <cstdint>

#include <saccade/problem.h>
#include <saccade/run.h>

#include "core/sequence.h"

namespace saccade::decode {

/// Rows that share a key head at most.
inline constexpr std::int64_t kMaxRows = 16;
/// Keys in one pass of the softmax at most.
inline constexpr std::int64_t kMostKeys = 1024;
/// Rows of the next tile that are listed with a tile at most, to be asked for early.
inline constexpr std::int64_t kMostAhead = 128;

/// How keys and values are read, which decides the speed and how sums are rounded (docs/kernels/cpu.md).
enum class Reading {
  streams,  ///< eight stretches side by side
  zen4,     ///< one row against 16-bit keys alternates between tiles of keys and values, each in one stream;
            ///< all others ask for lines ahead
  zen5,     ///< two stretches, many keys before their values, and rows asked for ahead
  intel,    ///< one row reads a few keys in turn with a few values while they are too many for a cache, else
            ///< as streams; more rows ask for lines ahead
  turns,    ///< as intel, however many keys there are (for tests)
};

/// What is best for the processor that runs this.
[[nodiscard]] Reading reading_of_this_machine();

/// All rows of one key head and a part of its keys. Rows run over queries and, inside, over the heads of the
/// group.
struct Unit {
  const Problem* problem;
  const Tensors* tensors;
  Sequence sequence;
  std::int64_t head_kv = 0;
  std::int64_t rows = 0;
  KeyRange keys{};
  Reading reading = Reading::streams;
};

/// Sizes in floats of what one unit needs.
struct Sizes {
  std::int64_t rows;           ///< padded
  std::int64_t dim_qk, dim_v;  ///< padded
  std::int64_t state, scratch;

  explicit Sizes(const Problem& problem);
};

/// The unfinished softmax: m[rows], l[rows], o[rows][padded dim_v], relative to the row maximum m, base 2.
struct State {
  float* m;
  float* l;
  float* o;
};

/// Splits a stretch of `sizes.state` floats.
[[nodiscard]] State state_at(const Sizes& sizes, float* memory);

/// Attends to the unit's keys. `scratch` has sizes.scratch floats.
void attend(const Unit& unit, const Sizes& sizes, float* scratch, const State& state);

/// Folds another part of the keys into `state`.
void merge(const Unit& unit, const Sizes& sizes, const State& part, const State& state);

/// Adds the sinks, normalises, and writes o and lse.
void finish(const Unit& unit, const Sizes& sizes, const State& state);

}  // namespace saccade::decode
