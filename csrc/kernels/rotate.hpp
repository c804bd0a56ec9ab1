// Turning keys, values and queries before they are stored or multiplied: the Hadamard transform.
//
// Numbers that stand out in a key or value make the step of all its integers large. Multiplied with an
// orthogonal matrix they are spread over all dimensions (Ashkboos et al. 2024, "QuaRot"). Queries turned
// alike give the same scores; outputs are turned back, and the matrix is its own inverse.
#pragma once

#include <cstdint>

#include "../simd/vec.hpp"
#include "../types.hpp"

namespace octavo {

// Whether keys and values are turned before they are stored; queries are then turned too.
constexpr OCTAVO_INLINE bool is_rotated(KvType type) { return has_scales(type); }

// x[i], x[i + step] -> their sum and their difference, for all pairs of a run of `size` numbers.
template <class V>
OCTAVO_INLINE void add_and_subtract(float* x, int64_t size, int64_t step) {
  for (int64_t first = 0; first < size; first += 2 * step) {
    for (int64_t i = first; i < first + step; i += V::kLanes) {
      const typename V::Floats a = V::load(x + i), b = V::load(x + i + step);
      V::store(x + i, V::add(a, b));
      V::store(x + i + step, V::sub(a, b));
    }
  }
}

// The same for lanes that are `step` apart.
template <class V, int step>
OCTAVO_INLINE typename V::Floats add_and_subtract_lanes(typename V::Floats x) {
  constexpr int32_t kMinus = INT32_MIN;  // the sign of a float
  constexpr int32_t kSigns[8] = {0,
                                 step & 1 ? kMinus : 0,
                                 step & 2 ? kMinus : 0,
                                 step & 3 ? kMinus : 0,
                                 step & 4 ? kMinus : 0,
                                 step & 5 ? kMinus : 0,
                                 step & 6 ? kMinus : 0,
                                 step & 7 ? kMinus : 0};
  const typename V::Ints signed_x = V::bit_xor(V::as_ints(x), V::load_ints(kSigns));
  return V::add(V::template swap_lanes<step>(x), V::as_floats(signed_x));
}

// Multiply x, in place, with the orthogonal Hadamard matrix of Sylvester's order; where `size` is no power
// of two, each run of the largest one that divides it.
template <class V>
void rotate(float* x, int64_t size) {
  const int64_t order = size & -size;
  // 1 / sqrt(order), rounded: a power of two, or the root of one half times one.
  float factor = 1.0f;
  for (int64_t rest = order; rest > 1; rest /= 4) factor *= rest == 2 ? 0.707106781f : 0.5f;
  if (order < V::kLanes) {
    for (int64_t step = order / 2; step > 0; step /= 2) {
      for (int64_t i = 0; i < size; ++i) {
        if (i & step) continue;
        const float a = x[i], b = x[i + step];
        x[i] = a + b;
        x[i + step] = a - b;
      }
    }
    for (int64_t i = 0; i < size; ++i) x[i] *= factor;
    return;
  }
  for (int64_t step = order / 2; step >= V::kLanes; step /= 2) add_and_subtract<V>(x, size, step);
  for (int64_t i = 0; i < size; i += V::kLanes) {
    typename V::Floats v = V::load(x + i);
    v = add_and_subtract_lanes<V, 4>(v);
    v = add_and_subtract_lanes<V, 2>(v);
    v = add_and_subtract_lanes<V, 1>(v);
    V::store(x + i, V::mul(v, V::set1(factor)));
  }
}

}  // namespace octavo
