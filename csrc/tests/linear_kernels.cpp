// The kernels of one instruction set for test_linear.cpp, chosen by OCTAVO_TEST_{SCALAR,AVX2,AVX_VNNI,AVX512,
// AVX512_VNNI,AVX512_BF16,NEON}.
#include "linear_kernels.hpp"

#if defined(OCTAVO_TEST_SCALAR)
#include "simd/dot.hpp"
#include "simd/scalar.hpp"
#define OCTAVO_TEST_POLICY Scalar
#define OCTAVO_TEST_DOT DotGeneric<Scalar>
#define OCTAVO_TEST_NAME "scalar"
#define OCTAVO_TEST_ENTRY scalar_test_kernels
#elif defined(OCTAVO_TEST_AVX2)
#include "simd/dot_avx2.hpp"
#define OCTAVO_TEST_POLICY Avx2
#define OCTAVO_TEST_DOT DotAvx2<Avx2>
#define OCTAVO_TEST_NAME "avx2"
#define OCTAVO_TEST_ENTRY avx2_test_kernels
#elif defined(OCTAVO_TEST_AVX_VNNI)
#include "simd/dot_vnni.hpp"
#define OCTAVO_TEST_POLICY Avx2
#define OCTAVO_TEST_DOT DotAvxVnni
#define OCTAVO_TEST_NAME "avx_vnni"
#define OCTAVO_TEST_ENTRY avx_vnni_test_kernels
#elif defined(OCTAVO_TEST_AVX512)
#include "simd/avx512.hpp"
#include "simd/dot_avx2.hpp"
#define OCTAVO_TEST_POLICY Avx512
#define OCTAVO_TEST_DOT DotAvx2<Avx512>
#define OCTAVO_TEST_NAME "avx512"
#define OCTAVO_TEST_ENTRY avx512_test_kernels
#elif defined(OCTAVO_TEST_AVX512_VNNI)
#include "simd/dot_vnni.hpp"
#define OCTAVO_TEST_POLICY Avx512
#define OCTAVO_TEST_DOT DotAvx512Vnni
#define OCTAVO_TEST_NAME "avx512_vnni"
#define OCTAVO_TEST_ENTRY avx512_vnni_test_kernels
#elif defined(OCTAVO_TEST_AVX512_BF16)
#include "simd/dot_vnni.hpp"
#include "simd/pairs_avx512.hpp"
#define OCTAVO_TEST_POLICY Avx512
#define OCTAVO_TEST_DOT DotAvx512Vnni
#define OCTAVO_TEST_PAIRS PairsAvx512
#define OCTAVO_TEST_NAME "avx512_bf16"
#define OCTAVO_TEST_ENTRY avx512_bf16_test_kernels
#else
#include "simd/dot_neon.hpp"
#define OCTAVO_TEST_POLICY Neon
#define OCTAVO_TEST_DOT DotNeon
#define OCTAVO_TEST_NAME "neon"
#define OCTAVO_TEST_ENTRY neon_test_kernels
#endif

#include "kernels/embed.hpp"
#include "kernels/linear.hpp"
#include "kernels/linear_bf16.hpp"
#include "kernels/linear_int8.hpp"
#include "kernels/quantised_row.hpp"
#include "kernels/rounded_row.hpp"

#ifndef OCTAVO_TEST_PAIRS
#define OCTAVO_TEST_PAIRS PairsFused<OCTAVO_TEST_POLICY::Wide>
#endif

namespace octavo::tests {
namespace {

// Appends results of operations to an array of words.
template <class V>
struct Results {
  uint32_t* at;

