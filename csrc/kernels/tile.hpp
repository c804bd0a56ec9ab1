// One tile of a matrix product: `R` tokens times `P` wides, each output one chain of fused multiply-adds.
//
// A *wide* is a vector of rows: one panel, or two with AVX-512. Owns: the innermost loops, and which memory
// they ask for in advance. Does not know how a weight is stored (unpack.hpp) or which tiles a product needs
// (linear.hpp).
#pragma once

#include <cstdint>

#include "unpack.hpp"

namespace octavo {
namespace {

// How far ahead of a stream of weights memory is asked for.
constexpr int64_t kPrefetchBytes = 2048;

// Memory that is asked for while tiles are computed: `lines` cache lines after every `interval` steps.
struct Readahead {
  const uint8_t* at;
  const uint8_t* end;
  int64_t interval, lines;
};

struct Tile {
  const float* x;
  int64_t x_stride;
  const uint8_t* wides[4];  // the first panel of each wide
  int64_t stride;           // bytes from the first panel of a wide to its second
  int64_t columns;
  float* out;
  int64_t out_stride;
  int64_t rows;             // valid ones, counted from the first of wides[0]
  const float* bias;        // from that row on, or null
  bool resume;              // go on with the chains in `out`
  int64_t panel_bytes;
  int64_t set_bytes;        // of all its panels; those of the next tile follow
  Readahead* readahead;     // of multiply_cached
};

template <class L, int R, int P>
struct Chains {
  using Floats = typename L::Floats;
  Floats sum[R][P];

  OCTAVO_INLINE void begin(const Tile& tile) {
    OCTAVO_UNROLL for (int r = 0; r < R; ++r) {
      OCTAVO_UNROLL for (int p = 0; p < P; ++p) sum[r][p] = L::zero();
    }
    if (!tile.resume) return;
    OCTAVO_UNROLL for (int p = 0; p < P; ++p) {
      const int64_t rows = rows_of_wide(tile, p);
      const float* out = tile.out + p * L::kLanes;
      OCTAVO_UNROLL for (int r = 0; r < R; ++r) {
        if (rows == L::kLanes) sum[r][p] = L::load(out + r * tile.out_stride);
        else sum[r][p] = L::load_first(out + r * tile.out_stride, rows);
      }
    }
  }

  // Append one column to all chains; x is its activation of the first token.
  OCTAVO_INLINE void multiply(const float* x, int64_t x_stride, const Floats (&weights)[P]) {
    OCTAVO_UNROLL for (int r = 0; r < R; ++r) {
      const Floats activation = L::set1(x[r * x_stride]);
      OCTAVO_UNROLL for (int p = 0; p < P; ++p) {
        sum[r][p] = L::fma(activation, weights[p], sum[r][p]);
      }
    }
  }

  OCTAVO_INLINE void end(const Tile& tile) {
    OCTAVO_UNROLL for (int p = 0; p < P; ++p) {
      const int64_t rows = rows_of_wide(tile, p);
      if (tile.bias) {
        const Floats bias = L::load_first(tile.bias + p * L::kLanes, rows);
        OCTAVO_UNROLL for (int r = 0; r < R; ++r) sum[r][p] = L::add(sum[r][p], bias);
      }
      float* out = tile.out + p * L::kLanes;
      OCTAVO_UNROLL for (int r = 0; r < R; ++r) {
        if (rows == L::kLanes) L::store(out + r * tile.out_stride, sum[r][p]);
        else L::store_first(out + r * tile.out_stride, sum[r][p], rows);
      }
    }
  }

 private:
  static OCTAVO_INLINE int64_t rows_of_wide(const Tile& tile, int p) {
    const int64_t left = tile.rows - p * L::kLanes;
    return left < 0 ? 0 : left < L::kLanes ? left : L::kLanes;
  }
};

// ---- asking for memory ----

// Asks for the weights that the streams of a tile reach kPrefetchBytes later. Spread over the quads of a
// step: quad j does so for wide j (for float types, the only quad for all), since a burst would fill the
// buffers of the cache and block the loads behind it.
template <class L, class U, int P>
struct StreamPrefetcher {
  static constexpr int64_t kLines = (U::kStepBytes + 63) / 64;
  const Tile& tile;
  int64_t offset;  // in each panel

  OCTAVO_INLINE explicit StreamPrefetcher(const Tile& of) : tile(of), offset(0) {}
  OCTAVO_INLINE void begin_step(const uint8_t* position) {
    offset = position - tile.wides[0] + kPrefetchBytes;
    if (offset >= tile.panel_bytes) offset += tile.set_bytes - tile.panel_bytes;
  }
  template <int h>
  OCTAVO_INLINE void begin_quad(int j) const {
    if constexpr (U::kQuads == 1) {
      OCTAVO_UNROLL for (int p = 0; p < P; ++p) ask<0, kLines>(p);
    } else {
      constexpr int64_t half = (kLines + 1) / 2;
      if (j < P) ask<h == 0 ? 0 : half, h == 0 ? half : kLines>(j);
    }
  }
  OCTAVO_INLINE void end() const {}

