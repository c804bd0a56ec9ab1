// RMS normalisation of rows or of heads (Zhang and Sennrich 2019), and of whole rows with their mean taken
// away (layer normalisation, Ba et al. 2016).
#pragma once

#include <cstdint>

#include "../simd/vec.hpp"
#include "table.hpp"

namespace octavo {

// The sum of a term of each x[0 : size]; add_term(part, sum) adds those of a vector to a vector of sums.
// Element i belongs to chain i mod 32; the chains are added in one fixed order, so the bits depend on x
// and size alone.
template <class V, class AddTerm>
OCTAVO_INLINE float sum_of_terms(const float* x, int64_t size, AddTerm add_term) {
  using Floats = typename V::Floats;
  constexpr int64_t kLanes = V::kLanes;
  constexpr int kChains = 4;
  Floats sums[kChains];
  OCTAVO_UNROLL
  for (int c = 0; c < kChains; ++c) sums[c] = V::zero();
  int64_t i = 0;
  for (; i + kChains * kLanes <= size; i += kChains * kLanes) {
    OCTAVO_UNROLL
    for (int c = 0; c < kChains; ++c) sums[c] = add_term(V::load(x + i + c * kLanes), sums[c]);
  }
  OCTAVO_UNROLL
  for (int c = 0; c < kChains; ++c) {
    const int64_t rest = size - i - c * kLanes;
    if (rest <= 0) break;
    const int64_t n = rest < kLanes ? rest : kLanes;
    const Floats added = add_term(V::load_first(x + i + c * kLanes, n), sums[c]);
    sums[c] = V::select(V::first(n), added, sums[c]);
  }
  return V::reduce_add(V::add(V::add(sums[0], sums[1]), V::add(sums[2], sums[3])));
}

template <class V>
OCTAVO_INLINE float sum_of_squares(const float* x, int64_t size) {
  using Floats = typename V::Floats;
  return sum_of_terms<V>(x, size, [](Floats part, Floats sum) { return V::fma(part, part, sum); });
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

// n <= kLanes columns of a row whose mean is known.
template <class V>
OCTAVO_INLINE void layer_norm_part(const LayerNormArgs& args, const float* x, float* out, int64_t column,
                                   int64_t n, typename V::Floats mean, typename V::Floats factor) {
  using Floats = typename V::Floats;
  Floats value = V::mul(V::sub(V::load_first(x + column, n), mean), factor);
  if (args.weight) value = V::mul(value, V::load_first(args.weight + column, n));
  if (args.bias) value = V::add(value, V::load_first(args.bias + column, n));
  V::store_first(out + column, value, n);
}

// The variance is the mean of squared distances from the mean: two passes, so that nothing cancels.
template <class V>
void layer_norm(const LayerNormArgs& args) {
  using Floats = typename V::Floats;
  constexpr int64_t kLanes = V::kLanes;
  const float size = static_cast<float>(args.size);
  for (int64_t row = args.begin; row < args.end; ++row) {
    const float* x = args.x + row * args.x_stride;
    float* out = args.out + row * args.out_stride;
    const auto add = [](Floats part, Floats sum) { return V::add(part, sum); };
    const Floats mean = V::set1(sum_of_terms<V>(x, args.size, add) / size);
    const auto add_square = [mean](Floats part, Floats sum) {
      const Floats distance = V::sub(part, mean);
      return V::fma(distance, distance, sum);
    };
    const float variance = sum_of_terms<V>(x, args.size, add_square) / size;
    const Floats factor = V::div(V::set1(1.0f), V::sqrt(V::set1(variance + args.eps)));
    for (int64_t i = 0; i < args.size; i += kLanes) {
      const int64_t rest = args.size - i;
      layer_norm_part<V>(args, x, out, i, rest < kLanes ? rest : kLanes, mean, factor);
    }
  }
}

}  // namespace octavo
