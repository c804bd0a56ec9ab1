// Vectors for AVX2 with FMA and F16C (x86-64 since about 2013): eight floats in a ymm register.
//
// Compile with -mavx2 -mfma -mf16c.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "half.hpp"
#include "vec.hpp"

namespace octavo {
namespace {

struct Avx2 {
  static constexpr const char* kName = "avx2";
  static constexpr int kLanes = 8;
  static constexpr int kPanels = 1;
  static constexpr int kRegisters = 16;
  using Wide = Avx2;

  using Floats = __m256;
  using Ints = __m256i;
  using Mask = __m256;  // all bits of a lane, set or clear

  // ---- memory ----

  static OCTAVO_INLINE Floats load(const float* p) { return _mm256_loadu_ps(p); }
  static OCTAVO_INLINE void store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
  static OCTAVO_INLINE Floats load_first(const float* p, int64_t n) {
    return _mm256_maskload_ps(p, as_ints(first(n)));
  }
  static OCTAVO_INLINE void store_first(float* p, Floats v, int64_t n) {
    _mm256_maskstore_ps(p, as_ints(first(n)), v);
  }
  static OCTAVO_INLINE Floats load_f16(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static OCTAVO_INLINE Floats load_bf16(const uint16_t* p) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return as_floats(shift_left<16>(_mm256_cvtepu16_epi32(halves)));
  }
  static OCTAVO_INLINE void store_f16(uint16_t* p, Floats v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static OCTAVO_INLINE void store_bf16(uint16_t* p, Floats v) {
    const Ints raw = as_ints(v);
    const Ints odd = bit_and(shift_right<16>(raw), set1_int(1));
    const Ints rounded = shift_right<16>(add(raw, add(odd, set1_int(0x7fff))));
    const Ints quiet_nan = bit_or(shift_right<16>(raw), set1_int(0x40));
    const Mask is_nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    const Ints halves = select(is_nan, quiet_nan, rounded);
    const Ints packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(halves, halves), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }
  static OCTAVO_INLINE Floats load_first_f16(const uint16_t* p, int64_t n) {
    uint16_t halves[kLanes] = {};
    for (int64_t i = 0; i < n; ++i) halves[i] = p[i];
    return load_f16(halves);
  }
  static OCTAVO_INLINE Floats load_first_bf16(const uint16_t* p, int64_t n) {
    uint16_t halves[kLanes] = {};
    for (int64_t i = 0; i < n; ++i) halves[i] = p[i];
    return load_bf16(halves);
  }
  static OCTAVO_INLINE void store_first_f16(uint16_t* p, Floats v, int64_t n) {
    uint16_t halves[kLanes];
    store_f16(halves, v);
    for (int64_t i = 0; i < n; ++i) p[i] = halves[i];
  }
  static OCTAVO_INLINE void store_first_bf16(uint16_t* p, Floats v, int64_t n) {
    uint16_t halves[kLanes];
    store_bf16(halves, v);
    for (int64_t i = 0; i < n; ++i) p[i] = halves[i];
  }
  static OCTAVO_INLINE Ints load_ints(const int32_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static OCTAVO_INLINE void store_ints(int32_t* p, Ints v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
  }
  static OCTAVO_INLINE void store_i8(int8_t* p, const Ints (&v)[4]) {
    const __m256i mixed = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permutevar8x32_epi32(mixed, order));
  }
  static OCTAVO_INLINE void store_u8(uint8_t* p, Ints v) {
    const Ints packed = shuffle_bytes(v, _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                                       -1, -1, -1));
    const __m128i bytes = _mm_unpacklo_epi32(_mm256_castsi256_si128(packed),
                                             _mm256_extracti128_si256(packed, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), bytes);
  }
  static OCTAVO_INLINE Ints load_i4(const uint8_t* p) {
    int32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    const Ints counts = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    return shift_right_signed<28>(_mm256_sllv_epi32(set1_int(word), counts));
  }
  static OCTAVO_INLINE Floats load_e5m2(const uint8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), bytes));
  }
  static OCTAVO_INLINE Floats load_e4m3(const uint8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m128i shifted = _mm_slli_epi16(_mm_cvtepi8_epi16(bytes), 7);
    const __m128i halves = _mm_and_si128(shifted, _mm_set1_epi16(static_cast<int16_t>(0xbf80)));
    const __m128i largest = _mm_set1_epi16(0x3f80);
    const __m128i is_nan = _mm_cmpeq_epi16(_mm_and_si128(halves, largest), largest);
    return _mm256_cvtph_ps(_mm_or_si128(halves, is_nan));
  }
  static OCTAVO_INLINE Ints load_i8(const int8_t* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static OCTAVO_INLINE Ints load_u8(const uint8_t* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }

  // ---- floats ----

  static OCTAVO_INLINE Floats zero() { return _mm256_setzero_ps(); }
  static OCTAVO_INLINE Floats set1(float x) { return _mm256_set1_ps(x); }
  static OCTAVO_INLINE Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static OCTAVO_INLINE Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  static OCTAVO_INLINE Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static OCTAVO_INLINE Floats div(Floats a, Floats b) { return _mm256_div_ps(a, b); }
  static OCTAVO_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static OCTAVO_INLINE Floats fnma(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }
  static OCTAVO_INLINE Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
  static OCTAVO_INLINE Floats min(Floats a, Floats b) { return _mm256_min_ps(a, b); }
  static OCTAVO_INLINE Floats sqrt(Floats a) { return _mm256_sqrt_ps(a); }
  static OCTAVO_INLINE Floats abs(Floats a) {
    return _mm256_and_ps(a, as_floats(set1_int(0x7fffffff)));
  }
  static OCTAVO_INLINE Floats round(Floats a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static OCTAVO_INLINE Floats floor(Floats a) { return _mm256_floor_ps(a); }
  static OCTAVO_INLINE Ints to_ints(Floats a) { return _mm256_cvtps_epi32(a); }

  static OCTAVO_INLINE Mask less(Floats a, Floats b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static OCTAVO_INLINE Mask greater(Floats a, Floats b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
  static OCTAVO_INLINE Mask equal(Floats a, Floats b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
  static OCTAVO_INLINE Mask first(int64_t n) {
    const Ints index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return as_floats(_mm256_cmpgt_epi32(set1_int(static_cast<int32_t>(n)), index));
  }
  static OCTAVO_INLINE Floats select(Mask m, Floats a, Floats b) { return _mm256_blendv_ps(b, a, m); }
  static OCTAVO_INLINE Ints select(Mask m, Ints a, Ints b) {
    return _mm256_blendv_epi8(b, a, as_ints(m));
  }
  static OCTAVO_INLINE uint32_t bits(Mask m) { return static_cast<uint32_t>(_mm256_movemask_ps(m)); }

  template <int n>
  static OCTAVO_INLINE Floats swap_lanes(Floats a) {
    if constexpr (n == 4) return _mm256_permute2f128_ps(a, a, 1);
    else return _mm256_permute_ps(a, n == 2 ? 0x4e : 0xb1);
  }
  static OCTAVO_INLINE float reduce_add(Floats a) {
    const __m128 half = _mm_add_ps(lower(a), upper(a));
    const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
  }
  static OCTAVO_INLINE float reduce_max(Floats a) {
    const __m128 half = _mm_max_ps(lower(a), upper(a));
    const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
  }
  static OCTAVO_INLINE float reduce_min(Floats a) {
    const __m128 half = _mm_min_ps(lower(a), upper(a));
    const __m128 pair = _mm_min_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_min_ss(pair, _mm_movehdup_ps(pair)));
  }

  // ---- ints ----

  static OCTAVO_INLINE int32_t reduce_add(Ints a) {
    const __m128i half = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i pair = _mm_add_epi32(half, _mm_unpackhi_epi64(half, half));
    return _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32(pair, 1)));
  }
  static OCTAVO_INLINE Ints set1_int(int32_t x) { return _mm256_set1_epi32(x); }
  static OCTAVO_INLINE Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
  static OCTAVO_INLINE Ints sub(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
  static OCTAVO_INLINE Ints bit_and(Ints a, Ints b) { return _mm256_and_si256(a, b); }
  static OCTAVO_INLINE Ints bit_or(Ints a, Ints b) { return _mm256_or_si256(a, b); }
  static OCTAVO_INLINE Ints bit_xor(Ints a, Ints b) { return _mm256_xor_si256(a, b); }
  static OCTAVO_INLINE Mask equal_ints(Ints a, Ints b) { return as_floats(_mm256_cmpeq_epi32(a, b)); }
  template <int n>
  static OCTAVO_INLINE Ints shift_left(Ints a) {
    return _mm256_slli_epi32(a, n);
  }
  template <int n>
  static OCTAVO_INLINE Ints shift_right(Ints a) {
    return _mm256_srli_epi32(a, n);
  }
  template <int n>
  static OCTAVO_INLINE Ints shift_right_signed(Ints a) {
    return _mm256_srai_epi32(a, n);
  }
  static OCTAVO_INLINE Ints shift_right_by(Ints a, Ints counts) { return _mm256_srlv_epi32(a, counts); }
  static OCTAVO_INLINE Floats to_floats(Ints a) { return _mm256_cvtepi32_ps(a); }
  static OCTAVO_INLINE Ints as_ints(Floats a) { return _mm256_castps_si256(a); }
  static OCTAVO_INLINE Floats as_floats(Ints a) { return _mm256_castsi256_ps(a); }

  // ---- panels ----

  static OCTAVO_INLINE Ints load_panels(const uint8_t* p, int64_t) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static OCTAVO_INLINE Floats load_panels_f32(const uint8_t* p, int64_t) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  }
  static OCTAVO_INLINE Floats load_panels_f16(const uint8_t* p, int64_t) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static OCTAVO_INLINE Ints load_panels_i8(const uint8_t* p, int64_t) {
    return load_i8(reinterpret_cast<const int8_t*>(p));
  }
  static OCTAVO_INLINE Ints load_panels_u8(const uint8_t* p, int64_t) { return load_u8(p); }
  static OCTAVO_INLINE Floats load_panels_e4m3(const uint8_t* p, int64_t) { return load_e4m3(p); }
  static OCTAVO_INLINE Ints look_up_bytes(const int8_t (&table)[16], Ints a) {
    const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), a);
  }
  static OCTAVO_INLINE Floats look_up_floats(const float (&table)[16], Ints a) {
    const Floats lower = _mm256_permutevar8x32_ps(load(table), a);
    const Floats upper = _mm256_permutevar8x32_ps(load(table + 8), a);
    return _mm256_blendv_ps(lower, upper, as_floats(shift_left<28>(a)));  // by bit 3
  }
  // A byte shuffle rather than a shift: shifts share their ports with the multiplications.
  template <int i>
  static OCTAVO_INLINE Ints byte(Ints a) {
    if constexpr (i == 0) return bit_and(a, set1_int(255));
    return shuffle_bytes(a, _mm_setr_epi8(i, -1, -1, -1, 4 + i, -1, -1, -1, 8 + i, -1, -1, -1, 12 + i,
                                          -1, -1, -1));
  }
  template <int i>
  static OCTAVO_INLINE Ints byte_at_top(Ints a) {
    if constexpr (i == 3) return bit_and(a, set1_int(static_cast<int32_t>(0xff000000u)));
    return shuffle_bytes(a, _mm_setr_epi8(-1, -1, -1, i, -1, -1, -1, 4 + i, -1, -1, -1, 8 + i, -1, -1,
                                          -1, 12 + i));
  }

 private:
  static OCTAVO_INLINE __m128 lower(Floats a) { return _mm256_castps256_ps128(a); }
  static OCTAVO_INLINE __m128 upper(Floats a) { return _mm256_extractf128_ps(a, 1); }
  static OCTAVO_INLINE Ints shuffle_bytes(Ints a, __m128i order) {
    return _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(order));
  }
};

}  // namespace
}  // namespace octavo