 private:
  template <int64_t begin, int64_t end>
  OCTAVO_INLINE void ask(int p) const {
    const uint8_t* from = tile.wides[p] + offset;
    OCTAVO_UNROLL for (int64_t line = begin; line < end; ++line) {
      __builtin_prefetch(from + 64 * line);
      if (L::kPanels == 2) __builtin_prefetch(from + tile.stride + 64 * line);
    }
  }
};

// Asks for the panels that come after this tile's, at an even pace: faster than memory delivers would block
// the loads of the tile.
struct SetPrefetcher {
  Readahead* readahead;
  const uint8_t* at;
  int64_t countdown;

  OCTAVO_INLINE explicit SetPrefetcher(const Tile& tile)
      : readahead(tile.readahead), at(readahead->at), countdown(readahead->interval) {}
  OCTAVO_INLINE void begin_step(const uint8_t*) {
    if (--countdown > 0) return;
    countdown = readahead->interval;
    if (at >= readahead->end) return;
    for (int64_t line = 0; line < readahead->lines; ++line, at += 64) __builtin_prefetch(at, 0, 2);
  }
  template <int h>
  OCTAVO_INLINE void begin_quad(int) const {}
  OCTAVO_INLINE void end() const { readahead->at = at; }
};

// ---- the loops ----

template <class L, class U, int R, int P, int h, int i>
OCTAVO_INLINE void multiply_column(Chains<L, R, P>& chains, const float* x, int64_t x_stride,
                                   const typename U::Step (&steps)[P],
                                   const typename U::Quad (&quads)[P]) {
  typename L::Floats weights[P];
  OCTAVO_UNROLL for (int p = 0; p < P; ++p) {
    weights[p] = U::template value<h, i>(steps[p], quads[p]);
  }
  chains.multiply(x + i, x_stride, weights);
}

// The quads of half `h` of a step. Not unrolled: the body is long enough, and compiles in a quarter of the
// time.
template <class L, class U, int R, int P, int h, class Prefetcher>
OCTAVO_INLINE void multiply_half(Chains<L, R, P>& chains, const float* x, int64_t x_stride,
                                 const typename U::Step (&steps)[P], const Prefetcher& prefetcher) {
  OCTAVO_NO_UNROLL for (int j = 0; j < U::kQuads; ++j) {
    prefetcher.template begin_quad<h>(j);
    typename U::Quad quads[P];
    OCTAVO_UNROLL for (int p = 0; p < P; ++p) quads[p] = U::template quad<h>(steps[p], j);
    multiply_column<L, U, R, P, h, 0>(chains, x, x_stride, steps, quads);
    multiply_column<L, U, R, P, h, 1>(chains, x, x_stride, steps, quads);
    multiply_column<L, U, R, P, h, 2>(chains, x, x_stride, steps, quads);
    multiply_column<L, U, R, P, h, 3>(chains, x, x_stride, steps, quads);
    x += 4;
  }
}

template <class L, class U, int R, int P, class Prefetcher>
OCTAVO_INLINE void multiply_tile(const Tile& tile) {
  Chains<L, R, P> chains;
  chains.begin(tile);
  Prefetcher prefetcher(tile);
  const int64_t x_stride = tile.x_stride;
  const float* x = tile.x;
  int64_t column = 0;
  for (; column + U::kStep <= tile.columns; column += U::kStep) {
    typename U::Step steps[P];
    OCTAVO_UNROLL for (int p = 0; p < P; ++p) {
      steps[p] = U::begin(tile.wides[p], tile.stride, column);
    }
    prefetcher.begin_step(steps[0].weights);
    multiply_half<L, U, R, P, 0>(chains, x, x_stride, steps, prefetcher);
    if constexpr (U::kHalves == 2) {
      multiply_half<L, U, R, P, 1>(chains, x + 16, x_stride, steps, prefetcher);
    }
    x += U::kStep;
  }
  if constexpr (U::kHalves == 1) {
    for (; column < tile.columns; ++column) {
      typename L::Floats weights[P];
      OCTAVO_UNROLL for (int p = 0; p < P; ++p) {
        weights[p] = U::column(tile.wides[p], tile.stride, column);
      }
      chains.multiply(x++, x_stride, weights);
    }
  }
  prefetcher.end();
  chains.end(tile);
}

// Weights from memory, used by this tile alone.
template <class L, class U, int R, int P>
void multiply_streamed(const Tile& tile) {
  multiply_tile<L, U, R, P, StreamPrefetcher<L, U, P>>(tile);
}

// Weights from the cache, used by several tiles.
template <class L, class U, int R, int P>
void multiply_cached(const Tile& tile) {
  multiply_tile<L, U, R, P, SetPrefetcher>(tile);
}

}  // namespace
}  // namespace octavo
