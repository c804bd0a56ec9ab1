// Vectors without an instruction set: the generic vector types of GCC and Clang, four lanes at a time, which
// the compiler turns into whatever the baseline of the machine has (SSE2 on x86-64).
#pragma once

#include <cstdint>

#include "half.hpp"
#include "vec.hpp"

namespace octavo {
namespace {

struct Scalar {
  using Floats4 = float __attribute__((vector_size(16)));
  using Ints4 = int32_t __attribute__((vector_size(16)));
  using Words4 = uint32_t __attribute__((vector_size(16)));

  static constexpr const char* kName = "scalar";
  static constexpr int kLanes = 8;
  static constexpr int kPanels = 1;
  static constexpr int kRegisters = 8;
  using Wide = Scalar;

  struct Floats {
    Floats4 lo, hi;
  };
  struct Ints {
    Ints4 lo, hi;
  };
  struct Mask {
    Ints4 lo, hi;  // all bits of a lane, set or clear
  };

  // ---- memory ----

  static OCTAVO_INLINE Floats load(const float* p) {
    Floats v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static OCTAVO_INLINE void store(float* p, Floats v) { __builtin_memcpy(p, &v, sizeof v); }
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
  static OCTAVO_INLINE Floats load_f16(const uint16_t* p) { return load_first_f16(p, kLanes); }
  static OCTAVO_INLINE Floats load_bf16(const uint16_t* p) { return load_first_bf16(p, kLanes); }
  static OCTAVO_INLINE void store_f16(uint16_t* p, Floats v) { store_first_f16(p, v, kLanes); }
  static OCTAVO_INLINE void store_bf16(uint16_t* p, Floats v) { store_first_bf16(p, v, kLanes); }
  static OCTAVO_INLINE Floats load_first_f16(const uint16_t* p, int64_t n) {
    float lanes[kLanes] = {};
    for (int64_t i = 0; i < n; ++i) lanes[i] = f16_to_float(p[i]);
    return load(lanes);
  }
  static OCTAVO_INLINE Floats load_first_bf16(const uint16_t* p, int64_t n) {
    float lanes[kLanes] = {};
    for (int64_t i = 0; i < n; ++i) lanes[i] = bf16_to_float(p[i]);
    return load(lanes);
  }
  static OCTAVO_INLINE void store_first_f16(uint16_t* p, Floats v, int64_t n) {
    float lanes[kLanes];
    store(lanes, v);
    for (int64_t i = 0; i < n; ++i) p[i] = float_to_f16(lanes[i]);
  }
  static OCTAVO_INLINE void store_first_bf16(uint16_t* p, Floats v, int64_t n) {
    float lanes[kLanes];
    store(lanes, v);
    for (int64_t i = 0; i < n; ++i) p[i] = float_to_bf16(lanes[i]);
  }
  static OCTAVO_INLINE Ints load_ints(const int32_t* p) {
    Ints v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static OCTAVO_INLINE void store_ints(int32_t* p, Ints v) { __builtin_memcpy(p, &v, sizeof v); }
  static OCTAVO_INLINE void store_i8(int8_t* p, const Ints (&v)[4]) {
    int32_t lanes[4 * kLanes];
    __builtin_memcpy(lanes, v, sizeof lanes);
    for (int i = 0; i < 4 * kLanes; ++i) p[i] = static_cast<int8_t>(lanes[i]);
  }
  static OCTAVO_INLINE void store_u8(uint8_t* p, Ints v) {
    int32_t lanes[kLanes];
    store_ints(lanes, v);
    for (int i = 0; i < kLanes; ++i) p[i] = static_cast<uint8_t>(lanes[i] & 255);
  }
  static OCTAVO_INLINE Ints load_i4(const uint8_t* p) {
    int32_t lanes[kLanes];
    for (int i = 0; i < kLanes; ++i) lanes[i] = ((p[i / 2] >> (i % 2 * 4) & 15) ^ 8) - 8;
    return load_ints(lanes);
  }
  static OCTAVO_INLINE Floats load_e5m2(const uint8_t* p) {
    float lanes[kLanes];
    for (int i = 0; i < kLanes; ++i) lanes[i] = f16_to_float(e5m2_to_f16(p[i]));
    return load(lanes);
  }
  static OCTAVO_INLINE Floats load_e4m3(const uint8_t* p) {
    float lanes[kLanes];
    for (int i = 0; i < kLanes; ++i) lanes[i] = f16_to_float(e4m3_to_f16(p[i]));
    return load(lanes);
  }
  static OCTAVO_INLINE Ints load_i8(const int8_t* p) {
    int32_t lanes[kLanes];
    for (int i = 0; i < kLanes; ++i) lanes[i] = p[i];
    return load_ints(lanes);
  }
  static OCTAVO_INLINE Ints load_u8(const uint8_t* p) {
    int32_t lanes[kLanes];
    for (int i = 0; i < kLanes; ++i) lanes[i] = p[i];
    return load_ints(lanes);
  }

  // ---- floats ----

  static OCTAVO_INLINE Floats zero() { return set1(0.0f); }
  static OCTAVO_INLINE Floats set1(float x) { return {Floats4{x, x, x, x}, Floats4{x, x, x, x}}; }
  static OCTAVO_INLINE Floats add(Floats a, Floats b) { return {a.lo + b.lo, a.hi + b.hi}; }
  static OCTAVO_INLINE Floats sub(Floats a, Floats b) { return {a.lo - b.lo, a.hi - b.hi}; }
  static OCTAVO_INLINE Floats mul(Floats a, Floats b) { return {a.lo * b.lo, a.hi * b.hi}; }
  static OCTAVO_INLINE Floats div(Floats a, Floats b) { return {a.lo / b.lo, a.hi / b.hi}; }
  static OCTAVO_INLINE Floats fma(Floats a, Floats b, Floats c) {
    fma_in_place(a, b, c);
    return c;
  }
  static OCTAVO_INLINE Floats fnma(Floats a, Floats b, Floats c) { return fma(negate(a), b, c); }
  static OCTAVO_INLINE Floats max(Floats a, Floats b) { return select(greater(a, b), a, b); }
  static OCTAVO_INLINE Floats min(Floats a, Floats b) { return select(less(a, b), a, b); }
  static OCTAVO_INLINE Floats sqrt(Floats a) {
    float lanes[kLanes];
    store(lanes, a);
    for (int i = 0; i < kLanes; ++i) lanes[i] = __builtin_sqrtf(lanes[i]);
    return load(lanes);
  }
  static OCTAVO_INLINE Floats abs(Floats a) {
    return as_floats(bit_and(as_ints(a), set1_int(0x7fffffff)));
  }
  // From 2^23 on there is no fraction; below, adding and subtracting 2^23 leaves none.
  static OCTAVO_INLINE Floats round(Floats a) {
    const Ints sign = bit_and(as_ints(a), set1_int(INT32_MIN));
    const Floats magic = set1(0x1p23f);
    const Floats magnitude = abs(a);
    const Floats rounded = sub(add(magnitude, magic), magic);
    const Floats signed_rounded = as_floats(bit_or(as_ints(rounded), sign));
    return select(less(magnitude, magic), signed_rounded, a);
  }
  static OCTAVO_INLINE Floats floor(Floats a) {
    const Floats rounded = round(a);
    return select(greater(rounded, a), sub(rounded, set1(1.0f)), rounded);
  }
  static OCTAVO_INLINE Ints to_ints(Floats a) {
    const Floats rounded = round(a);
    return {__builtin_convertvector(rounded.lo, Ints4), __builtin_convertvector(rounded.hi, Ints4)};
  }

  static OCTAVO_INLINE Mask less(Floats a, Floats b) { return {a.lo < b.lo, a.hi < b.hi}; }
  static OCTAVO_INLINE Mask greater(Floats a, Floats b) { return {a.lo > b.lo, a.hi > b.hi}; }
  static OCTAVO_INLINE Mask equal(Floats a, Floats b) { return {a.lo == b.lo, a.hi == b.hi}; }
  static OCTAVO_INLINE Mask first(int64_t n) {
    const int32_t count = static_cast<int32_t>(n);
    const Ints4 counts = {count, count, count, count};
    return {Ints4{0, 1, 2, 3} < counts, Ints4{4, 5, 6, 7} < counts};
  }
  static OCTAVO_INLINE Floats select(Mask m, Floats a, Floats b) {
    return as_floats(select(m, as_ints(a), as_ints(b)));
  }
  static OCTAVO_INLINE Ints select(Mask m, Ints a, Ints b) {
    return {(a.lo & m.lo) | (b.lo & ~m.lo), (a.hi & m.hi) | (b.hi & ~m.hi)};
  }
  static OCTAVO_INLINE uint32_t bits(Mask m) {
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
      result |= (m.lo[i] ? 1u << i : 0u) | (m.hi[i] ? 16u << i : 0u);
    }
    return result;
  }

  template <int n>
  static OCTAVO_INLINE Floats swap_lanes(Floats a) {
    if constexpr (n == 4) {
      return {a.hi, a.lo};
    } else {
      const Floats4 lo = a.lo, hi = a.hi;
      return {Floats4{lo[n], lo[1 ^ n], lo[2 ^ n], lo[3 ^ n]},
              Floats4{hi[n], hi[1 ^ n], hi[2 ^ n], hi[3 ^ n]}};
    }
  }
  static OCTAVO_INLINE float reduce_add(Floats a) {
    const Floats4 half = a.lo + a.hi;
    return (half[0] + half[2]) + (half[1] + half[3]);
  }
  static OCTAVO_INLINE float reduce_max(Floats a) {
    return reduce(a, [](float x, float y) { return x > y ? x : y; });
  }
  static OCTAVO_INLINE float reduce_min(Floats a) {
    return reduce(a, [](float x, float y) { return x < y ? x : y; });
  }

  // ---- ints ----

  static OCTAVO_INLINE int32_t reduce_add(Ints a) {
    const Words4 half = words(a.lo) + words(a.hi);
    return static_cast<int32_t>(half[0] + half[1] + half[2] + half[3]);
  }
  static OCTAVO_INLINE Ints set1_int(int32_t x) { return {Ints4{x, x, x, x}, Ints4{x, x, x, x}}; }
  static OCTAVO_INLINE Ints add(Ints a, Ints b) {
    return {ints(words(a.lo) + words(b.lo)), ints(words(a.hi) + words(b.hi))};
  }
  static OCTAVO_INLINE Ints sub(Ints a, Ints b) {
    return {ints(words(a.lo) - words(b.lo)), ints(words(a.hi) - words(b.hi))};
  }
  static OCTAVO_INLINE Ints bit_and(Ints a, Ints b) { return {a.lo & b.lo, a.hi & b.hi}; }
  static OCTAVO_INLINE Ints bit_or(Ints a, Ints b) { return {a.lo | b.lo, a.hi | b.hi}; }
  static OCTAVO_INLINE Ints bit_xor(Ints a, Ints b) { return {a.lo ^ b.lo, a.hi ^ b.hi}; }
  static OCTAVO_INLINE Mask equal_ints(Ints a, Ints b) { return {a.lo == b.lo, a.hi == b.hi}; }
  template <int n>
  static OCTAVO_INLINE Ints shift_left(Ints a) {
    return {ints(words(a.lo) << n), ints(words(a.hi) << n)};
  }
  template <int n>
  static OCTAVO_INLINE Ints shift_right(Ints a) {
    return {ints(words(a.lo) >> n), ints(words(a.hi) >> n)};
  }
  template <int n>
  static OCTAVO_INLINE Ints shift_right_signed(Ints a) {
    return {a.lo >> n, a.hi >> n};
  }
  static OCTAVO_INLINE Ints shift_right_by(Ints a, Ints counts) {
    return {ints(words(a.lo) >> words(counts.lo)), ints(words(a.hi) >> words(counts.hi))};
  }
  static OCTAVO_INLINE Floats to_floats(Ints a) {
    return {__builtin_convertvector(a.lo, Floats4), __builtin_convertvector(a.hi, Floats4)};
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
    uint16_t halves[kLanes];
    __builtin_memcpy(halves, p, sizeof halves);
    return load_f16(halves);
  }
  static OCTAVO_INLINE Ints load_panels_i8(const uint8_t* p, int64_t) {
    return load_i8(reinterpret_cast<const int8_t*>(p));
  }
  static OCTAVO_INLINE Ints load_panels_u8(const uint8_t* p, int64_t) { return load_u8(p); }
  static OCTAVO_INLINE Floats load_panels_e4m3(const uint8_t* p, int64_t) { return load_e4m3(p); }
  static OCTAVO_INLINE Ints look_up_bytes(const int8_t (&table)[16], Ints a) {
    uint8_t bytes[4 * kLanes];
    __builtin_memcpy(bytes, &a, sizeof bytes);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(table[byte]);
    return load_panels(bytes, 0);
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
    return bit_and(shift_left<24 - 8 * i>(a), set1_int(INT32_MIN >> 7));
  }

 private:
  using Floats2 = float __attribute__((vector_size(8)));
  using Doubles2 = double __attribute__((vector_size(16)));
  using Longs2 = int64_t __attribute__((vector_size(16)));

  static OCTAVO_INLINE Words4 words(Ints4 a) { return reinterpret_cast<Words4>(a); }
  static OCTAVO_INLINE Ints4 ints(Words4 a) { return reinterpret_cast<Ints4>(a); }
  static OCTAVO_INLINE Floats negate(Floats a) {
    return as_floats(bit_xor(as_ints(a), set1_int(INT32_MIN)));
  }

  // c = a * b + c without a fused instruction. Not inlined: it is long.
  static __attribute__((noinline)) void fma_in_place(const Floats& a, const Floats& b, Floats& c) {
    float la[kLanes], lb[kLanes], lc[kLanes];
    store(la, a);
    store(lb, b);
    store(lc, c);
    OCTAVO_UNROLL for (int i = 0; i < kLanes; i += 2) {
      const Doubles2 odd = multiply_add(widen(la + i), widen(lb + i), widen(lc + i));
      const Floats2 rounded = __builtin_convertvector(odd, Floats2);
      __builtin_memcpy(lc + i, &rounded, sizeof rounded);
    }
    c = load(lc);
  }
  static OCTAVO_INLINE Doubles2 widen(const float* p) {
    Floats2 v;
    __builtin_memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, Doubles2);
  }
  // a * b + c of numbers that have float32 precision. The product is exact; the sum is rounded to odd (Boldo
  // and Melquiond, "Emulation of FMA and correctly rounded sums", 2008), so that rounding it once more, to
  // float32, gives what a single rounding would.
  static OCTAVO_INLINE Doubles2 multiply_add(Doubles2 a, Doubles2 b, Doubles2 c) {
    const Doubles2 product = a * b;
    const Doubles2 sum = product + c;
    const Doubles2 part = sum - product;
    const Doubles2 error = (product - (sum - part)) + (c - part);

    const Longs2 is_inexact = (error > 0.0) | (error < 0.0);  // false for NaN
    const Longs2 raw = reinterpret_cast<Longs2>(sum);
    const Longs2 is_even = (raw & 1) - 1;
    const Longs2 towards_error = ((sum < 0.0) ^ (error < 0.0)) | 1;  // +1 away from zero, else -1
    return reinterpret_cast<Doubles2>(raw + (towards_error & is_inexact & is_even));
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
