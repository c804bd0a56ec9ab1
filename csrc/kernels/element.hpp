// Element-wise kernels: add, scale, soft_cap. Lanes never mix, so they run at the widest width.
#pragma once

#include <cstdint>

#include "../simd/math.hpp"
#include "../simd/vec.hpp"
#include "table.hpp"

namespace octavo {

// out[t][i] = function(i-th vector of a[t], of b[t]) for the rows of `args`; b may be null.
template <class W, class Function>
OCTAVO_INLINE void each_element(const ElementArgs& args, Function function) {
  for (int64_t row = args.begin; row < args.end; ++row) {
    const float* a = args.a + row * args.a_stride;
    const float* b = args.b ? args.b + row * args.b_stride : a;
    float* out = args.out + row * args.out_stride;
    int64_t i = 0;
    for (; i + W::kLanes <= args.size; i += W::kLanes) {
      W::store(out + i, function(W::load(a + i), W::load(b + i)));
    }
    const int64_t rest = args.size - i;
    if (rest > 0) {
      const auto result = function(W::load_first(a + i, rest), W::load_first(b + i, rest));
      W::store_first(out + i, result, rest);
    }
  }
}

// out = a + b
template <class V>
void add(const ElementArgs& args) {
  using W = typename V::Wide;
  using Floats = typename W::Floats;
  each_element<W>(args, [](Floats a, Floats b) { return W::add(a, b); });
}

// out = a * factor
template <class V>
void scale(const ElementArgs& args) {
  using W = typename V::Wide;
  using Floats = typename W::Floats;
  const Floats factor = W::set1(args.factor);
  each_element<W>(args, [=](Floats a, Floats) { return W::mul(a, factor); });
}

// out = factor * tanh(a / factor)
template <class V>
void soft_cap(const ElementArgs& args) {
  using W = typename V::Wide;
  using Floats = typename W::Floats;
  const Floats cap = W::set1(args.factor);
  each_element<W>(args, [=](Floats a, Floats) { return W::mul(cap, tanh<W>(W::div(a, cap))); });
}

}  // namespace octavo
