// RMS normalisation of rows or of heads (Zhang and Sennrich 2019).
#pragma once

#include <cstdint>

#include "../simd/vec.hpp"
#include "table.hpp"

namespace octavo {

// The sum of squares of x[0 : size]. Element i belongs to chain i mod 32; the chains are added in one
// fixed order, so the bits depend on x and size alone.
template <class V>
OCTAVO_INLINE float sum_of_squares(const float* x, int64_t size) {
  using Floats = typename V::Floats;
  constexpr int64_t kLanes = V::kLanes;
  constexpr int kChains = 4;
  Floats sums[kChains];
  OCTAVO_UNROLL
  for (int c = 0; c < kChains; ++c) sums[c] = V::zero();
  int64_t i = 0;
  for (; i + kChains * kLanes <= size; i += kChains * kLanes) {
    OCTAVO_UNROLL
    for (int c = 0; c < kChains; ++c) {
      const Floats part = V::load(x + i + c * kLanes);
      sums[c] = V::fma(part, part, sums[c]);
    }
  }
  OCTAVO_UNROLL
  for (int c = 0; c < kChains; ++c) {
    const int64_t rest = size - i - c * kLanes;
    if (rest <= 0) break;
    const Floats part = V::load_first(x + i + c * kLanes, rest < kLanes ? rest : kLanes);
    sums[c] = V::fma(part, part, sums[c]);
  }
  return V::reduce_add(V::add(V::add(sums[0], sums[1]), V::add(sums[2], sums[3])));
}

template <class V>
void norm(const NormArgs& args) {
  using Floats = typename V::Floats;
  constexpr int64_t kLanes = V::kLanes;
  for (int64_t row = args.begin; row < args.end; ++row) {
    for (int64_t group = 0; group < args.groups; ++group) {
      const float* x = args.x + row * args.x_stride + group * args.size;
      float* out = args.out + row * args.out_stride + group * args.size;
      const float mean = sum_of_squares<V>(x, args.size) / static_cast<float>(args.size);
      const Floats factor = V::div(V::set1(1.0f), V::sqrt(V::set1(mean + args.eps)));
      int64_t i = 0;
      for (; i + kLanes <= args.size; i += kLanes) {
        const Floats normalised = V::mul(V::load(x + i), factor);
        V::store(out + i, V::mul(normalised, V::load(args.weight + i)));
      }
      const int64_t rest = args.size - i;
      if (rest > 0) {
        const Floats normalised = V::mul(V::load_first(x + i, rest), factor);
        const Floats weight = V::load_first(args.weight + i, rest);
        V::store_first(out + i, V::mul(normalised, weight), rest);
      }
    }
  }
}

}  // namespace octavo
