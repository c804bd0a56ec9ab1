// Exponential, hyperbolic tangent and complementary error function of vectors.
//
// Each is a template on a policy (vec.hpp) made of its exactly defined operations, so a lane's result
// depends on that lane alone and is the same in every policy. Errors are stated against the exact
// result and checked over dense samples in tests/test_kernels.cpp. Coefficients are minimax fits, found
// with Remez' algorithm in 50 digits and rounded to float32.
#pragma once

#include <cstdint>

#include "vec.hpp"

namespace octavo {

// exp(x) within 1.1 units in the last place. Results below the smallest normal float32 are 0, those
// above the largest finite one saturate there; NaN stays NaN.
template <class V>
OCTAVO_INLINE typename V::Floats exp(typename V::Floats x) {
  using Floats = typename V::Floats;
  const Floats smallest = V::set1(-87.336540f);  // results stay normal above this
  const Floats largest = V::set1(88.722832f);    // results stay finite up to this

  // x = n * ln(2) + r with |r| <= ln(2) / 2. Adding 1.5 * 2^23 rounds x / ln(2) to the integer n and
  // leaves n in the low bits of the sum.
  const Floats magic = V::set1(12582912.0f);
  const Floats bounded = V::min(largest, x);  // this order keeps a NaN
  const Floats shifted = V::fma(bounded, V::set1(1.44269504f), magic);
  const Floats n = V::sub(shifted, magic);
  Floats r = V::fnma(n, V::set1(0.693147182f), bounded);
  r = V::fnma(n, V::set1(-1.90465421e-9f), r);

  // exp(r) = 1 + r + r^2 q(r), times 2^n by adding n to the exponent.
  Floats q = V::fma(V::set1(0x1.6d7594p-10f), r, V::set1(0x1.120ba6p-7f));
  q = V::fma(q, r, V::set1(0x1.5554b8p-5f));
  q = V::fma(q, r, V::set1(0x1.5554dcp-3f));
  q = V::fma(q, r, V::set1(0.5f));
  const Floats p = V::fma(V::fma(q, r, V::set1(1.0f)), r, V::set1(1.0f));
  const Floats scaled =
      V::as_floats(V::add(V::as_ints(p), V::template shift_left<23>(V::as_ints(shifted))));

  // Where x is not greater: 0, or x itself if it is NaN.
  return V::select(V::greater(x, smallest), scaled, V::max(V::zero(), x));
}

// 1 / (1 + exp(-x)) within 3 units in the last place while x > -87; below, it is about 3e-39.
template <class V>
OCTAVO_INLINE typename V::Floats sigmoid(typename V::Floats x) {
  const typename V::Floats one = V::set1(1.0f);
  return V::div(one, V::add(one, exp<V>(V::sub(V::zero(), x))));
}

// tanh(x) within 2 units in the last place.
template <class V>
OCTAVO_INLINE typename V::Floats tanh(typename V::Floats x) {
  using Floats = typename V::Floats;
  const Floats one = V::set1(1.0f);
  const Floats magnitude = V::abs(x);

  // |x| < 0.625: x + x^3 P(x^2), where 1 - 2 / (exp(2x) + 1) would cancel.
  const Floats square = V::mul(x, x);
  Floats p = V::fma(V::set1(-0x1.76ac1cp-8f), square, V::set1(0x1.5256d8p-6f));
  p = V::fma(p, square, V::set1(-0x1.b84448p-5f));
  p = V::fma(p, square, V::set1(0x1.110768p-3f));
  p = V::fma(p, square, V::set1(-0x1.555534p-2f));
  const Floats small = V::fma(V::mul(p, square), x, x);

  const Floats power = exp<V>(V::add(magnitude, magnitude));
  const Floats large = V::sub(one, V::div(V::set1(2.0f), V::add(power, one)));
  const Floats with_sign = V::select(V::less(x, V::zero()), V::sub(V::zero(), large), large);
  return V::select(V::less(magnitude, V::set1(0.625f)), small, with_sign);
}

// erfc(z) for z >= 0 within a relative error of 1e-6 while z < 3 and 1e-5 up to 9.
// With t = 1 / (1 + z / 2), log(erfc(z) / t) + z^2 is a smooth function of t.
template <class V>
OCTAVO_INLINE typename V::Floats erfc_positive(typename V::Floats z) {
  using Floats = typename V::Floats;
  const Floats one = V::set1(1.0f);
  const Floats t = V::div(one, V::fma(z, V::set1(0.5f), one));
  Floats p = V::fma(V::set1(0x1.23365cp-3f), t, V::set1(-0x1.5505b2p-1f));
  p = V::fma(p, t, V::set1(0x1.1f550cp+0f));
  p = V::fma(p, t, V::set1(-0x1.4d6ec2p-1f));
  p = V::fma(p, t, V::set1(-0x1.de67c6p-4f));
  p = V::fma(p, t, V::set1(0x1.4afbf8p-6f));
  p = V::fma(p, t, V::set1(0x1.d09234p-6f));
  p = V::fma(p, t, V::set1(0x1.8d35b2p-2f));
  p = V::fma(p, t, V::set1(0x1.ff3a68p-1f));
  p = V::fma(p, t, V::set1(-0x1.43f3f8p+0f));
  return V::mul(t, exp<V>(V::fnma(z, z, p)));
}

}  // namespace octavo
