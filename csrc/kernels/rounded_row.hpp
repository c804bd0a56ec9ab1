// Activations as bfloat16: each number rounded to nearest even; a NaN stays one. In memory: the columns in order,
// and a zero behind an odd number of them.
#pragma once

#include <cstdint>

#include "../simd/vec.hpp"
#include "table.hpp"

namespace octavo {
namespace {

template <class V>
void round_bf16(const RoundArgs& args) {
  using W = typename V::Wide;
  for (int64_t row = args.begin; row < args.end; ++row) {
    const float* x = args.x + row * args.x_stride;
    uint16_t* out = reinterpret_cast<uint16_t*>(args.out + row * args.out_stride);
    int64_t i = 0;
    for (; i + W::kLanes <= args.cols; i += W::kLanes) W::store_bf16(out + i, W::load(x + i));
    const int64_t rest = args.cols - i;
    if (rest > 0) W::store_first_bf16(out + i, W::load_first(x + i, rest), rest);
    if (args.cols % 2 != 0) out[args.cols] = 0;
  }
}

}  // namespace
}  // namespace octavo
