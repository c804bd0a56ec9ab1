// One tile of a product of quantised weights and int8 activations: `R` tokens times `P` wides.
//
// Owns: the innermost loops and the definition of such a product. For each group of 32 columns
//
//   out = fma(float(sum of weight bytes * activation bytes), weight scale * activation scale, out)
//   out = fma(weight offset, activation scale * sum of activation bytes, out)     if the type has an offset
//
// where the sum is an exact integer from which the zero point has been taken. Some types have two scales in a
// group and thus two such sums, and then two offsets. Groups follow one another in one chain, as columns do in tile.hpp.
#pragma once

#include <cstdint>

#include "../simd/dot.hpp"
#include "quantised_row.hpp"
#include "tile.hpp"
#include "unpack_bytes.hpp"

namespace octavo {
namespace {

struct ByteTile : Tile {
  const uint8_t* bytes;          // of the first token and column
  const QuantisedGroup* groups;  // of the first token, at that column
  int64_t token_bytes;           // from one token to the next, in both
};

template <class D, class U, int R, int P>
struct ByteSums {
  using L = typename D::Lanes;
  using Ints = typename L::Ints;
  using Floats = typename L::Floats;
  static constexpr int kQuadsOfPart = 8 / U::kParts;
  typename D::template Sum<U::kMost, U::kIsSigned> sum[R][P];

  template <int part>
  OCTAVO_INLINE void begin(const QuantisedGroup* groups, int64_t token_bytes) {
    OCTAVO_UNROLL for (int r = 0; r < R; ++r) {
      Ints start = L::set1_int(0);
      if constexpr (U::kZeroPointBits > 0) {
        const QuantisedGroup* group = of_token(groups, r, token_bytes);
        start = L::set1_int(group->minus_sum);
        if constexpr (U::kParts == 2) {
          const Ints upper = L::set1_int(group->minus_upper_sum);
          start = part == 1 ? upper : L::sub(start, upper);
        }
        start = L::template shift_left<U::kZeroPointBits>(start);
      }
      OCTAVO_UNROLL for (int p = 0; p < P; ++p) sum[r][p].begin(start);
    }
  }

  template <int h, int j>
  OCTAVO_INLINE void add(const uint8_t* bytes, int64_t token_bytes, const typename U::Step (&steps)[P]) {
    constexpr int quad = 4 * h + j;
    Ints weights[P];
    OCTAVO_UNROLL for (int p = 0; p < P; ++p) weights[p] = U::template bytes<h>(steps[p], j);
    OCTAVO_UNROLL for (int r = 0; r < R; ++r) {
      int32_t four;
      __builtin_memcpy(&four, bytes + r * token_bytes + 4 * quad, sizeof four);
      const Ints activations = L::set1_int(four);
      OCTAVO_UNROLL for (int p = 0; p < P; ++p) {
        sum[r][p].template add<quad % kQuadsOfPart>(weights[p], activations);
      }
    }
  }
  template <int h>
  OCTAVO_INLINE void add_half(const uint8_t* bytes, int64_t token_bytes,
                              const typename U::Step (&steps)[P]) {
    add<h, 0>(bytes, token_bytes, steps);
    add<h, 1>(bytes, token_bytes, steps);
    add<h, 2>(bytes, token_bytes, steps);
    add<h, 3>(bytes, token_bytes, steps);
  }

  template <int part>
  OCTAVO_INLINE void end(Chains<L, R, P>& chains, const QuantisedGroup* groups, int64_t token_bytes,
                         const typename U::Step (&steps)[P]) {
    OCTAVO_UNROLL for (int p = 0; p < P; ++p) {
      const Floats scale = U::template scale<part>(steps[p]);
      OCTAVO_UNROLL for (int r = 0; r < R; ++r) {
        const Floats activation_scale = L::set1(of_token(groups, r, token_bytes)->scale);
        const Floats total = L::to_floats(sum[r][p].end());
        chains.sum[r][p] = L::fma(total, L::mul(scale, activation_scale), chains.sum[r][p]);
      }
    }
  }

