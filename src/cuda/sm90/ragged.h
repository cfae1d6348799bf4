// Sequences that have lengths of their own: where they lie, what their rows see, and who computes which tile.
#pragma once

#include <bit>

#include "cuda/launch/tensor_map.h"
#include "cuda/ptx/machine.h"
#include "cuda/ptx/memory.h"
#include "cuda/ptx/warp.h"
#include "cuda/sm90/config.h"
#include "cuda/tile/arrivals.h"
#include "cuda/tile/queue.h"
#include "cuda/tile/scores.h"

namespace saccade::SACCADE_MACHINE::sm90 {

/// All that there is to ask.
struct Anything {
  Problem p;
  Tensors t;
  int batch_rows = 0;  ///< of dense keys, from one batch to the next; only ragged instances ask
};

/// Where row 0 of a sequence is in a map: other rows are that many behind in the first coordinate.
struct Place {
  int first, second, third;
};
struct OwnSequence {
  int first_q, len_q;
  Place q, kv;
  tile::KeySpan span;
};

/// Maps of sequences that end where others begin. Rows are counted twice: of a sequence that begins at row
/// `first` and has `len`, row i is at column, i + kEnd - len, first + len, kEnd, head (the innermost first).
/// In the last but one a step goes one row back and 2^34 bytes on, so kEnd steps go kEnd rows back and once
/// around all addresses, and that is row first + i. But the first count of rows has kEnd values, so from row
/// `len` on zeros are filled in, whoever's rows lie there. (A base kEnd rows before the tensor would do
/// without the turn, but of a box that lies outside the copy engine still touches the first bytes of the
/// tensor.)
inline constexpr int kEnd = 1 << 30;

SACCADE_DEVICE OwnSequence own_sequence(const Anything& any, int batch) {
  const Problem& p = any.p;
  const Sequence s = sequence(p, any.t, batch);
  const auto len_q = static_cast<int>(s.len_q);
  const auto len_kv = static_cast<int>(s.len_kv);
  const auto first_q = static_cast<int>(s.first_q);
  const int first_kv = static_cast<int>(s.first_kv) + batch * any.batch_rows;
  OwnSequence own{.first_q = first_q,
                  .len_q = len_q,
                  .q = {0, 0, batch},
                  .kv = {kEnd - len_kv, first_kv + len_kv, kEnd},
                  .span = tile::span_of(p, len_kv, s.diagonal)};
  if (p.ragged_q) own.q = {kEnd - len_q, first_q + len_q, kEnd};
  return own;
}

/// The map of a tensor of `rows` rows in all; or, for queries that are dense, of [head, batch, -, row,
/// column].
inline Status ragged_map(ptx::TensorMap& map, const void* data, const Strides& s, std::int64_t dim,
                         std::int64_t heads, std::int64_t rows, int box_rows,
                         std::int64_t dense_batches = 0) {
  const auto number = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  const auto bytes = [&](std::int64_t stride, std::int64_t size) {
    return size == 1 ? 16 : number(2 * stride);
  };
  constexpr std::uint64_t kTurn = std::uint64_t{1} << 34;
  static_assert(kTurn * kEnd == 0);
  const std::uint64_t row = bytes(s.row, rows);
  TensorLayout layout{.base = data,
                      .rank = 5,
                      .element_bytes = 2,
                      .sizes = {number(dim), kEnd, number(rows + 1), kEnd + 1, number(heads)},
                      .strides = {2, row, row, kTurn - row, bytes(s.head, heads)},
                      .box = {64, static_cast<std::uint32_t>(box_rows), 1, 1, 1},
                      .swizzle = 128};
  if (dense_batches > 0) {
    layout.sizes = {number(dim), number(rows), 1, number(dense_batches), number(heads)};
    layout.strides[3] = bytes(s.batch, dense_batches);
  }
  return make_tensor_map(map, layout);
}

/// What a row group is told of its next tile, in shared memory; valid as long as its queries are.
struct Notice {
  int head = -1;  ///< counted through all batches; -1: there is no other tile
  int first_row = 0, len_q = 0, unused = 0;
  tile::KeySpan span{};

