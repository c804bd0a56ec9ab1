// Vectors for AVX-512 (F, BW, DQ, VL): the AVX2 policy with thirty-two registers, and sixteen floats in a
// zmm register as its `Wide`.
//
// Compile with -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
// GCC's own header is the only place that warns (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "avx2.hpp"

namespace octavo {
namespace {

struct Avx512Wide {
  static constexpr const char* kName = "avx512";
  static constexpr int kLanes = 16;
  static constexpr int kPanels = 2;
  static constexpr int kRegisters = 32;
  using Wide = Avx512Wide;

  using Floats = __m512;
  using Ints = __m512i;
  using Mask = __mmask16;

  // ---- memory ----

  static OCTAVO_INLINE Floats load(const float* p) { return _mm512_loadu_ps(p); }
  static OCTAVO_INLINE void store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
  static OCTAVO_INLINE Floats load_first(const float* p, int64_t n) {
    return _mm512_maskz_loadu_ps(first(n), p);
  }
  static OCTAVO_INLINE void store_first(float* p, Floats v, int64_t n) {
    _mm512_mask_storeu_ps(p, first(n), v);
  }
  static OCTAVO_INLINE Floats load_f16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static OCTAVO_INLINE Floats load_bf16(const uint16_t* p) {
    return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static OCTAVO_INLINE void store_f16(uint16_t* p, Floats v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_f16(v));
  }
  static OCTAVO_INLINE void store_bf16(uint16_t* p, Floats v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bf16(v));
  }
  static OCTAVO_INLINE Floats load_first_f16(const uint16_t* p, int64_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p));
  }
  static OCTAVO_INLINE Floats load_first_bf16(const uint16_t* p, int64_t n) {
    return widen_bf16(_mm256_maskz_loadu_epi16(first(n), p));
  }
  static OCTAVO_INLINE void store_first_f16(uint16_t* p, Floats v, int64_t n) {
    _mm256_mask_storeu_epi16(p, first(n), narrow_f16(v));
  }
  static OCTAVO_INLINE void store_first_bf16(uint16_t* p, Floats v, int64_t n) {
    _mm256_mask_storeu_epi16(p, first(n), narrow_bf16(v));
  }
  static OCTAVO_INLINE Ints load_ints(const int32_t* p) { return _mm512_loadu_si512(p); }
  static OCTAVO_INLINE void store_ints(int32_t* p, Ints v) { _mm512_storeu_si512(p, v); }
  static OCTAVO_INLINE void store_i8(int8_t* p, const Ints (&v)[4]) {
    OCTAVO_UNROLL for (int i = 0; i < 4; ++i) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16 * i), _mm512_cvtepi32_epi8(v[i]));
    }
  }
  static OCTAVO_INLINE void store_u8(uint8_t* p, Ints v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
  }
  static OCTAVO_INLINE Ints load_i4(const uint8_t* p) {
    const __m128i words = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const Ints order = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const Ints counts = _mm512_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0);
    const Ints spread = _mm512_permutexvar_epi32(order, _mm512_castsi128_si512(words));
    return shift_right_signed<28>(_mm512_sllv_epi32(spread, counts));
  }
  static OCTAVO_INLINE Floats load_e5m2(const uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8));
  }
  static OCTAVO_INLINE Floats load_e4m3(const uint8_t* p) {
    return widen_e4m3(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static OCTAVO_INLINE Ints load_i8(const int8_t* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static OCTAVO_INLINE Ints load_u8(const uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }

  // ---- floats ----

  static OCTAVO_INLINE Floats zero() { return _mm512_setzero_ps(); }
  static OCTAVO_INLINE Floats set1(float x) { return _mm512_set1_ps(x); }
  static OCTAVO_INLINE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static OCTAVO_INLINE Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static OCTAVO_INLINE Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static OCTAVO_INLINE Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
  static OCTAVO_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static OCTAVO_INLINE Floats fnma(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }
  static OCTAVO_INLINE Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
  static OCTAVO_INLINE Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
  static OCTAVO_INLINE Floats sqrt(Floats a) { return _mm512_sqrt_ps(a); }
  static OCTAVO_INLINE Floats abs(Floats a) {
    return as_floats(bit_and(as_ints(a), set1_int(0x7fffffff)));
  }
  static OCTAVO_INLINE Floats round(Floats a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static OCTAVO_INLINE Floats floor(Floats a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  }
  static OCTAVO_INLINE Ints to_ints(Floats a) { return _mm512_cvtps_epi32(a); }

  static OCTAVO_INLINE Mask less(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static OCTAVO_INLINE Mask greater(Floats a, Floats b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
  }
  static OCTAVO_INLINE Mask equal(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  static OCTAVO_INLINE Mask first(int64_t n) { return static_cast<Mask>((1u << n) - 1u); }
  static OCTAVO_INLINE Floats select(Mask m, Floats a, Floats b) {
    return _mm512_mask_blend_ps(m, b, a);
  }
  static OCTAVO_INLINE Ints select(Mask m, Ints a, Ints b) { return _mm512_mask_blend_epi32(m, b, a); }
  static OCTAVO_INLINE uint32_t bits(Mask m) { return m; }

  template <int n>
  static OCTAVO_INLINE Floats swap_lanes(Floats a) {
    if constexpr (n == 4) return _mm512_shuffle_f32x4(a, a, 0xb1);
    else return _mm512_permute_ps(a, n == 2 ? 0x4e : 0xb1);
  }
  // Lane i with i + 8 first, then as eight lanes.
  static OCTAVO_INLINE float reduce_add(Floats a) {
    return Avx2::reduce_add(_mm256_add_ps(lower(a), upper(a)));
  }
  static OCTAVO_INLINE float reduce_max(Floats a) {
    return Avx2::reduce_max(_mm256_max_ps(lower(a), upper(a)));
  }
  static OCTAVO_INLINE float reduce_min(Floats a) {
    return Avx2::reduce_min(_mm256_min_ps(lower(a), upper(a)));
  }

  // ---- ints ----

  static OCTAVO_INLINE int32_t reduce_add(Ints a) {
    return Avx2::reduce_add(_mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1)));
  }
  static OCTAVO_INLINE Ints set1_int(int32_t x) { return _mm512_set1_epi32(x); }
  static OCTAVO_INLINE Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  static OCTAVO_INLINE Ints sub(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
  static OCTAVO_INLINE Ints bit_and(Ints a, Ints b) { return _mm512_and_si512(a, b); }
  static OCTAVO_INLINE Ints bit_or(Ints a, Ints b) { return _mm512_or_si512(a, b); }
  static OCTAVO_INLINE Ints bit_xor(Ints a, Ints b) { return _mm512_xor_si512(a, b); }
  static OCTAVO_INLINE Mask equal_ints(Ints a, Ints b) { return _mm512_cmpeq_epi32_mask(a, b); }
  template <int n>
  static OCTAVO_INLINE Ints shift_left(Ints a) {
    return _mm512_slli_epi32(a, n);
  }
  template <int n>
  static OCTAVO_INLINE Ints shift_right(Ints a) {
    return _mm512_srli_epi32(a, n);
  }
  template <int n>
  static OCTAVO_INLINE Ints shift_right_signed(Ints a) {
    return _mm512_srai_epi32(a, n);
  }
  static OCTAVO_INLINE Ints shift_right_by(Ints a, Ints counts) { return _mm512_srlv_epi32(a, counts); }
  static OCTAVO_INLINE Floats to_floats(Ints a) { return _mm512_cvtepi32_ps(a); }
  static OCTAVO_INLINE Ints as_ints(Floats a) { return _mm512_castps_si512(a); }
  static OCTAVO_INLINE Floats as_floats(Ints a) { return _mm512_castsi512_ps(a); }

  // ---- panels ----

  static OCTAVO_INLINE Ints load_panels(const uint8_t* p, int64_t stride) {
    const __m256i first_panel = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i second_panel = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + stride));
    return _mm512_inserti64x4(_mm512_castsi256_si512(first_panel), second_panel, 1);
  }
  static OCTAVO_INLINE Floats load_panels_f32(const uint8_t* p, int64_t stride) {
    return as_floats(load_panels(p, stride));
  }
  static OCTAVO_INLINE Floats load_panels_f16(const uint8_t* p, int64_t stride) {
    const __m128i first_panel = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i second_panel = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + stride));
    return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(first_panel), second_panel, 1));
  }
  static OCTAVO_INLINE Ints load_panels_i8(const uint8_t* p, int64_t stride) {
    return _mm512_cvtepi8_epi32(two_times_eight_bytes(p, stride));
  }
  static OCTAVO_INLINE Ints load_panels_u8(const uint8_t* p, int64_t stride) {
    return _mm512_cvtepu8_epi32(two_times_eight_bytes(p, stride));
  }
  static OCTAVO_INLINE Floats load_panels_e4m3(const uint8_t* p, int64_t stride) {
    return widen_e4m3(two_times_eight_bytes(p, stride));
  }
  static OCTAVO_INLINE Ints look_up_bytes(const int8_t (&table)[16], Ints a) {
    const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), a);
  }
  static OCTAVO_INLINE Floats look_up_floats(const float (&table)[16], Ints a) {
    return _mm512_permutexvar_ps(a, load(table));
  }
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
  static OCTAVO_INLINE __m256 lower(Floats a) { return _mm512_castps512_ps256(a); }
  static OCTAVO_INLINE __m256 upper(Floats a) { return _mm512_extractf32x8_ps(a, 1); }
  static OCTAVO_INLINE Floats widen_bf16(__m256i halves) {
    return as_floats(shift_left<16>(_mm512_cvtepu16_epi32(halves)));
  }
  static OCTAVO_INLINE Floats widen_e4m3(__m128i bytes) {
    const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
    const __m256i halves = _mm256_and_si256(shifted, _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
    const __m256i largest = _mm256_set1_epi16(0x3f80);
    const __m256i is_nan = _mm256_cmpeq_epi16(_mm256_and_si256(halves, largest), largest);
    return _mm512_cvtph_ps(_mm256_or_si256(halves, is_nan));
  }
  static OCTAVO_INLINE __m256i narrow_f16(Floats v) {
    return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
  }
  static OCTAVO_INLINE __m256i narrow_bf16(Floats v) {
    const Ints raw = as_ints(v);
    const Ints odd = bit_and(shift_right<16>(raw), set1_int(1));
    const Ints rounded = shift_right<16>(add(raw, add(odd, set1_int(0x7fff))));
    const Ints quiet_nan = bit_or(shift_right<16>(raw), set1_int(0x40));
    return _mm512_cvtepi32_epi16(select(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet_nan, rounded));
  }
  static OCTAVO_INLINE __m128i two_times_eight_bytes(const uint8_t* p, int64_t stride) {
    const __m128i first_panel = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m128i second_panel = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + stride));
    return _mm_unpacklo_epi64(first_panel, second_panel);
  }
  static OCTAVO_INLINE Ints shuffle_bytes(Ints a, __m128i order) {
    return _mm512_shuffle_epi8(a, _mm512_broadcast_i32x4(order));
  }
};

struct Avx512 : Avx2 {
  static constexpr const char* kName = "avx512";
  static constexpr int kRegisters = 32;
  using Wide = Avx512Wide;
};

}  // namespace
}  // namespace octavo
