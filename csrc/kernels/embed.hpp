// Looking up rows of a packed matrix: the embedding table, which may also be the output head.
//
// Owns: nothing but the gather. A row shares its panel with seven others, so all eight are unpacked as for a
// product and one lane is kept; that is a microsecond per token.
#pragma once

#include <cstdint>

#include "table.hpp"
#include "unpack.hpp"

namespace octavo {
namespace {

template <class V, class U, int h, int i>
OCTAVO_INLINE float lane_of_column(const typename U::Step& step, const typename U::Quad& quad, int64_t lane) {
  float rows[V::kLanes];
  V::store(rows, U::template value<h, i>(step, quad));
  return rows[lane];
}

template <class V, class U, int h>
OCTAVO_INLINE void embed_half(const typename U::Step& step, int64_t lane, float scale, float* out) {
  for (int j = 0; j < U::kQuads; ++j) {
    const typename U::Quad quad = U::template quad<h>(step, j);
    out[4 * j] = scale * lane_of_column<V, U, h, 0>(step, quad, lane);
    out[4 * j + 1] = scale * lane_of_column<V, U, h, 1>(step, quad, lane);
    out[4 * j + 2] = scale * lane_of_column<V, U, h, 2>(step, quad, lane);
    out[4 * j + 3] = scale * lane_of_column<V, U, h, 3>(step, quad, lane);
  }
}

template <class V, class U>
void embed_row(const uint8_t* panel, int64_t lane, int64_t cols, float scale, float* out) {
  int64_t column = 0;
  for (; column + U::kStep <= cols; column += U::kStep) {
    const typename U::Step step = U::begin(panel, 0, column);
    embed_half<V, U, 0>(step, lane, scale, out + column);
    if constexpr (U::kHalves == 2) embed_half<V, U, 1>(step, lane, scale, out + column + 16);
  }
  if constexpr (U::kHalves == 1) {
    for (; column < cols; ++column) {
      float rows[V::kLanes];
      V::store(rows, U::column(panel, 0, column));
      out[column] = scale * rows[lane];
    }
  }
}

template <class V, WeightType type>
void embed_of_type(const EmbedArgs& args) {
  for (int64_t t = args.begin; t < args.end; ++t) {
    const int64_t row = args.ids[t];
    const uint8_t* panel = args.panels + row / kPanelRows * args.panel_bytes;
    embed_row<V, Unpack<V, type>>(panel, row % kPanelRows, args.cols, args.scale,
                                  args.out + t * args.out_stride);
  }
}

// The entry of the kernel table. V has eight lanes: one panel.
template <class V>
void embed(const EmbedArgs& args) {
  switch (args.type) {
    case WeightType::F32: return embed_of_type<V, WeightType::F32>(args);
    case WeightType::F16: return embed_of_type<V, WeightType::F16>(args);
    case WeightType::BF16: return embed_of_type<V, WeightType::BF16>(args);
    case WeightType::Q4_0: return embed_of_type<V, WeightType::Q4_0>(args);
    case WeightType::Q4_1: return embed_of_type<V, WeightType::Q4_1>(args);
    case WeightType::Q5_0: return embed_of_type<V, WeightType::Q5_0>(args);
    case WeightType::Q5_1: return embed_of_type<V, WeightType::Q5_1>(args);
    case WeightType::Q8_0: return embed_of_type<V, WeightType::Q8_0>(args);
    case WeightType::Q4_K: return embed_of_type<V, WeightType::Q4_K>(args);
    case WeightType::Q5_K: return embed_of_type<V, WeightType::Q5_K>(args);
    case WeightType::Q6_K: return embed_of_type<V, WeightType::Q6_K>(args);
    case WeightType::Q2_K: return embed_of_type<V, WeightType::Q2_K>(args);
    case WeightType::Q3_K: return embed_of_type<V, WeightType::Q3_K>(args);
    case WeightType::IQ4_NL: return embed_of_type<V, WeightType::IQ4_NL>(args);
    case WeightType::IQ4_XS: return embed_of_type<V, WeightType::IQ4_XS>(args);
    case WeightType::MXFP4: return embed_of_type<V, WeightType::MXFP4>(args);
    case WeightType::INT4_32: return embed_of_type<V, WeightType::INT4_32>(args);
    case WeightType::INT4_128: return embed_of_type<V, WeightType::INT4_128>(args);
    case WeightType::INT8_32: return embed_of_type<V, WeightType::INT8_32>(args);
    case WeightType::INT8_128: return embed_of_type<V, WeightType::INT8_128>(args);
    case WeightType::FP8_32: return embed_of_type<V, WeightType::FP8_32>(args);
    case WeightType::FP8_128: return embed_of_type<V, WeightType::FP8_128>(args);
    case WeightType::INT8_K: return embed_of_type<V, WeightType::INT8_K>(args);
    case WeightType::FP4_16: return embed_of_type<V, WeightType::FP4_16>(args);
    case WeightType::NF4_32: return embed_of_type<V, WeightType::NF4_32>(args);
  }
}

}  // namespace
}  // namespace octavo