  void put(typename V::Floats v) {
    float lanes[V::kLanes];
    V::store(lanes, v);
    __builtin_memcpy(at, lanes, sizeof lanes);
    at += V::kLanes;
  }
  void put_ints(typename V::Ints v) {
    int32_t lanes[V::kLanes];
    V::store_ints(lanes, v);
    __builtin_memcpy(at, lanes, sizeof lanes);
    at += V::kLanes;
  }
  void put_word(uint32_t word) { *at++ = word; }
  void put_float(float x) { __builtin_memcpy(at++, &x, sizeof x); }
};

template <class V>
void put_memory_results(const float* a, Results<V>& results) {
  const typename V::Floats va = V::load(a);
  uint16_t halves[V::kLanes];
  V::store_f16(halves, va);
  for (int i = 0; i < V::kLanes; ++i) results.put_word(halves[i]);
  results.put(V::load_f16(halves));
  V::store_bf16(halves, va);
  for (int i = 0; i < V::kLanes; ++i) results.put_word(halves[i]);
  results.put(V::load_bf16(halves));
  for (int64_t n = 0; n <= V::kLanes; ++n) {
    float lanes[V::kLanes] = {};
    V::store_first(lanes, va, n);
    results.put(V::load(lanes));
    results.put(V::load_first(a, n));
    uint16_t first_halves[V::kLanes] = {};
    V::store_first_f16(first_halves, va, n);
    results.put(V::load_f16(first_halves));
    results.put(V::load_first_f16(halves, n));
    V::store_first_bf16(first_halves, va, n);
    results.put(V::load_bf16(first_halves));
    results.put(V::load_first_bf16(halves, n));
    results.put_word(V::bits(V::first(n)));
  }
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(a);
  results.put_ints(V::load_u8(bytes));
  results.put_ints(V::load_i8(reinterpret_cast<const int8_t*>(a)));
  results.put_ints(V::load_panels(bytes, 0));
  results.put(V::load_panels_f32(bytes, 0));
  results.put_ints(V::load_panels_u8(bytes, 0));
  results.put_ints(V::load_panels_i8(bytes, 0));
}

template <class V>
void put_float_results(const float* a, const float* b, const float* c, Results<V>& results) {
  const typename V::Floats va = V::load(a), vb = V::load(b), vc = V::load(c);
  results.put(V::zero());
  results.put(V::add(va, vb));
  results.put(V::sub(va, vb));
  results.put(V::mul(va, vb));
  results.put(V::div(va, vb));
  results.put(V::fma(va, vb, vc));
  results.put(V::fnma(va, vb, vc));
  results.put(V::max(va, vb));
  results.put(V::min(va, vb));
  results.put(V::sqrt(V::abs(va)));
  results.put(V::abs(va));
  results.put(V::round(va));
  results.put(V::floor(va));
  const typename V::Mask small = V::less(V::abs(va), V::set1(2e9f));
  results.put_ints(V::to_ints(V::select(small, va, V::zero())));
  results.put_word(V::bits(V::less(va, vb)));
  results.put_word(V::bits(V::greater(va, vb)));
  results.put_word(V::bits(V::equal(va, vb)));
  results.put(V::select(V::less(va, vb), va, vc));
  results.put_float(V::reduce_add(va));
  results.put_float(V::reduce_max(va));
  results.put_float(V::reduce_min(va));
}

template <class V>
void put_int_results(const float* a, const float* b, Results<V>& results) {
  const typename V::Ints ia = V::as_ints(V::load(a)), ib = V::as_ints(V::load(b));
  results.put_ints(V::add(ia, ib));
  results.put_ints(V::sub(ia, ib));
  results.put_ints(V::bit_and(ia, ib));
  results.put_ints(V::bit_or(ia, ib));
  results.put_ints(V::bit_xor(ia, ib));
  results.put_word(V::bits(V::equal_ints(ia, ib)));
  results.put_ints(V::select(V::equal_ints(ia, ia), ia, ib));
  results.put_ints(V::template shift_left<5>(ia));
  results.put_ints(V::template shift_right<5>(ia));
  results.put_ints(V::template shift_right_signed<5>(ia));
  results.put_ints(V::shift_right_by(ia, V::bit_and(ib, V::set1_int(31))));
  results.put(V::to_floats(ia));
  results.put_ints(V::template byte<0>(ia));
  results.put_ints(V::template byte<1>(ia));
  results.put_ints(V::template byte<2>(ia));
  results.put_ints(V::template byte<3>(ia));
  results.put_ints(V::template byte_at_top<0>(ia));
  results.put_ints(V::template byte_at_top<1>(ia));
  results.put_ints(V::template byte_at_top<2>(ia));
  results.put_ints(V::template byte_at_top<3>(ia));
  results.put_word(static_cast<uint32_t>(V::reduce_add(ia)));
  const typename V::Ints small = V::template shift_right_signed<24>(ia);
  const typename V::Ints smaller = V::template shift_right_signed<25>(ia);
  int8_t bytes[4 * V::kLanes];
  V::store_i8(bytes, {small, smaller, V::template shift_right_signed<24>(ib), smaller});
  for (int i = 0; i < 4; ++i) results.put_ints(V::load_i8(bytes + V::kLanes * i));
}

template <class V>
int64_t vector_results(const float* a, const float* b, const float* c, uint32_t* words) {
  Results<V> results{words};
  put_memory_results<V>(a, results);
  put_float_results<V>(a, b, c, results);
  put_int_results<V>(a, b, results);
  return results.at - words;
}

template <class V>
double multiply_adds(int64_t count, float* result) {
  using L = typename V::Wide;
  constexpr int kChains = 8;
  typename L::Floats sums[kChains];
  OCTAVO_UNROLL for (int i = 0; i < kChains; ++i) sums[i] = L::set1(static_cast<float>(i));
  const typename L::Floats a = L::set1(0.5f), b = L::set1(1.0f);
  for (int64_t n = 0; n < 8 * count; ++n) {
    OCTAVO_UNROLL for (int i = 0; i < kChains; ++i) sums[i] = L::fma(sums[i], a, b);
  }
  *result = 0;
  for (int i = 0; i < kChains; ++i) *result += L::reduce_add(sums[i]);
  return 2.0 * 64 * L::kLanes * static_cast<double>(count);
}

}  // namespace

const Kernels* OCTAVO_TEST_ENTRY() {
  using V = OCTAVO_TEST_POLICY;
  static const Kernels kernels = {OCTAVO_TEST_NAME,
                                  linear<V>,
                                  linear_int8<OCTAVO_TEST_DOT>,
                                  linear_bf16<OCTAVO_TEST_PAIRS>,
                                  round_int8<V>,
                                  round_bf16<V>,
                                  embed<V>,
                                  linear_scratch_floats<V>,
                                  vector_results<V>,
                                  multiply_adds<V>};
  return &kernels;
}

}  // namespace octavo::tests
