// Sums over a row of logits.
#pragma once

#include <cstdint>

#include "../simd/math.hpp"
#include "../simd/vec.hpp"
#include "table.hpp"

namespace octavo {

// Add exp(x[i] - max) of n <= kLanes elements to `sum`.
template <class V>
OCTAVO_INLINE typename V::Floats add_exponentials(const float* x, int64_t n, float max,
                                                  typename V::Floats sum) {
  const typename V::Floats shifted = V::sub(V::load_first(x, n), V::set1(max));
  return V::add(sum, V::select(V::first(n), exp<V>(shifted), V::zero()));
}

// max = the largest logit, log_sum_exp = log(sum(exp(logit))).
// Every 256 logits are added in float32 lanes, those sums in double, always in the same order. All
// logits -infinity: both results are -infinity. A NaN or +infinity makes log_sum_exp NaN.
template <class V>
void log_sum_exp(const float* logits, int64_t size, float* max, double* log_sum_exp) {
  using Floats = typename V::Floats;
  constexpr int64_t kLanes = V::kLanes;
  constexpr int64_t kPiece = 256;
  const float lowest = -__builtin_inff();
  Floats highest = V::set1(lowest);
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) highest = V::max(V::load(logits + i), highest);
  const int64_t rest = size - i;
  if (rest > 0) {
    const Floats last = V::load_first(logits + i, rest);
    highest = V::max(V::select(V::first(rest), last, V::set1(lowest)), highest);
  }
  *max = V::reduce_max(highest);

  // -infinity - -infinity would be NaN; with a finite offset all exponentials are 0, and a NaN shows.
  const float offset = *max == lowest ? 0.0f : *max;
  double total = 0.0;
  for (int64_t piece = 0; piece < size; piece += kPiece) {
    const int64_t end = piece + kPiece < size ? piece + kPiece : size;
    Floats sum = V::zero();
    for (i = piece; i + kLanes <= end; i += kLanes) {
      sum = V::add(sum, exp<V>(V::sub(V::load(logits + i), V::set1(offset))));
    }
    if (i < end) sum = add_exponentials<V>(logits + i, end - i, offset, sum);
    float lanes[kLanes];
    V::store(lanes, sum);
    for (int lane = 0; lane < kLanes; ++lane) total += static_cast<double>(lanes[lane]);
  }
  *log_sum_exp = static_cast<double>(offset) + __builtin_log(total);
}

}  // namespace octavo
