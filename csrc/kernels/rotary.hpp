// Rotary position embedding, halves style (Su et al. 2021, as GPT-NeoX lays it out).
#pragma once

#include <cstdint>

#include "../simd/vec.hpp"
#include "table.hpp"

namespace octavo {

// The angle is rounded to float32 as Hugging Face does, its cosine and sine are exact to float32: at
// large positions the rounding of the angle is the larger error, and models were trained with it.
template <class V>
void rope_table(const RopeTableArgs& args) {
  const int64_t half = args.rotary_dim / 2;
  for (int64_t token = args.begin; token < args.end; ++token) {
    const float position = static_cast<float>(args.positions[token]);
    float* cosines = args.cos_sin + token * args.rotary_dim;
    float* sines = cosines + half;
    for (int64_t i = 0; i < half; ++i) {
      const float angle = position * args.inv_freq[i];
      const double exact_angle = static_cast<double>(angle);
      cosines[i] = static_cast<float>(__builtin_cos(exact_angle)) * args.factor;
      sines[i] = static_cast<float>(__builtin_sin(exact_angle)) * args.factor;
    }
  }
}

// Rotate the first n <= kLanes pairs (x[i], x[i + half]).
template <class W, bool kWhole>
OCTAVO_INLINE void rotate_pairs(const float* x, float* out, const float* cosines, int64_t half,
                                int64_t n) {
  using Floats = typename W::Floats;
  const auto load = [n](const float* p) {
    if constexpr (kWhole) return W::load(p);
    return W::load_first(p, n);
  };
  const auto store = [n](float* p, Floats v) {
    if constexpr (kWhole) return W::store(p, v);
    return W::store_first(p, v, n);
  };
  const Floats cosine = load(cosines);
  const Floats sine = load(cosines + half);
  const Floats lower = load(x);
  const Floats upper = load(x + half);
  store(out, W::fnma(upper, sine, W::mul(lower, cosine)));
  store(out + half, W::fma(lower, sine, W::mul(upper, cosine)));
}

template <class V>
void rotary(const RotaryArgs& args) {
  using W = typename V::Wide;
  const int64_t half = args.rotary_dim / 2;
  for (int64_t token = args.begin; token < args.end; ++token) {
    const float* cosines = args.cos_sin + token * args.rotary_dim;
    for (int64_t head = 0; head < args.heads; ++head) {
      const float* x = args.x + token * args.x_stride + head * args.head_dim;
      float* out = args.out + token * args.out_stride + head * args.head_dim;
      int64_t i = 0;
      for (; i + W::kLanes <= half; i += W::kLanes) {
        rotate_pairs<W, true>(x + i, out + i, cosines + i, half, W::kLanes);
      }
      if (i < half) rotate_pairs<W, false>(x + i, out + i, cosines + i, half, half - i);
      if (out == x) continue;
      for (i = args.rotary_dim; i < args.head_dim; ++i) out[i] = x[i];
    }
  }
}

}  // namespace octavo
