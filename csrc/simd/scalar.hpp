// Vectors as plain arrays: every machine runs it, and it says what the other policies must compute.
#pragma once

#include <cstdint>

#include "half.hpp"
#include "vec.hpp"

namespace octavo {
namespace {

struct Scalar {
  static constexpr const char* kName = "scalar";
  static constexpr int kLanes = 8;
  static constexpr int kPanels = 1;
  using Wide = Scalar;

  struct Floats {
    float lane[kLanes];
  };
  struct Ints {
    int32_t lane[kLanes];
  };
  struct Mask {
    bool lane[kLanes];
  };

  // ---- memory ----

  static OCTAVO_INLINE Floats load(const float* p) {
    Floats v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static OCTAVO_INLINE void store(float* p, Floats v) { __builtin_memcpy(p, &v, sizeof v); }
  static OCTAVO_INLINE Floats load_first(const float* p, int64_t n) {
    Floats v = zero();
    for (int64_t i = 0; i < n; ++i) v.lane[i] = p[i];
    return v;
  }
  static OCTAVO_INLINE void store_first(float* p, Floats v, int64_t n) {
    for (int64_t i = 0; i < n; ++i) p[i] = v.lane[i];
  }
  static OCTAVO_INLINE Floats load_f16(const uint16_t* p) { return load_first_f16(p, kLanes); }
  static OCTAVO_INLINE Floats load_bf16(const uint16_t* p) { return load_first_bf16(p, kLanes); }
  static OCTAVO_INLINE void store_f16(uint16_t* p, Floats v) { store_first_f16(p, v, kLanes); }
  static OCTAVO_INLINE void store_bf16(uint16_t* p, Floats v) { store_first_bf16(p, v, kLanes); }
  static OCTAVO_INLINE Floats load_first_f16(const uint16_t* p, int64_t n) {
    Floats v = zero();
    for (int64_t i = 0; i < n; ++i) v.lane[i] = f16_to_float(p[i]);
    return v;
  }
  static OCTAVO_INLINE Floats load_first_bf16(const uint16_t* p, int64_t n) {
    Floats v = zero();
    for (int64_t i = 0; i < n; ++i) v.lane[i] = bf16_to_float(p[i]);
    return v;
  }
  static OCTAVO_INLINE void store_first_f16(uint16_t* p, Floats v, int64_t n) {
    for (int64_t i = 0; i < n; ++i) p[i] = float_to_f16(v.lane[i]);
  }
  static OCTAVO_INLINE void store_first_bf16(uint16_t* p, Floats v, int64_t n) {
    for (int64_t i = 0; i < n; ++i) p[i] = float_to_bf16(v.lane[i]);
  }
  static OCTAVO_INLINE Ints load_ints(const int32_t* p) {
    Ints v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static OCTAVO_INLINE void store_ints(int32_t* p, Ints v) { __builtin_memcpy(p, &v, sizeof v); }
  static OCTAVO_INLINE Ints load_i8(const int8_t* p) {
    return each_int([p](int i) { return static_cast<int32_t>(p[i]); });
  }
  static OCTAVO_INLINE Ints load_u8(const uint8_t* p) {
    return each_int([p](int i) { return static_cast<int32_t>(p[i]); });
  }

  // ---- floats ----

  static OCTAVO_INLINE Floats zero() { return set1(0.0f); }
  static OCTAVO_INLINE Floats set1(float x) {
    return each_float([x](int) { return x; });
  }
  static OCTAVO_INLINE Floats add(Floats a, Floats b) {
    return each_float([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static OCTAVO_INLINE Floats sub(Floats a, Floats b) {
    return each_float([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static OCTAVO_INLINE Floats mul(Floats a, Floats b) {
    return each_float([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static OCTAVO_INLINE Floats div(Floats a, Floats b) {
    return each_float([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  static OCTAVO_INLINE Floats fma(Floats a, Floats b, Floats c) {
    return each_float([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
  }
  static OCTAVO_INLINE Floats fnma(Floats a, Floats b, Floats c) {
    return each_float([&](int i) { return __builtin_fmaf(-a.lane[i], b.lane[i], c.lane[i]); });
  }
  static OCTAVO_INLINE Floats max(Floats a, Floats b) {
    return each_float([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static OCTAVO_INLINE Floats min(Floats a, Floats b) {
    return each_float([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static OCTAVO_INLINE Floats sqrt(Floats a) {
    return each_float([&](int i) { return __builtin_sqrtf(a.lane[i]); });
  }
  static OCTAVO_INLINE Floats abs(Floats a) {
    return each_float([&](int i) { return __builtin_fabsf(a.lane[i]); });
  }
  static OCTAVO_INLINE Floats round(Floats a) {
    return each_float([&](int i) { return __builtin_nearbyintf(a.lane[i]); });
  }
  static OCTAVO_INLINE Floats floor(Floats a) {
    return each_float([&](int i) { return __builtin_floorf(a.lane[i]); });
  }
  static OCTAVO_INLINE Ints to_ints(Floats a) {
    return each_int([&](int i) { return static_cast<int32_t>(__builtin_nearbyintf(a.lane[i])); });
  }

  static OCTAVO_INLINE Mask less(Floats a, Floats b) {
    return each_mask([&](int i) { return a.lane[i] < b.lane[i]; });
  }
  static OCTAVO_INLINE Mask greater(Floats a, Floats b) {
    return each_mask([&](int i) { return a.lane[i] > b.lane[i]; });
  }
  static OCTAVO_INLINE Mask equal(Floats a, Floats b) {
    return each_mask([&](int i) { return a.lane[i] == b.lane[i]; });
  }
  static OCTAVO_INLINE Mask first(int64_t n) {
    return each_mask([n](int i) { return i < n; });
  }
  static OCTAVO_INLINE Floats select(Mask m, Floats a, Floats b) {
    return each_float([&](int i) { return m.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static OCTAVO_INLINE Ints select(Mask m, Ints a, Ints b) {
    return each_int([&](int i) { return m.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static OCTAVO_INLINE uint32_t bits(Mask m) {
    uint32_t result = 0;
    for (int i = 0; i < kLanes; ++i) result |= static_cast<uint32_t>(m.lane[i]) << i;
    return result;
  }

  static OCTAVO_INLINE float reduce_add(Floats a) {
    return reduce(a, [](float x, float y) { return x + y; });
  }
  static OCTAVO_INLINE float reduce_max(Floats a) {
    return reduce(a, [](float x, float y) { return x > y ? x : y; });
  }
  static OCTAVO_INLINE float reduce_min(Floats a) {
    return reduce(a, [](float x, float y) { return x < y ? x : y; });
  }

  // ---- ints ----

  static OCTAVO_INLINE Ints set1_int(int32_t x) {
    return each_int([x](int) { return x; });
  }
  static OCTAVO_INLINE Ints add(Ints a, Ints b) {
    return each_word([&](int i) { return word(a, i) + word(b, i); });
  }
  static OCTAVO_INLINE Ints sub(Ints a, Ints b) {
    return each_word([&](int i) { return word(a, i) - word(b, i); });
  }
  static OCTAVO_INLINE Ints bit_and(Ints a, Ints b) {
    return each_word([&](int i) { return word(a, i) & word(b, i); });
  }
  static OCTAVO_INLINE Ints bit_or(Ints a, Ints b) {
    return each_word([&](int i) { return word(a, i) | word(b, i); });
  }
  static OCTAVO_INLINE Ints bit_xor(Ints a, Ints b) {
    return each_word([&](int i) { return word(a, i) ^ word(b, i); });
  }
  static OCTAVO_INLINE Mask equal_ints(Ints a, Ints b) {
    return each_mask([&](int i) { return a.lane[i] == b.lane[i]; });
  }
  template <int n>
  static OCTAVO_INLINE Ints shift_left(Ints a) {
    return each_word([&](int i) { return word(a, i) << n; });
  }
  template <int n>
  static OCTAVO_INLINE Ints shift_right(Ints a) {
    return each_word([&](int i) { return word(a, i) >> n; });
  }
  template <int n>
  static OCTAVO_INLINE Ints shift_right_signed(Ints a) {
    return each_int([&](int i) { return a.lane[i] >> n; });
  }
  static OCTAVO_INLINE Floats to_floats(Ints a) {
    return each_float([&](int i) { return static_cast<float>(a.lane[i]); });
  }
  static OCTAVO_INLINE Ints as_ints(Floats a) {
    Ints v;
    __builtin_memcpy(&v, &a, sizeof v);
    return v;
  }
  static OCTAVO_INLINE Floats as_floats(Ints a) {
    Floats v;
    __builtin_memcpy(&v, &a, sizeof v);
    return v;
  }

  // ---- panels ----

  static OCTAVO_INLINE Ints load_panels(const uint8_t* p, int64_t) {
    Ints v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static OCTAVO_INLINE Floats load_panels_f32(const uint8_t* p, int64_t stride) {
    return as_floats(load_panels(p, stride));
  }
  static OCTAVO_INLINE Floats load_panels_f16(const uint8_t* p, int64_t) {
    uint16_t half[kLanes];
    __builtin_memcpy(half, p, sizeof half);
    return load_f16(half);
  }
  static OCTAVO_INLINE Ints load_panels_i8(const uint8_t* p, int64_t) {
    return each_int([p](int i) { return static_cast<int32_t>(static_cast<int8_t>(p[i])); });
  }
  static OCTAVO_INLINE Ints load_panels_u8(const uint8_t* p, int64_t) { return load_u8(p); }
  template <int i>
  static OCTAVO_INLINE Ints byte(Ints a) {
    return each_word([&](int lane) { return (word(a, lane) >> (8 * i)) & 255u; });
  }
  template <int i>
  static OCTAVO_INLINE Ints byte_at_top(Ints a) {
    return each_word([&](int lane) { return (word(a, lane) >> (8 * i)) << 24; });
  }

 private:
  static OCTAVO_INLINE uint32_t word(const Ints& a, int i) {
    return static_cast<uint32_t>(a.lane[i]);
  }
  template <class Function>
  static OCTAVO_INLINE Floats each_float(Function function) {
    Floats v;
    for (int i = 0; i < kLanes; ++i) v.lane[i] = function(i);
    return v;
  }
  template <class Function>
  static OCTAVO_INLINE Ints each_int(Function function) {
    Ints v;
    for (int i = 0; i < kLanes; ++i) v.lane[i] = function(i);
    return v;
  }
  template <class Function>
  static OCTAVO_INLINE Ints each_word(Function function) {
    Ints v;
    for (int i = 0; i < kLanes; ++i) v.lane[i] = static_cast<int32_t>(function(i));
    return v;
  }
  template <class Function>
  static OCTAVO_INLINE Mask each_mask(Function function) {
    Mask m;
    for (int i = 0; i < kLanes; ++i) m.lane[i] = function(i);
    return m;
  }
  template <class Function>
  static OCTAVO_INLINE float reduce(const Floats& a, Function join) {
    float half[4];
    for (int i = 0; i < 4; ++i) half[i] = join(a.lane[i], a.lane[i + 4]);
    return join(join(half[0], half[2]), join(half[1], half[3]));
  }
};

}  // namespace
}  // namespace octavo
