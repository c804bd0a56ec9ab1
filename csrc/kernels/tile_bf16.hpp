// One tile of a product of BF16 weights and bfloat16 activations: `R` tokens times `P` wides.
//
// Owns: the innermost loop and the definition of such a product. For each pair of columns, in order,
//
//   out = fma(odd weight, odd activation, out)
//   out = fma(even weight, even activation, out)
//
// which is what `vdpbf16ps` does (simd/pairs.hpp). An odd last column has a zero beside it.
#pragma once

#include <cstdint>

#include "../simd/pairs.hpp"
#include "tile.hpp"

namespace octavo {
namespace {

// Bytes of a pair of columns in a panel.
constexpr int64_t kPairBytes = 2 * panel_layout(WeightType::BF16).panel_group;

struct PairTile : Tile {
  const uint8_t* pairs;  // activations of the first token, from the tile's first column on
  int64_t token_bytes;   // from one token to the next
};

// Append pair `pair` of the tile to all chains; x is its activation of the first token.
template <class D, int R, int P>
OCTAVO_INLINE void multiply_pair(Chains<typename D::Lanes, R, P>& chains, const PairTile& tile, int64_t pair,
                                 const uint8_t* x) {
  using L = typename D::Lanes;
  typename D::Split weights[P];
  OCTAVO_UNROLL for (int p = 0; p < P; ++p) {
    weights[p] = D::split(L::load_panels(tile.wides[p] + kPairBytes * pair, tile.stride));
  }
  OCTAVO_UNROLL for (int r = 0; r < R; ++r) {
    int32_t two;
    __builtin_memcpy(&two, x + r * tile.token_bytes, sizeof two);
    const typename D::Split activations = D::split(L::set1_int(two));
    OCTAVO_UNROLL for (int p = 0; p < P; ++p) {
      chains.sum[r][p] = D::add(chains.sum[r][p], weights[p], activations);
    }
  }
}

template <class D, int R, int P, class Prefetcher>
void multiply_pairs(const PairTile& tile) {
  Chains<typename D::Lanes, R, P> chains;
  chains.begin(tile);
  Prefetcher prefetcher(tile);
  const int64_t num_pairs = (tile.columns + 1) / 2;
  const uint8_t* x = tile.pairs;
  int64_t pair = 0;
  for (; pair + 2 <= num_pairs; pair += 2, x += 8) {  // a cache line of each panel
    prefetcher.begin_step(tile.wides[0] + kPairBytes * pair);
    prefetcher.template begin_quad<0>(0);
    multiply_pair<D, R, P>(chains, tile, pair, x);
    multiply_pair<D, R, P>(chains, tile, pair + 1, x + 4);
  }
  if (pair < num_pairs) multiply_pair<D, R, P>(chains, tile, pair, x);
  prefetcher.end();
  chains.end(tile);
}

}  // namespace
}  // namespace octavo
