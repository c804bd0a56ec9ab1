// Matrix products y = x W^T (+ bias) of bfloat16 activations (rounded_row.hpp) and BF16 weights.
//
// Owns: which tiles such a product is made of. What a tile computes is tile_bf16.hpp; the result does not
// depend on the tile, as in linear.hpp, which this follows:
//
//   * Few tokens: several wides together, streamed once.
//   * Many tokens: tiles of tokens read two wides in place, a block of columns that stays in the cache at a time.
//
// Packed weights are pairs already. Copying those of two panels side by side into a scratch panel was measured:
// 3 to 8 % slower.
#pragma once

#include <cstdint>

#include "linear.hpp"
#include "tile_bf16.hpp"

namespace octavo {
namespace {

// The numbers below were chosen by measurement (tests/bench_linear.cpp); none of them changes a result.

// Tokens of the largest tile of weights that are read several times, kTileWides wide.
template <class D>
constexpr int kPairTileTokens =
    D::Lanes::kRegisters >= 32 ? (D::kRegisters == 1 ? 12 : 8) : D::Lanes::kRegisters >= 16 ? 4 : 1;
// Columns of a block: 24 KiB, as a scratch panel of linear.hpp.
template <class L>
constexpr int64_t kPairColumns = 2 * kScratchColumns<L>;

OCTAVO_INLINE void choose_tokens(const LinearArgs& args, int64_t token, int64_t column, PairTile& tile) {
  tile.pairs = args.x_rounded + token * args.x_rounded_stride + 2 * column;
  tile.token_bytes = args.x_rounded_stride;
}

using PairTileFunction = void (*)(const PairTile&);

// ---- few tokens ----

template <class D, int R>
void linear_pairs_direct(const LinearArgs& args) {
  using L = typename D::Lanes;
  if constexpr (R > 1) {
    if (args.num_tokens < R) return linear_pairs_direct<D, R - 1>(args);
  }
  constexpr int P = fused_wides<L, WeightType::BF16>(R);
  PairTile tile = {};
  tile.columns = args.cols;
  tile.out_stride = args.out_stride;
  choose_tokens(args, 0, 0, tile);
  for (int64_t panel = args.panel_begin; panel < args.panel_end;) {
    const int64_t num_panels = choose_panels<L, P>(args, panel, tile);
    tile.out = args.out + panel * kPanelRows;
    multiply_pairs<D, R, P, StreamPrefetcher<L, Unpack<L, WeightType::BF16>, P>>(tile);
    panel += num_panels;
  }
}

// ---- many tokens ----

// The tile for `num_tokens` in [1, R].
template <class D, int R>
PairTileFunction pair_tile_function(int64_t num_tokens) {
  if constexpr (R > 1) {
    if (num_tokens < R) return pair_tile_function<D, R - 1>(num_tokens);
  }
  return multiply_pairs<D, R, kTileWides, SetPrefetcher>;
}

// As multiply_tokens() of linear.hpp.
template <class D>
void multiply_pair_tokens(const LinearArgs& args, PairTile tile, int64_t column, int64_t begin, int64_t end) {
  constexpr int kMost = kPairTileTokens<D>;
  float* out = tile.out;
  const int64_t num_tiles = (end - begin + kMost - 1) / kMost;
  const int64_t size = (end - begin) / num_tiles, larger = (end - begin) % num_tiles;
  int64_t token = begin;
  for (int64_t i = 0; i < num_tiles; ++i) {
    const int64_t num_tokens = size + (i < larger);
    choose_tokens(args, token, column, tile);
    tile.out = out + token * args.out_stride;
    pair_tile_function<D, kMost>(num_tokens)(tile);
    token += num_tokens;
  }
}

// All tokens of a block times the panels of `packed`.
template <class D>
void multiply_pair_panels(const LinearArgs& args, const PairTile& packed, int64_t token_begin,
                          int64_t token_end) {
  constexpr int64_t most_columns = kPairColumns<typename D::Lanes>;
  const int64_t num_blocks = (args.cols + most_columns - 1) / most_columns;
  const int64_t block = ((args.cols + num_blocks - 1) / num_blocks + kGroup - 1) / kGroup * kGroup;
  const int64_t num_tiles = (token_end - token_begin + kPairTileTokens<D> - 1) / kPairTileTokens<D>;
  Readahead readahead = readahead_of_set(packed, num_tiles * (args.cols / 4) + 1);

  for (int64_t column = 0; column < args.cols; column += block) {
    const int64_t columns_left = args.cols - column;
    PairTile tile = packed;
    tile.columns = columns_left < block ? columns_left : block;
    tile.resume = column > 0;
    if (columns_left > block) tile.bias = nullptr;
    tile.readahead = &readahead;
    OCTAVO_UNROLL for (int p = 0; p < kTileWides; ++p) {
      tile.wides[p] += panel_layout(WeightType::BF16).panel_group * column;
    }
    multiply_pair_tokens<D>(args, tile, column, token_begin, token_end);
  }
}

template <class D>
void linear_pairs_tiled(const LinearArgs& args) {
  const int64_t block = token_block((args.cols + 1) / 2);  // as many bytes
  for (int64_t token = 0; token < args.num_tokens; token += block) {
    const int64_t left = args.num_tokens - token;
    const int64_t token_end = token + (left < block ? left : block);
    for (int64_t panel = args.panel_begin; panel < args.panel_end;) {
      PairTile packed = {};
      packed.out = args.out + panel * kPanelRows;
      packed.out_stride = args.out_stride;
      panel += choose_panels<typename D::Lanes, kTileWides>(args, panel, packed);
      multiply_pair_panels<D>(args, packed, token, token_end);
    }
  }
}

// ---- the entry of the kernel table ----

template <class D>
void linear_bf16(const LinearArgs& args) {
  constexpr int kDirect = kFusedTokens<typename D::Lanes, WeightType::BF16>;
  if (args.num_tokens == 0) return;
  if (args.num_tokens <= kDirect) return linear_pairs_direct<D, kDirect>(args);
  linear_pairs_tiled<D>(args);
}

}  // namespace
}  // namespace octavo
