// Vectors for 64-bit Arm: eight floats in two NEON registers.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "half.hpp"
#include "vec.hpp"

namespace octavo {
namespace {

struct Neon {
  static constexpr const char* kName = "neon";
  static constexpr int kLanes = 8;
  static constexpr int kPanels = 1;
  static constexpr int kRegisters = 16;
  using Wide = Neon;

  struct Floats {
    float32x4_t lo, hi;
  };
  struct Ints {
    int32x4_t lo, hi;
  };
  struct Mask {
    uint32x4_t lo, hi;  // all bits of a lane, set or clear
  };

  // ---- memory ----

  static OCTAVO_INLINE Floats load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
  static OCTAVO_INLINE void store(float* p, Floats v) {
    vst1q_f32(p, v.lo);
    vst1q_f32(p + 4, v.hi);
  }
  static OCTAVO_INLINE Floats load_first(const float* p, int64_t n) {
    float lanes[kLanes] = {};
    for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
    return load(lanes);
  }
  static OCTAVO_INLINE void store_first(float* p, Floats v, int64_t n) {
    float lanes[kLanes];
    store(lanes, v);
    for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
  }
  static OCTAVO_INLINE Floats load_f16(const uint16_t* p) {
    return widen_f16(vld1q_u16(p));
  }
  static OCTAVO_INLINE Floats load_bf16(const uint16_t* p) {
    const uint16x8_t halves = vld1q_u16(p);
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(halves), 16)),
            vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(halves), 16))};
  }
  static OCTAVO_INLINE void store_f16(uint16_t* p, Floats v) {
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v.lo)));
    vst1_u16(p + 4, vreinterpret_u16_f16(vcvt_f16_f32(v.hi)));
  }
  static OCTAVO_INLINE void store_bf16(uint16_t* p, Floats v) {
    vst1_u16(p, narrow_bf16(v.lo));
    vst1_u16(p + 4, narrow_bf16(v.hi));
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
  static OCTAVO_INLINE Ints load_ints(const int32_t* p) { return {vld1q_s32(p), vld1q_s32(p + 4)}; }
  static OCTAVO_INLINE void store_ints(int32_t* p, Ints v) {
    vst1q_s32(p, v.lo);
    vst1q_s32(p + 4, v.hi);
  }
  static OCTAVO_INLINE void store_i8(int8_t* p, const Ints (&v)[4]) {
    OCTAVO_UNROLL for (int i = 0; i < 4; ++i) {
      const int16x8_t halves = vcombine_s16(vmovn_s32(v[i].lo), vmovn_s32(v[i].hi));
      vst1_s8(p + kLanes * i, vmovn_s16(halves));
    }
  }
  static OCTAVO_INLINE void store_u8(uint8_t* p, Ints v) {
    const int16x8_t halves = vcombine_s16(vmovn_s32(v.lo), vmovn_s32(v.hi));
    vst1_u8(p, vreinterpret_u8_s8(vmovn_s16(halves)));
  }
  static OCTAVO_INLINE Ints load_i4(const uint8_t* p) {
    int32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    const int32_t count[kLanes] = {28, 24, 20, 16, 12, 8, 4, 0};
    const int32x4_t words = vdupq_n_s32(word);
    return {vshrq_n_s32(vshlq_s32(words, vld1q_s32(count)), 28),
            vshrq_n_s32(vshlq_s32(words, vld1q_s32(count + 4)), 28)};
  }
  static OCTAVO_INLINE Floats load_e5m2(const uint8_t* p) {
    return widen_f16(vshll_n_u8(vld1_u8(p), 8));
  }
  static OCTAVO_INLINE Floats load_e4m3(const uint8_t* p) {
    const int16x8_t shifted = vshlq_n_s16(vmovl_s8(vreinterpret_s8_u8(vld1_u8(p))), 7);
    const uint16x8_t halves = vandq_u16(vreinterpretq_u16_s16(shifted), vdupq_n_u16(0xbf80));
    const uint16x8_t largest = vdupq_n_u16(0x3f80);
    return widen_f16(vorrq_u16(halves, vceqq_u16(vandq_u16(halves, largest), largest)));
  }
  static OCTAVO_INLINE Ints load_i8(const int8_t* p) {
    const int16x8_t shorts = vmovl_s8(vld1_s8(p));
    return {vmovl_s16(vget_low_s16(shorts)), vmovl_s16(vget_high_s16(shorts))};
  }
  static OCTAVO_INLINE Ints load_u8(const uint8_t* p) {
    const uint16x8_t shorts = vmovl_u8(vld1_u8(p));
    return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(shorts))),
            vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(shorts)))};
  }

  // ---- floats ----

  static OCTAVO_INLINE Floats zero() { return set1(0.0f); }
  static OCTAVO_INLINE Floats set1(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
  static OCTAVO_INLINE Floats add(Floats a, Floats b) {
    return {vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi)};
  }
  static OCTAVO_INLINE Floats sub(Floats a, Floats b) {
    return {vsubq_f32(a.lo, b.lo), vsubq_f32(a.hi, b.hi)};
  }
  static OCTAVO_INLINE Floats mul(Floats a, Floats b) {
    return {vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)};
  }
  static OCTAVO_INLINE Floats div(Floats a, Floats b) {
    return {vdivq_f32(a.lo, b.lo), vdivq_f32(a.hi, b.hi)};
  }
  static OCTAVO_INLINE Floats fma(Floats a, Floats b, Floats c) {
    return {vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
  }
  static OCTAVO_INLINE Floats fnma(Floats a, Floats b, Floats c) {
    return {vfmsq_f32(c.lo, a.lo, b.lo), vfmsq_f32(c.hi, a.hi, b.hi)};
  }
  // Comparisons, because the machine's own maximum and minimum treat NaN in another way.
  static OCTAVO_INLINE Floats max(Floats a, Floats b) { return select(greater(a, b), a, b); }
  static OCTAVO_INLINE Floats min(Floats a, Floats b) { return select(less(a, b), a, b); }
  static OCTAVO_INLINE Floats sqrt(Floats a) { return {vsqrtq_f32(a.lo), vsqrtq_f32(a.hi)}; }
  static OCTAVO_INLINE Floats abs(Floats a) { return {vabsq_f32(a.lo), vabsq_f32(a.hi)}; }
  static OCTAVO_INLINE Floats round(Floats a) { return {vrndnq_f32(a.lo), vrndnq_f32(a.hi)}; }
  static OCTAVO_INLINE Floats floor(Floats a) { return {vrndmq_f32(a.lo), vrndmq_f32(a.hi)}; }
  static OCTAVO_INLINE Ints to_ints(Floats a) { return {vcvtnq_s32_f32(a.lo), vcvtnq_s32_f32(a.hi)}; }

  static OCTAVO_INLINE Mask less(Floats a, Floats b) {
    return {vcltq_f32(a.lo, b.lo), vcltq_f32(a.hi, b.hi)};
  }
  static OCTAVO_INLINE Mask greater(Floats a, Floats b) {
    return {vcgtq_f32(a.lo, b.lo), vcgtq_f32(a.hi, b.hi)};
  }
  static OCTAVO_INLINE Mask equal(Floats a, Floats b) {
    return {vceqq_f32(a.lo, b.lo), vceqq_f32(a.hi, b.hi)};
  }
  static OCTAVO_INLINE Mask first(int64_t n) {
    const int32_t index[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7};
    const int32x4_t count = vdupq_n_s32(static_cast<int32_t>(n));
    return {vcltq_s32(vld1q_s32(index), count), vcltq_s32(vld1q_s32(index + 4), count)};
  }
  static OCTAVO_INLINE Floats select(Mask m, Floats a, Floats b) {
    return {vbslq_f32(m.lo, a.lo, b.lo), vbslq_f32(m.hi, a.hi, b.hi)};
  }
  static OCTAVO_INLINE Ints select(Mask m, Ints a, Ints b) {
    return {vbslq_s32(m.lo, a.lo, b.lo), vbslq_s32(m.hi, a.hi, b.hi)};
  }
  static OCTAVO_INLINE uint32_t bits(Mask m) {
    const uint32_t weight[4] = {1, 2, 4, 8};
    const uint32x4_t weights = vld1q_u32(weight);
    return vaddvq_u32(vandq_u32(m.lo, weights)) | (vaddvq_u32(vandq_u32(m.hi, weights)) << 4);
  }

  template <int n>
  static OCTAVO_INLINE Floats swap_lanes(Floats a) {
    if constexpr (n == 4) return {a.hi, a.lo};
    else if constexpr (n == 2) return {vextq_f32(a.lo, a.lo, 2), vextq_f32(a.hi, a.hi, 2)};
    else return {vrev64q_f32(a.lo), vrev64q_f32(a.hi)};
  }
  static OCTAVO_INLINE float reduce_add(Floats a) {
    const float32x4_t half = vaddq_f32(a.lo, a.hi);
    const float32x2_t pair = vadd_f32(vget_low_f32(half), vget_high_f32(half));
    return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
  }
  static OCTAVO_INLINE float reduce_max(Floats a) {
    return reduce(a, [](float x, float y) { return x > y ? x : y; });
  }
  static OCTAVO_INLINE float reduce_min(Floats a) {
    return reduce(a, [](float x, float y) { return x < y ? x : y; });
  }

  // ---- ints ----

  static OCTAVO_INLINE int32_t reduce_add(Ints a) { return vaddvq_s32(vaddq_s32(a.lo, a.hi)); }
  static OCTAVO_INLINE Ints set1_int(int32_t x) { return {vdupq_n_s32(x), vdupq_n_s32(x)}; }
  static OCTAVO_INLINE Ints add(Ints a, Ints b) {
    return {vaddq_s32(a.lo, b.lo), vaddq_s32(a.hi, b.hi)};
  }
  static OCTAVO_INLINE Ints sub(Ints a, Ints b) {
    return {vsubq_s32(a.lo, b.lo), vsubq_s32(a.hi, b.hi)};
  }
  static OCTAVO_INLINE Ints bit_and(Ints a, Ints b) {
    return {vandq_s32(a.lo, b.lo), vandq_s32(a.hi, b.hi)};
  }
  static OCTAVO_INLINE Ints bit_or(Ints a, Ints b) {
    return {vorrq_s32(a.lo, b.lo), vorrq_s32(a.hi, b.hi)};
  }
  static OCTAVO_INLINE Ints bit_xor(Ints a, Ints b) {
    return {veorq_s32(a.lo, b.lo), veorq_s32(a.hi, b.hi)};
  }
  static OCTAVO_INLINE Mask equal_ints(Ints a, Ints b) {
    return {vceqq_s32(a.lo, b.lo), vceqq_s32(a.hi, b.hi)};
  }
  template <int n>
  static OCTAVO_INLINE Ints shift_left(Ints a) {
    return {vshlq_n_s32(a.lo, n), vshlq_n_s32(a.hi, n)};
  }
  template <int n>
  static OCTAVO_INLINE Ints shift_right(Ints a) {
    return {shift_right_zero<n>(a.lo), shift_right_zero<n>(a.hi)};
  }
  template <int n>
  static OCTAVO_INLINE Ints shift_right_signed(Ints a) {
    if constexpr (n == 0) return a;
    else return {vshrq_n_s32(a.lo, n), vshrq_n_s32(a.hi, n)};
  }
  static OCTAVO_INLINE Ints shift_right_by(Ints a, Ints counts) {
    return {shift_right_by(a.lo, counts.lo), shift_right_by(a.hi, counts.hi)};
  }
  static OCTAVO_INLINE Floats to_floats(Ints a) { return {vcvtq_f32_s32(a.lo), vcvtq_f32_s32(a.hi)}; }
  static OCTAVO_INLINE Ints as_ints(Floats a) {
    return {vreinterpretq_s32_f32(a.lo), vreinterpretq_s32_f32(a.hi)};
  }
  static OCTAVO_INLINE Floats as_floats(Ints a) {
    return {vreinterpretq_f32_s32(a.lo), vreinterpretq_f32_s32(a.hi)};
  }

  // ---- panels ----

  static OCTAVO_INLINE Ints load_panels(const uint8_t* p, int64_t) {
    return {vreinterpretq_s32_u8(vld1q_u8(p)), vreinterpretq_s32_u8(vld1q_u8(p + 16))};
  }
  static OCTAVO_INLINE Floats load_panels_f32(const uint8_t* p, int64_t stride) {
    return as_floats(load_panels(p, stride));
  }
  static OCTAVO_INLINE Floats load_panels_f16(const uint8_t* p, int64_t) {
    return {vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))),
            vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8)))};
  }
  static OCTAVO_INLINE Ints load_panels_i8(const uint8_t* p, int64_t) {
    return load_i8(reinterpret_cast<const int8_t*>(p));
  }
  static OCTAVO_INLINE Ints load_panels_u8(const uint8_t* p, int64_t) { return load_u8(p); }
  static OCTAVO_INLINE Floats load_panels_e4m3(const uint8_t* p, int64_t) { return load_e4m3(p); }
  static OCTAVO_INLINE Ints look_up_bytes(const int8_t (&table)[16], Ints a) {
    const int8x16_t entries = vld1q_s8(table);
    return {vreinterpretq_s32_s8(vqtbl1q_s8(entries, vreinterpretq_u8_s32(a.lo))),
            vreinterpretq_s32_s8(vqtbl1q_s8(entries, vreinterpretq_u8_s32(a.hi)))};
  }
  static OCTAVO_INLINE Floats look_up_floats(const float (&table)[16], Ints a) {
    int32_t index[kLanes];
    float lanes[kLanes];
    store_ints(index, a);
    for (int i = 0; i < kLanes; ++i) lanes[i] = table[index[i]];
    return load(lanes);
  }
  template <int i>
  static OCTAVO_INLINE Ints byte(Ints a) {
    return bit_and(shift_right<8 * i>(a), set1_int(255));
  }
  template <int i>
  static OCTAVO_INLINE Ints byte_at_top(Ints a) {
    return bit_and(shift_left<24 - 8 * i>(a), set1_int(static_cast<int32_t>(0xff000000u)));
  }

 private:
  static OCTAVO_INLINE Floats widen_f16(uint16x8_t halves) {
    return {vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(halves))),
            vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(halves)))};
  }
  static OCTAVO_INLINE int32x4_t shift_right_by(int32x4_t a, int32x4_t counts) {
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vnegq_s32(counts)));
  }
  template <int n>
  static OCTAVO_INLINE int32x4_t shift_right_zero(int32x4_t a) {
    if constexpr (n == 0) return a;
    else return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), n));
  }
  static OCTAVO_INLINE uint16x4_t narrow_bf16(float32x4_t v) {
    const uint32x4_t raw = vreinterpretq_u32_f32(v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(raw, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(raw, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet_nan = vorrq_u32(raw, vdupq_n_u32(0x400000));
    return vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), rounded, quiet_nan), 16);
  }
  template <class Function>
  static OCTAVO_INLINE float reduce(Floats a, Function join) {
    float lane[kLanes], half[4];
    store(lane, a);
    for (int i = 0; i < 4; ++i) half[i] = join(lane[i], lane[i + 4]);
    return join(join(half[0], half[2]), join(half[1], half[3]));
  }
};

}  // namespace
}  // namespace octavo
