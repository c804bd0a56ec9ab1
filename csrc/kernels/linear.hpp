// Matrix products y = x W^T (+ bias): float32 activations, weights of any stored type.
//
// Owns: the order of the multiplications and the shapes of the tiles. Does not know how a weight is stored
// (unpack.hpp), nor threads: the caller names a range of panels.
//
// Every output is one chain of fused multiply-adds over the columns in order. Chains of several tokens and
// rows run side by side and never mix, so the result does not depend on the tile that computed it. A *wide*
// is a vector of rows: one panel, or two with AVX-512.
//
//   * Few tokens: weights are unpacked in registers and multiplied at once, several wides together, because
//     one chain alone would wait for its own latency.
//   * Many tokens: two wides are unpacked into a scratch panel that stays in the cache, and tiles of tokens
//     read it. Long rows are cut into blocks of columns; between blocks the chains wait in `out`.
#pragma once

#include <cstdint>

#include "table.hpp"
#include "unpack.hpp"

namespace octavo {
namespace {

// Wides of a tile that reads a scratch panel.
constexpr int kTileWides = 2;
// Tokens of the largest such tile: its chains, two vectors of weights and an activation fill the registers.
template <class L>
constexpr int kTileTokens = L::kRegisters >= 32 ? 8 : L::kRegisters >= 16 ? 6 : 2;
// Columns of a scratch panel: 24 KiB, which the first-level cache keeps.
template <class L>
constexpr int64_t kScratchColumns = 24 * 1024 / (kTileWides * L::kLanes * 4);
// Most tokens for which 16-bit floats are read in place, not through a scratch panel. (F32 always is.)
constexpr int64_t kInPlaceTokens = 16;
// Tokens whose activations stay in the second-level cache while the panels pass.
template <class L>
constexpr int64_t token_block(int64_t cols) {
  constexpr int64_t most = 96, least = 24;  // multiples of kTileTokens
  const int64_t fitting = (int64_t{1} << 18) / cols / least * least;
  return fitting < least ? least : fitting < most ? fitting : most;
}
// How far ahead of a stream of weights memory is asked for.
constexpr int64_t kPrefetchBytes = 2048;

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

// ---- one tile: `R` tokens times `P` wides ----

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

// Asks for the weights that the streams of a tile reach kPrefetchBytes later. Spread over the quads of a step:
// quad j does so for wide j (for float types, the only quad for all), since a burst would fill the buffers of
// the cache and block the loads behind it.
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

using TileFunction = void (*)(const Tile&);

// The tile for `num_tokens` in [1, R].
template <class L, class U, int R, int P>
TileFunction tile_function(int64_t num_tokens) {
  if constexpr (R > 1) {
    if (num_tokens < R) return tile_function<L, U, R - 1, P>(num_tokens);
  }
  return multiply_cached<L, U, R, P>;
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

// The panels that follow those of `packed`, spread over its tiles.
template <class L>
Readahead readahead_of_set(const Tile& packed, int64_t cols, int64_t num_tokens) {
  constexpr int64_t step = UnpackScratch<L, kTileWides>::kStep;
  const uint8_t* begin = packed.wides[0] + packed.set_bytes;
  const int64_t num_lines = packed.set_bytes / 64;
  const int64_t num_steps = (num_tokens + kTileTokens<L> - 1) / kTileTokens<L> * (cols / step) + 1;
  const int64_t interval = num_steps < num_lines ? 1 : num_steps / num_lines;
  return {begin, begin + packed.set_bytes, interval, (num_lines * interval + num_steps - 1) / num_steps};
}

// All tokens of a block times the panels of `packed`, which float types may read in place: without scratch.
template <class L, WeightType type, bool is_in_place>
void multiply_panels(const LinearArgs& args, const Tile& packed, float* scratch, int64_t token_begin,
                     int64_t token_end) {
  const int64_t num_blocks = (args.cols + kScratchColumns<L> - 1) / kScratchColumns<L>;
  const int64_t block = ((args.cols + num_blocks - 1) / num_blocks + kGroup - 1) / kGroup * kGroup;
  Readahead readahead = readahead_of_set<L>(packed, args.cols, token_end - token_begin);

  for (int64_t column = 0; column < args.cols; column += block) {
    const int64_t columns_left = args.cols - column;
    Tile tile = packed;
    tile.columns = columns_left < block ? columns_left : block;
    tile.x += column;
    tile.resume = column > 0;
    if (columns_left > block) tile.bias = nullptr;
    tile.readahead = &readahead;
    if constexpr (is_in_place) {
      OCTAVO_UNROLL for (int p = 0; p < kTileWides; ++p) {
        tile.wides[p] += panel_layout(type).panel_group * column;
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
  const int64_t block = token_block<L>(args.cols);
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

template <class V>
int64_t linear_scratch_floats(int64_t cols) {
  using L = typename V::Wide;
  const int64_t columns = cols < kScratchColumns<L> ? cols : kScratchColumns<L>;
  return columns * kTileWides * L::kLanes + 16;  // to align it to 64 bytes
}

template <class V>
void linear(const LinearArgs& args) {
  using L = typename V::Wide;
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
  }
}

}  // namespace
}  // namespace octavo
