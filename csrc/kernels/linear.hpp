// Matrix products y = x W^T (+ bias): float32 activations, weights of any stored type.
//
// Owns: the order of the multiplications, the tiles. Does not know how a weight is stored (unpack.hpp).
//
// Every output is one chain of fused multiply-adds over the columns in order; the chains of several tokens
// and rows run side by side and never mix. A *wide* is a vector of rows: one panel, or two with AVX-512.
//
//   * Few tokens: weights are unpacked in registers and multiplied at once, several wides together, because
//     one chain alone would wait for its own latency.
//   * Many tokens: two wides are unpacked into a scratch panel that stays in the cache, and tiles of tokens
//     stream it. Long rows are cut into blocks of columns; a chain waits for its next block in `out`.
#pragma once

#include <cstdint>

#include "table.hpp"
#include "unpack.hpp"

namespace octavo {
namespace {

// One tile: `R` tokens times `P` wides.
struct TileArgs {
  const float* x;
  int64_t x_stride;
  const uint8_t* wides[4];  // the first panel of each wide
  int64_t stride;           // bytes from the first panel of a wide to its second
  int64_t columns;
  float* out;
  int64_t out_stride;
  int64_t rows;             // valid ones, counted from wides[0]
  const float* bias;        // of wides[0] on, or null
  bool resume;              // the chains go on from the values in `out`
  int64_t panel_bytes;      // for the prefetch: the end of a panel, and where
  int64_t successor;        // the tile that comes next has its panels; 0: no prefetch
};

template <class L>
OCTAVO_INLINE int64_t rows_of_wide(int64_t rows, int p) {
  const int64_t left = rows - p * L::kLanes;
  return left < 0 ? 0 : left < L::kLanes ? left : L::kLanes;
}

template <class L, int R, int P>
struct Accumulators {
  typename L::Floats chain[R][P];

  OCTAVO_INLINE void load(const TileArgs& args) {
    OCTAVO_UNROLL for (int r = 0; r < R; ++r) {
      OCTAVO_UNROLL for (int p = 0; p < P; ++p) {
        chain[r][p] = L::zero();
        if (args.resume) {
          chain[r][p] = L::load_first(args.out + r * args.out_stride + p * L::kLanes,
                                      rows_of_wide<L>(args.rows, p));
        }
      }
    }
  }

  OCTAVO_INLINE void store(const TileArgs& args) {
    OCTAVO_UNROLL for (int p = 0; p < P; ++p) {
      const int64_t rows = rows_of_wide<L>(args.rows, p);
      if (rows == 0) continue;
      typename L::Floats bias = L::zero();
      if (args.bias) bias = L::load_first(args.bias + p * L::kLanes, rows);
      OCTAVO_UNROLL for (int r = 0; r < R; ++r) {
        float* out = args.out + r * args.out_stride + p * L::kLanes;
        const typename L::Floats sum = args.bias ? L::add(chain[r][p], bias) : chain[r][p];
        if (rows == L::kLanes) L::store(out, sum);
        else L::store_first(out, sum, rows);
      }
    }
  }

  // One column: x points to its activation of the first token.
  OCTAVO_INLINE void multiply(const float* x, int64_t x_stride, const typename L::Floats (&w)[P]) {
    OCTAVO_UNROLL for (int r = 0; r < R; ++r) {
      const typename L::Floats activation = L::set1(x[r * x_stride]);
      OCTAVO_UNROLL for (int p = 0; p < P; ++p) chain[r][p] = L::fma(activation, w[p], chain[r][p]);
    }
  }
};

template <class L, class U, int R, int P, int k, int i>
OCTAVO_INLINE void multiply_column(const float* x, int64_t x_stride, const typename U::Step (&step)[P],
                                   const typename U::Quad (&quad)[P], Accumulators<L, R, P>& sums) {
  typename L::Floats w[P];
  OCTAVO_UNROLL for (int p = 0; p < P; ++p) w[p] = U::template value<k, i>(step[p], quad[p]);
  sums.multiply(x + 4 * k + i, x_stride, w);
}

// Columns 4k .. of a step.
template <class L, class U, int R, int P, int k = 0>
OCTAVO_INLINE void multiply_quads(const float* x, int64_t x_stride, const typename U::Step (&step)[P],
                                  Accumulators<L, R, P>& sums) {
  typename U::Quad quad[P];
  OCTAVO_UNROLL for (int p = 0; p < P; ++p) quad[p] = U::template quad<k>(step[p]);
  multiply_column<L, U, R, P, k, 0>(x, x_stride, step, quad, sums);
  multiply_column<L, U, R, P, k, 1>(x, x_stride, step, quad, sums);
  multiply_column<L, U, R, P, k, 2>(x, x_stride, step, quad, sums);
  multiply_column<L, U, R, P, k, 3>(x, x_stride, step, quad, sums);
  if constexpr (4 * (k + 1) < U::kStep) multiply_quads<L, U, R, P, k + 1>(x, x_stride, step, sums);
}

template <class L, class U, int R, int P>
void multiply_tile(const TileArgs& args) {
  Accumulators<L, R, P> sums;
  sums.load(args);
  const float* x = args.x;
  int64_t column = 0;
  for (; column + U::kStep <= args.columns; column += U::kStep) {
    typename U::Step step[P];
    OCTAVO_UNROLL for (int p = 0; p < P; ++p) step[p] = U::begin(args.wides[p], args.stride, column);
    multiply_quads<L, U, R, P>(x, args.x_stride, step, sums);
    x += U::kStep;
  }
  if constexpr (U::kStep != kGroup) {
    for (; column < args.columns; ++column) {
      typename L::Floats w[P];
      OCTAVO_UNROLL for (int p = 0; p < P; ++p) w[p] = U::column(args.wides[p], args.stride, column);
      sums.multiply(x++, args.x_stride, w);
    }
  }
  sums.store(args);
}

}  // namespace
}  // namespace octavo
