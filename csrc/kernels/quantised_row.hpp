// Activations as int8: the layout of a row and how it is made.
//
// A row of `cols` activations is cut into groups of kGroup (32) columns. The numbers of a group are
// q = x / scale rounded to the nearest even integer, with scale = max |x| / 127. In memory: `cols` bytes q,
// then one QuantisedGroup for each group.
//
// A group whose largest number is below 2^-100 counts as zero. A row with an infinity or a NaN has NaN for
// every scale.
#pragma once

#include <cstdint>

#include "../simd/vec.hpp"
#include "../types.hpp"
#include "table.hpp"

namespace octavo {
namespace {

struct QuantisedGroup {
  float scale;
  float scaled_sum;         // scale times the sum of q
  int32_t minus_sum;        // of q, what a zero point is multiplied with
  int32_t minus_upper_sum;  // of the upper 16 columns
};

OCTAVO_INLINE QuantisedGroup* quantised_groups(uint8_t* row, int64_t cols) {
  return reinterpret_cast<QuantisedGroup*>(row + cols);
}
OCTAVO_INLINE const QuantisedGroup* quantised_groups(const uint8_t* row, int64_t cols) {
  return reinterpret_cast<const QuantisedGroup*>(row + cols);
}

// `zeros` collects 0 * x, so it is NaN once an infinity or a NaN went by.
template <class V>
OCTAVO_INLINE QuantisedGroup quantise_group(const float* x, int8_t* q, typename V::Floats& zeros) {
  using Floats = typename V::Floats;
  using Ints = typename V::Ints;
  static_assert(kGroup == 4 * V::kLanes);
  Floats columns[4], largest = V::zero();
  OCTAVO_UNROLL for (int i = 0; i < 4; ++i) {
    columns[i] = V::load(x + i * V::kLanes);
    largest = V::max(V::abs(columns[i]), largest);
    zeros = V::fma(columns[i], V::zero(), zeros);
  }
  const float most = V::reduce_max(largest);
  const Floats inverse = V::set1(most > 0x1p-100f ? 127.0f / most : 0.0f);

  Ints rounded[4];
  OCTAVO_UNROLL for (int i = 0; i < 4; ++i) {
    // The maximum makes a number of a NaN.
    rounded[i] = V::to_ints(V::max(V::mul(columns[i], inverse), V::set1(-127.0f)));
  }
  V::store_i8(q, rounded);
  const Ints upper = V::add(rounded[2], rounded[3]);
  const int32_t upper_sum = V::reduce_add(upper);
  const int32_t sum = V::reduce_add(V::add(V::add(rounded[0], rounded[1]), upper));
  const float scale = most / 127.0f;
  return {scale, scale * static_cast<float>(sum), -sum, -upper_sum};
}

template <class V>
void quantise_row(const float* x, int64_t cols, uint8_t* row) {
  QuantisedGroup* groups = quantised_groups(row, cols);
  typename V::Floats zeros = V::zero();
  for (int64_t column = 0; column < cols; column += kGroup) {
    groups[column / kGroup] = quantise_group<V>(x + column, reinterpret_cast<int8_t*>(row + column), zeros);
  }
  const float poison = V::reduce_add(zeros);
  if (poison == 0.0f) return;
  for (int64_t group = 0; group < cols / kGroup; ++group) {
    groups[group].scale = poison;
    groups[group].scaled_sum = poison;
  }
}

template <class V>
void round_int8(const RoundArgs& args) {
  for (int64_t row = args.begin; row < args.end; ++row) {
    quantise_row<V>(args.x + row * args.x_stride, args.cols, args.out + row * args.out_stride);
  }
}

}  // namespace
}  // namespace octavo
