// Matrix products y = x W^T (+ bias) of int8 activations (quantised_row.hpp) and quantised weights.
//
// Owns: which tiles such a product is made of. What a tile computes is tile_int8.hpp; the result does not
// depend on the tile, as in linear.hpp, which this follows:
//
//   * Few tokens: bytes of weights are put together in registers and multiplied at once.
//   * Many tokens: they are put together once, in a scratch panel that stays in the cache.
#pragma once

#include <cstdint>

#include "linear.hpp"
#include "tile_int8.hpp"

namespace octavo {
namespace {

// The numbers below were chosen by measurement (tests/bench_linear.cpp); none of them changes a result.

// Most tokens for which bytes are put together in registers, where there are enough of those.
constexpr int64_t kDirectTokens = 8;
// Wides of a tile that reads a scratch panel, and tokens of the largest such tile.
template <class D>
constexpr int kByteTileWides = D::Lanes::kLanes == 16 ? 2 : 1;
template <class D>
constexpr int kByteTileTokens = D::Lanes::kRegisters < 16 ? 2 : 6;

OCTAVO_INLINE void choose_tokens(const LinearArgs& args, int64_t token, int64_t column, ByteTile& tile) {
  const uint8_t* row = args.x_int8 + token * args.x_int8_stride;
  tile.bytes = row + column;
  tile.groups = quantised_groups(row, args.cols) + column / kGroup;
  tile.token_bytes = args.x_int8_stride;
}

// ---- few tokens ----

using ByteTileFunction = void (*)(const ByteTile&);

// The tile of `num_tokens` in [1, R] and P wides that are read from memory.
template <class D, class U, int R, int P>
ByteTileFunction direct_tile_function(int64_t num_tokens) {
  if constexpr (R > 1) {
    if (num_tokens < R) return direct_tile_function<D, U, R - 1, P>(num_tokens);
  }
  return multiply_bytes<D, U, R, P, ByteStreamPrefetcher<typename D::Lanes, U, P>>;
}

template <class D, WeightType type, int R, int P>
void linear_bytes_direct(const LinearArgs& args) {
  using L = typename D::Lanes;
  using U = UnpackBytes<D, type>;
  const int64_t num_tiles = (args.num_tokens + R - 1) / R;
  ByteTile tile = {};
  tile.columns = args.cols;
  tile.out_stride = args.out_stride;
  for (int64_t panel = args.panel_begin; panel < args.panel_end;) {
    const int64_t num_panels = choose_panels<L, P>(args, panel, tile);
    int64_t token = 0;
    for (int64_t i = 1; i <= num_tiles; ++i) {
      const int64_t end = args.num_tokens * i / num_tiles;
      choose_tokens(args, token, 0, tile);
      tile.out = args.out + token * args.out_stride + panel * kPanelRows;
      direct_tile_function<D, U, R, P>(end - token)(tile);
      token = end;
    }
    panel += num_panels;
  }
}

// ---- many tokens ----

template <class D, WeightType type>
using ScratchOf = ScratchBytes<D, TraitsOf<type, D::kIsSigned>, kByteTileWides<D>>;

template <class D, WeightType type>
void unpack_bytes(const Tile& tile, int64_t begin, int64_t end, uint8_t* scratch) {
  using L = typename D::Lanes;
  using U = UnpackBytes<D, type>;
  using S = ScratchOf<D, type>;
  for (int64_t column = begin; column < end; column += kGroup, scratch += S::kStepBytes) {
    OCTAVO_UNROLL for (int p = 0; p < kByteTileWides<D>; ++p) {
      const typename U::Step step = U::begin(tile.wides[p], tile.stride, column);
      float* number = reinterpret_cast<float*>(scratch) + p * L::kLanes;
      constexpr int64_t kRow = S::kRowBytes / 4;
      L::store(number, U::template scale<0>(step));
      if constexpr (U::kParts == 2) L::store(number + kRow, U::template scale<1>(step));
      if constexpr (U::kHasOffset) L::store(number + U::kParts * kRow, U::template offset<0>(step));
      if constexpr (U::kHasOffset && U::kParts == 2) L::store(number + 3 * kRow, U::template offset<1>(step));
      int32_t* quad = reinterpret_cast<int32_t*>(number) + S::kNumbers * kRow;
      OCTAVO_UNROLL for (int j = 0; j < 4; ++j) {
        L::store_ints(quad + j * kRow, U::template bytes<0>(step, j));
        L::store_ints(quad + (4 + j) * kRow, U::template bytes<1>(step, j));
      }
    }
  }
}

// The tile for `num_tokens` in [1, R].
template <class D, class S, int R>
ByteTileFunction byte_tile_function(int64_t num_tokens) {
  if constexpr (R > 1) {
    if (num_tokens < R) return byte_tile_function<D, S, R - 1>(num_tokens);
  }
  return multiply_bytes<D, S, R, kByteTileWides<D>, ByteSetPrefetcher>;
}

// As multiply_tokens() of linear.hpp.
template <class D, class S>
void multiply_byte_tokens(const LinearArgs& args, ByteTile tile, int64_t column, int64_t begin, int64_t end) {
  constexpr int kMost = kByteTileTokens<D>;
  float* out = tile.out;
  const int64_t num_tiles = (end - begin + kMost - 1) / kMost;
  const int64_t size = (end - begin) / num_tiles, larger = (end - begin) % num_tiles;
  int64_t token = begin;
  for (int64_t i = 0; i < num_tiles; ++i) {
    const int64_t num_tokens = size + (i < larger);
    choose_tokens(args, token, column, tile);
    tile.out = out + token * args.out_stride;
    byte_tile_function<D, S, kMost>(num_tokens)(tile);
    token += num_tokens;
  }
}

// All tokens of a block times the panels of `packed`.
template <class D, WeightType type>
void multiply_byte_panels(const LinearArgs& args, const ByteTile& packed, uint8_t* scratch,
                          int64_t token_begin, int64_t token_end) {
  using L = typename D::Lanes;
  using S = ScratchOf<D, type>;
  constexpr int64_t most_columns = kByteScratchBytes / S::kStepBytes * kGroup;
  const int64_t num_blocks = (args.cols + most_columns - 1) / most_columns;
  const int64_t block = ((args.cols + num_blocks - 1) / num_blocks + kGroup - 1) / kGroup * kGroup;
  const int64_t num_tiles = (token_end - token_begin + kByteTileTokens<D> - 1) / kByteTileTokens<D>;
  Readahead readahead = readahead_of_set(packed, num_tiles * (args.cols / kGroup));

  for (int64_t column = 0; column < args.cols; column += block) {
    const int64_t columns_left = args.cols - column;
    ByteTile tile = packed;
    tile.columns = columns_left < block ? columns_left : block;
    tile.resume = column > 0;
    if (columns_left > block) tile.bias = nullptr;
    tile.readahead = &readahead;
    unpack_bytes<D, type>(packed, column, column + tile.columns, scratch);
    OCTAVO_UNROLL for (int p = 0; p < kByteTileWides<D>; ++p) {
      tile.wides[p] = scratch + p * L::kLanes * 4;
    }
    multiply_byte_tokens<D, S>(args, tile, column, token_begin, token_end);
  }
}

template <class D, WeightType type>
void linear_bytes_tiled(const LinearArgs& args) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(args.scratch);
  uint8_t* scratch = reinterpret_cast<uint8_t*>((address + 63) / 64 * 64);
  const int64_t block = token_block(args.cols / 2);
  for (int64_t token = 0; token < args.num_tokens; token += block) {
    const int64_t left = args.num_tokens - token;
    const int64_t token_end = token + (left < block ? left : block);
    for (int64_t panel = args.panel_begin; panel < args.panel_end;) {
      ByteTile packed = {};
      packed.out = args.out + panel * kPanelRows;
      packed.out_stride = args.out_stride;
      panel += choose_panels<typename D::Lanes, kByteTileWides<D>>(args, panel, packed);
      multiply_byte_panels<D, type>(args, packed, scratch, token, token_end);
    }
  }
}

template <class D, WeightType type>
void linear_bytes_of_type(const LinearArgs& args) {
  const int64_t num_tokens = args.num_tokens;
  if constexpr (D::Lanes::kRegisters < 16) {
    if (num_tokens == 1) return linear_bytes_direct<D, type, 1, 1>(args);
  } else if constexpr (D::Lanes::kRegisters < 32) {
    if (num_tokens == 1) return linear_bytes_direct<D, type, 1, 4>(args);
    if (num_tokens == 2) return linear_bytes_direct<D, type, 2, 2>(args);
    if (num_tokens <= kDirectTokens) return linear_bytes_direct<D, type, 6, 1>(args);
  } else {
    if (num_tokens <= 2) return linear_bytes_direct<D, type, 2, 4>(args);
    if (num_tokens <= 6) return linear_bytes_direct<D, type, 6, 2>(args);
    if (num_tokens <= 512) return linear_bytes_direct<D, type, 8, 1>(args);
  }
  linear_bytes_tiled<D, type>(args);
}

// ---- the entry of the kernel table ----

template <class D>
void linear_int8(const LinearArgs& args) {
  if (args.num_tokens == 0) return;
  switch (args.type) {
    case WeightType::Q4_0: return linear_bytes_of_type<D, WeightType::Q4_0>(args);
    case WeightType::Q4_1: return linear_bytes_of_type<D, WeightType::Q4_1>(args);
    case WeightType::Q5_0: return linear_bytes_of_type<D, WeightType::Q5_0>(args);
    case WeightType::Q5_1: return linear_bytes_of_type<D, WeightType::Q5_1>(args);
    case WeightType::Q8_0: return linear_bytes_of_type<D, WeightType::Q8_0>(args);
    case WeightType::Q4_K: return linear_bytes_of_type<D, WeightType::Q4_K>(args);
    case WeightType::Q5_K: return linear_bytes_of_type<D, WeightType::Q5_K>(args);
    case WeightType::Q6_K: return linear_bytes_of_type<D, WeightType::Q6_K>(args);
    case WeightType::Q2_K: return linear_bytes_of_type<D, WeightType::Q2_K>(args);
    case WeightType::Q3_K: return linear_bytes_of_type<D, WeightType::Q3_K>(args);
    case WeightType::IQ4_NL: return linear_bytes_of_type<D, WeightType::IQ4_NL>(args);
    case WeightType::IQ4_XS: return linear_bytes_of_type<D, WeightType::IQ4_XS>(args);
    case WeightType::MXFP4: return linear_bytes_of_type<D, WeightType::MXFP4>(args);
    case WeightType::INT4_32: return linear_bytes_of_type<D, WeightType::INT4_32>(args);
    case WeightType::INT4_128: return linear_bytes_of_type<D, WeightType::INT4_128>(args);
    case WeightType::INT8_32: return linear_bytes_of_type<D, WeightType::INT8_32>(args);
    case WeightType::INT8_128: return linear_bytes_of_type<D, WeightType::INT8_128>(args);
    case WeightType::INT8_K: return linear_bytes_of_type<D, WeightType::INT8_K>(args);
    case WeightType::FP4_16: return linear_bytes_of_type<D, WeightType::FP4_16>(args);
    case WeightType::F32: case WeightType::F16: case WeightType::BF16: case WeightType::FP8_32:
    case WeightType::FP8_128: case WeightType::NF4_32: return;  // are never asked for
  }
}

}  // namespace
}  // namespace octavo