  SACCADE_DEVICE void write(ptx::Bytes16* to) const {
    const auto [low, high] = std::bit_cast<Halves>(*this);
    ptx::store(to, low);
    ptx::store(to + 1, high);
  }
  static SACCADE_DEVICE Notice read(const ptx::Bytes16* from) {
    return {
        .head = word(from, 0), .first_row = word(from, 1), .len_q = word(from, 2), .span = read_span(from)};
  }
  /// But for the diagonal, which only other scores need.
  static SACCADE_DEVICE tile::KeySpan read_span(const ptx::Bytes16* from) {
    return {.len_kv = word(from, 4), .before = word(from, 6), .after = word(from, 7)};
  }

 private:
  struct Halves {
    ptx::Bytes16 low, high;
  };
  /// By the lane that will give the place back, for all.
  static SACCADE_DEVICE int word(const ptx::Bytes16* from, int n) {
    const std::uint32_t* words = from[n / 4].words;
    const std::uint32_t word = ptx::lane_index() == 0 ? ptx::load(words + n % 4) : 0;
    return static_cast<int>(ptx::shuffle(word, 0));
  }
};

/// Plain scores of such a sequence. What its rows see is read in the few tiles where that matters: registers
/// are short.
struct OwnScores {
  const ptx::Bytes16* notice;
  tile::ScoreScale scale;

  static constexpr bool kPlain = true;
  /// As PlainScores::change.
  template <int kRowTiles, int kParts>
  SACCADE_DEVICE float change(float (&s)[kRowTiles][kParts][4], int row, int first_key, bool masked) const {
    if (!masked) return scale.size;
    return tile::PlainScores{Notice::read_span(notice), scale}.change(s, row, first_key, masked);
  }
};

/// Hands tiles of queries out to blocks that stay: each has the one of its own number first, then whichever
/// nobody has had. Tiles are numbered sequence by sequence, so a block goes through the sequences once. By
/// one thread of each block, which keeps what it knows in shared memory: it has few registers.
class Draw {
 public:
  struct Tile {
    int batch, head, number;
  };

  SACCADE_DEVICE Draw(const Anything& any, std::uint64_t* drawn, ptx::Bytes16* known, int rows,
                      bool longest_first)
      : any_(any), drawn_{drawn}, known_(known), rows_(rows), longest_first_(longest_first) {}

  /// The tile that the block begins with; batch -1: there are not so many.
  SACCADE_DEVICE Tile first() const { return find({.tiles = tiles_of(0), .number = ptx::block_index().x}); }
  /// Draws the number of the next one, of a block that has begun with one.
  SACCADE_DEVICE void draw() const {
    ptx::store(&known_->words[3], static_cast<std::uint32_t>(ptx::grid_size().x + drawn_.add_one()));
  }
  /// The tile of that number. As many are drawn as there are tiles, so whoever has the last number knows it
  /// when he finds no tile.
  SACCADE_DEVICE Tile next() const { return find(std::bit_cast<Known>(ptx::load(known_))); }

 private:
  struct Known {
    int batch = 0;
    int before = 0;  ///< tiles of sequences before this one
    int tiles = 0;   ///< in a head of this one
    int number = 0;  ///< drawn
  };

  SACCADE_DEVICE Tile find(Known known) const {
    const auto heads = static_cast<int>(any_.p.heads_q);
    while (known.number - known.before >= known.tiles * heads) {
      known.before += known.tiles * heads;
      if (++known.batch == static_cast<int>(any_.p.batch)) {
        if (known.number + 1 - ptx::grid_size().x == known.before) drawn_.clear();
        return {-1, 0, 0};
      }
      known.tiles = tiles_of(known.batch);
    }
    ptx::store(known_, std::bit_cast<ptx::Bytes16>(known));
    const int place = known.number - known.before;
    const int head = place / known.tiles;
    const int tile = place - head * known.tiles;
    return {known.batch, head, longest_first_ ? known.tiles - 1 - tile : tile};
  }
  SACCADE_DEVICE int tiles_of(int batch) const {
    const auto len = static_cast<unsigned>(own_sequence(any_, batch).len_q);
    return static_cast<int>((len + static_cast<unsigned>(rows_) - 1) / static_cast<unsigned>(rows_));
  }

  const Anything& any_;
  tile::TaggedCounter<saccade::sm90::Config::kDrawBits> drawn_;
  ptx::Bytes16* known_;
  int rows_;
  bool longest_first_;
};

}  // namespace saccade::SACCADE_MACHINE::sm90
