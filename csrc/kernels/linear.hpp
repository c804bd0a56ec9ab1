// Matrix products y = x W^T (+ bias): float32 activations, weights of any stored type.
//
// Owns: which tiles a product is made of. Does not know how a tile is computed (tile.hpp), how a weight is
// stored (unpack.hpp), nor threads: the caller names a range of panels.
//
// Every output is one chain of fused multiply-adds over the columns in order. Chains of several tokens and
// rows run side by side and never mix, so the result does not depend on the tile that computed it.
//
//   * Few tokens: weights are unpacked in registers and multiplied at once, several wides together, because
//     one chain alone would wait for its own latency.
//   * Many tokens: two wides are unpacked into a scratch panel that stays in the cache, and tiles of tokens
//     read it. Long rows are cut into blocks of columns; between blocks the chains wait in `out`.
//   * Weights stored as floats are read in place instead: F32 always, the others for a moderate number of
//     tokens.
#pragma once

#include <cstdint>

#include "table.hpp"
#include "tile.hpp"

namespace octavo {
namespace {

// The numbers below were chosen by measurement (tests/bench_linear.cpp); none of them changes a result.

// Wides of a tile that reads a scratch panel.
constexpr int kTileWides = 2;
// Tokens of the largest such tile: its chains, two vectors of weights and an activation fill the registers.
template <class L>
constexpr int kTileTokens = L::kRegisters >= 32 ? 8 : L::kRegisters >= 16 ? 6 : 2;
// Bytes of a scratch panel of linear_int8.hpp.
constexpr int64_t kByteScratchBytes = 32 * 1024;
// Columns of a scratch panel: 24 KiB, which the first-level cache keeps.
template <class L>
constexpr int64_t kScratchColumns = 24 * 1024 / (kTileWides * L::kLanes * 4);
// Most tokens for which 16-bit floats are read in place, not through a scratch panel. (F32 always is.)
constexpr int64_t kInPlaceTokens = 16;

// Tokens whose activations stay in the second-level cache while the panels pass.
OCTAVO_INLINE int64_t token_block(int64_t cols) {
  constexpr int64_t most = 96, least = 24;  // multiples of kTileTokens
  const int64_t fitting = (int64_t{1} << 18) / cols / least * least;
  return fitting < least ? least : fitting < most ? fitting : most;
}

// Most tokens for which weights are unpacked in registers.
template <class L, WeightType type>
constexpr int kFusedTokens = L::kRegisters < 16 ? 1 : panel_layout(type).block == 1 ? kTileTokens<L> : 4;

// Wides that are multiplied together then: as many as leave room for their scales and offsets.
template <class L, WeightType type>
constexpr int fused_wides(int num_tokens) {
  constexpr bool has_offset = panel_layout(type).block > 1 && type != WeightType::Q8_0;
  if (L::kRegisters < 16) return 1;
  if (L::kRegisters >= 32) return num_tokens <= 4 ? 4 : 2;
  return num_tokens == 1 ? 4 - has_offset : num_tokens == 2 ? 3 - has_offset : 2;
}

// ---- which panels, which tokens ----

// Point the tile to the (at most P) wides from `panel` on and return how many panels they cover. Where
// fewer are left, the last one is repeated and its results are not stored.
template <class L, int P>
OCTAVO_INLINE int64_t choose_panels(const LinearArgs& args, int64_t panel, Tile& tile) {
  const int64_t left = args.panel_end - panel;
  const bool is_half_wide = left < L::kPanels;
  const int64_t wides_left = is_half_wide ? 1 : left / L::kPanels;
  const int64_t num_wides = wides_left < P ? wides_left : P;
  const int64_t num_panels = is_half_wide ? left : num_wides * L::kPanels;
  const int64_t rows_left = args.rows - panel * kPanelRows;

  OCTAVO_UNROLL for (int p = 0; p < P; ++p) {
    const int64_t wide = p < num_wides ? p : num_wides - 1;
    tile.wides[p] = args.panels + (panel + wide * L::kPanels) * args.panel_bytes;
  }
  tile.stride = is_half_wide ? 0 : args.panel_bytes;
  tile.rows = rows_left < num_panels * kPanelRows ? rows_left : num_panels * kPanelRows;
  tile.panel_bytes = args.panel_bytes;
  tile.set_bytes = num_panels * args.panel_bytes;
  tile.bias = args.bias ? args.bias + panel * kPanelRows : nullptr;
  return num_panels;
}

using TileFunction = void (*)(const Tile&);

// The tile for `num_tokens` in [1, R].
template <class L, class U, int R, int P>
TileFunction tile_function(int64_t num_tokens) {
  if constexpr (R > 1) {
    if (num_tokens < R) return tile_function<L, U, R - 1, P>(num_tokens);
  }
  return multiply_cached<L, U, R, P>;
}

// Cut tokens [begin, end) into tiles of nearly equal size, at most kTileTokens: 32 into 6 6 5 5 5 5, since
// a tile of 2 would take almost as long as one of 6. `tile.out` is column 0 of the tile's panels.
template <class L, class U>
void multiply_tokens(const LinearArgs& args, Tile tile, int64_t begin, int64_t end) {
  constexpr int kMost = kTileTokens<L>;
  const float* x = tile.x;
  float* out = tile.out;
  const int64_t num_tiles = (end - begin + kMost - 1) / kMost;
  const int64_t size = (end - begin) / num_tiles, larger = (end - begin) % num_tiles;
  int64_t token = begin;
  for (int64_t i = 0; i < num_tiles; ++i) {
    const int64_t num_tokens = size + (i < larger);
    tile.x = x + token * args.x_stride;
    tile.out = out + token * args.out_stride;
    tile_function<L, U, kMost, kTileWides>(num_tokens)(tile);
    token += num_tokens;
  }
}

// ---- few tokens ----

template <class L, WeightType type, int R>
void linear_fused(const LinearArgs& args) {
  using U = Unpack<L, type>;
  if constexpr (R > 1) {
    if (args.num_tokens < R) return linear_fused<L, type, R - 1>(args);
  }
  constexpr int P = fused_wides<L, type>(R);
  Tile tile = {};
  tile.x = args.x;
  tile.x_stride = args.x_stride;
  tile.columns = args.cols;
  tile.out_stride = args.out_stride;
  for (int64_t panel = args.panel_begin; panel < args.panel_end;) {
    const int64_t num_panels = choose_panels<L, P>(args, panel, tile);
    tile.out = args.out + panel * kPanelRows;
    multiply_streamed<L, U, R, P>(tile);
    panel += num_panels;
  }
}

// ---- many tokens ----

// Unpack columns [begin, end) of the tile's two wides to [column][kTileWides][lanes] floats.
template <class L, class U, int h, int i>
OCTAVO_INLINE void store_column(float* scratch, const typename U::Step& step, const typename U::Quad& quad) {
  L::store(scratch + i * kTileWides * L::kLanes, U::template value<h, i>(step, quad));
}

template <class L, class U, int h>
OCTAVO_INLINE void unpack_half(float* scratch, const typename U::Step& step) {
  for (int j = 0; j < U::kQuads; ++j) {
    const typename U::Quad quad = U::template quad<h>(step, j);
    store_column<L, U, h, 0>(scratch, step, quad);
    store_column<L, U, h, 1>(scratch, step, quad);
    store_column<L, U, h, 2>(scratch, step, quad);
    store_column<L, U, h, 3>(scratch, step, quad);
    scratch += 4 * kTileWides * L::kLanes;
  }
}

template <class L, class U>
void unpack_panels(const Tile& tile, int64_t begin, int64_t end, float* scratch) {
  constexpr int64_t kColumn = kTileWides * L::kLanes;
  OCTAVO_UNROLL for (int p = 0; p < kTileWides; ++p) {
    const uint8_t* panel = tile.wides[p];
    float* to = scratch + p * L::kLanes;
    int64_t column = begin;
    for (; column + U::kStep <= end; column += U::kStep) {
      const typename U::Step step = U::begin(panel, tile.stride, column);
      unpack_half<L, U, 0>(to, step);
      if constexpr (U::kHalves == 2) unpack_half<L, U, 1>(to + 16 * kColumn, step);
      to += U::kStep * kColumn;
    }
    if constexpr (U::kHalves == 1) {
      for (; column < end; ++column, to += kColumn) L::store(to, U::column(panel, tile.stride, column));
    }
  }
}

// The panels that follow those of `packed`, spread over the steps of its tiles.
OCTAVO_INLINE Readahead readahead_of_set(const Tile& packed, int64_t num_steps) {
  const uint8_t* begin = packed.wides[0] + packed.set_bytes;
  const int64_t num_lines = packed.set_bytes / 64;
  const int64_t interval = num_steps < num_lines ? 1 : num_steps / num_lines;
  return {begin, begin + packed.set_bytes, interval, (num_lines * interval + num_steps - 1) / num_steps};
}

// All tokens of a block times the panels of `packed`, which float types may read in place: without scratch.
template <class L, WeightType type, bool is_in_place>
void multiply_panels(const LinearArgs& args, const Tile& packed, float* scratch, int64_t token_begin,
                     int64_t token_end) {
  const int64_t num_blocks = (args.cols + kScratchColumns<L> - 1) / kScratchColumns<L>;
  const int64_t block = ((args.cols + num_blocks - 1) / num_blocks + kGroup - 1) / kGroup * kGroup;
  const int64_t num_tiles = (token_end - token_begin + kTileTokens<L> - 1) / kTileTokens<L>;
  constexpr int64_t step = UnpackScratch<L, kTileWides>::kStep;
  Readahead readahead = readahead_of_set(packed, num_tiles * (args.cols / step) + 1);

  for (int64_t column = 0; column < args.cols; column += block) {
    const int64_t columns_left = args.cols - column;
    Tile tile = packed;
    tile.columns = columns_left < block ? columns_left : block;
    tile.x += column;
    tile.resume = column > 0;
    if (columns_left > block) tile.bias = nullptr;
    tile.readahead = &readahead;
    if constexpr (is_in_place) {
      constexpr int64_t column_bytes = panel_layout(type).panel_group;
      OCTAVO_UNROLL for (int p = 0; p < kTileWides; ++p) {
        tile.wides[p] += column_bytes * column;
      }
      multiply_tokens<L, Unpack<L, type>>(args, tile, token_begin, token_end);
    } else {
      unpack_panels<L, Unpack<L, type>>(packed, column, column + tile.columns, scratch);
      OCTAVO_UNROLL for (int p = 0; p < kTileWides; ++p) {
        tile.wides[p] = reinterpret_cast<const uint8_t*>(scratch + p * L::kLanes);
      }
      multiply_tokens<L, UnpackScratch<L, kTileWides>>(args, tile, token_begin, token_end);
    }
  }
}

template <class L, WeightType type, bool is_in_place>
void linear_tiled(const LinearArgs& args) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(args.scratch);
  float* scratch = reinterpret_cast<float*>((address + 63) / 64 * 64);
  const int64_t block = token_block(args.cols);
  for (int64_t token = 0; token < args.num_tokens; token += block) {
    const int64_t left = args.num_tokens - token;
    const int64_t token_end = token + (left < block ? left : block);
    for (int64_t panel = args.panel_begin; panel < args.panel_end;) {
      Tile packed = {};
      packed.x = args.x;
      packed.x_stride = args.x_stride;
      packed.out = args.out + panel * kPanelRows;
      packed.out_stride = args.out_stride;
      panel += choose_panels<L, kTileWides>(args, panel, packed);
      multiply_panels<L, type, is_in_place>(args, packed, scratch, token, token_end);
    }
  }
}

template <class L, WeightType type>
void linear_of_type(const LinearArgs& args) {
  constexpr bool is_float = panel_layout(type).block == 1;
  constexpr int fused_tokens = kFusedTokens<L, type>;
  if (args.num_tokens <= fused_tokens) return linear_fused<L, type, fused_tokens>(args);
  if constexpr (is_float) {
    const bool is_in_place = type == WeightType::F32 || args.num_tokens <= kInPlaceTokens;
    if (is_in_place) return linear_tiled<L, type, true>(args);
  }
  if constexpr (type != WeightType::F32) linear_tiled<L, type, false>(args);
}

// ---- the entries of the kernel table ----

// Enough for linear_int8 as well.
template <class V>
int64_t linear_scratch_floats(int64_t cols) {
  using L = typename V::Wide;
  const int64_t columns = cols < kScratchColumns<L> ? cols : kScratchColumns<L>;
  const int64_t floats = columns * kTileWides * L::kLanes;
  const int64_t float_bytes = floats * 4;
  return (float_bytes < kByteScratchBytes ? kByteScratchBytes / 4 : floats) + 16;  // to align it to 64 bytes
}

template <class V>
void linear(const LinearArgs& args) {
  using L = typename V::Wide;
  if (args.num_tokens == 0) return;
  switch (args.type) {
    case WeightType::F32: return linear_of_type<L, WeightType::F32>(args);
    case WeightType::F16: return linear_of_type<L, WeightType::F16>(args);
    case WeightType::BF16: return linear_of_type<L, WeightType::BF16>(args);
    case WeightType::Q4_0: return linear_of_type<L, WeightType::Q4_0>(args);
    case WeightType::Q4_1: return linear_of_type<L, WeightType::Q4_1>(args);
    case WeightType::Q5_0: return linear_of_type<L, WeightType::Q5_0>(args);
    case WeightType::Q5_1: return linear_of_type<L, WeightType::Q5_1>(args);
    case WeightType::Q8_0: return linear_of_type<L, WeightType::Q8_0>(args);
    case WeightType::Q4_K: return linear_of_type<L, WeightType::Q4_K>(args);
    case WeightType::Q5_K: return linear_of_type<L, WeightType::Q5_K>(args);
    case WeightType::Q6_K: return linear_of_type<L, WeightType::Q6_K>(args);
    case WeightType::Q2_K: return linear_of_type<L, WeightType::Q2_K>(args);
    case WeightType::Q3_K: return linear_of_type<L, WeightType::Q3_K>(args);
    case WeightType::IQ4_NL: return linear_of_type<L, WeightType::IQ4_NL>(args);
    case WeightType::IQ4_XS: return linear_of_type<L, WeightType::IQ4_XS>(args);
    case WeightType::MXFP4: return linear_of_type<L, WeightType::MXFP4>(args);
    case WeightType::INT4_32: return linear_of_type<L, WeightType::INT4_32>(args);
    case WeightType::INT4_128: return linear_of_type<L, WeightType::INT4_128>(args);
    case WeightType::INT8_32: return linear_of_type<L, WeightType::INT8_32>(args);
    case WeightType::INT8_128: return linear_of_type<L, WeightType::INT8_128>(args);
    case WeightType::FP8_32: return linear_of_type<L, WeightType::FP8_32>(args);
    case WeightType::FP8_128: return linear_of_type<L, WeightType::FP8_128>(args);
    case WeightType::INT8_K: return linear_of_type<L, WeightType::INT8_K>(args);
    case WeightType::FP4_16: return linear_of_type<L, WeightType::FP4_16>(args);
    case WeightType::NF4_32: return linear_of_type<L, WeightType::NF4_32>(args);
  }
}

}  // namespace
}  // namespace octavo