  template <int part>
  static OCTAVO_INLINE void add_offsets(Chains<L, R, P>& chains, const QuantisedGroup* groups,
                                        int64_t token_bytes, const typename U::Step (&steps)[P]) {
    OCTAVO_UNROLL for (int p = 0; p < P; ++p) {
      const Floats offset = U::template offset<part>(steps[p]);
      OCTAVO_UNROLL for (int r = 0; r < R; ++r) {
        const float sum = scaled_sum<part>(*of_token(groups, r, token_bytes));
        chains.sum[r][p] = L::fma(offset, L::set1(sum), chains.sum[r][p]);
      }
    }
  }
  template <int part>
  static OCTAVO_INLINE float scaled_sum(const QuantisedGroup& group) {
    if constexpr (U::kParts == 1) return group.scaled_sum;
    const int32_t minus_sum = part == 1 ? group.minus_upper_sum : group.minus_sum - group.minus_upper_sum;
    return group.scale * static_cast<float>(-minus_sum);
  }

  static OCTAVO_INLINE const QuantisedGroup* of_token(const QuantisedGroup* groups, int r,
                                                      int64_t token_bytes) {
    return reinterpret_cast<const QuantisedGroup*>(reinterpret_cast<const uint8_t*>(groups) +
                                                   r * token_bytes);
  }
};

template <class D, class U, int R, int P, class Prefetcher>
void multiply_bytes(const ByteTile& tile) {
  using L = typename D::Lanes;
  using Sums = ByteSums<D, U, R, P>;
  Chains<L, R, P> chains;
  chains.begin(tile);
  Prefetcher prefetcher(tile);
  const int64_t token_bytes = tile.token_bytes;
  const uint8_t* bytes = tile.bytes;
  const QuantisedGroup* groups = tile.groups;
  for (int64_t column = 0; column < tile.columns; column += kGroup, bytes += kGroup, ++groups) {
    typename U::Step steps[P];
    OCTAVO_UNROLL for (int p = 0; p < P; ++p) {
      steps[p] = U::begin(tile.wides[p], tile.stride, column);
    }
    prefetcher.begin_group(steps);
    Sums sums;
    sums.template begin<0>(groups, token_bytes);
    sums.template add_half<0>(bytes, token_bytes, steps);
    if constexpr (U::kParts == 2) {
      sums.template end<0>(chains, groups, token_bytes, steps);
      sums.template begin<1>(groups, token_bytes);
    }
    sums.template add_half<1>(bytes, token_bytes, steps);
    sums.template end<U::kParts - 1>(chains, groups, token_bytes, steps);
    if constexpr (U::kHasOffset) {
      Sums::template add_offsets<0>(chains, groups, token_bytes, steps);
      if constexpr (U::kParts == 2) Sums::template add_offsets<1>(chains, groups, token_bytes, steps);
    }
  }
  prefetcher.end();
  chains.end(tile);
}

// ---- asking for memory ----

// For weights that are used by this tile alone: what its streams reach kPrefetchBytes later.
template <class L, class U, int P>
struct ByteStreamPrefetcher {
  const Tile& tile;

  OCTAVO_INLINE explicit ByteStreamPrefetcher(const Tile& of) : tile(of) {}
  OCTAVO_INLINE void begin_group(const typename U::Step (&steps)[P]) const {
    constexpr int64_t kLines = (U::kStepBytes + 63) / 64;
    int64_t offset = steps[0].weights - tile.wides[0] + kPrefetchBytes;
    if (offset >= tile.panel_bytes) offset += tile.set_bytes - tile.panel_bytes;
    OCTAVO_UNROLL for (int p = 0; p < P; ++p) {
      const uint8_t* from = tile.wides[p] + offset;
      OCTAVO_UNROLL for (int64_t line = 0; line < kLines; ++line) {
        __builtin_prefetch(from + 64 * line);
        if (L::kPanels == 2) __builtin_prefetch(from + tile.stride + 64 * line);
      }
    }
  }
  OCTAVO_INLINE void end() const {}
};

// For weights that are used by several tiles: the panels that come after these.
struct ByteSetPrefetcher : SetPrefetcher {
  OCTAVO_INLINE explicit ByteSetPrefetcher(const Tile& tile) : SetPrefetcher(tile) {}
  template <class Steps>
  OCTAVO_INLINE void begin_group(const Steps&) {
    begin_step(nullptr);
  }
};

}  // namespace
}  // namespace octavo
