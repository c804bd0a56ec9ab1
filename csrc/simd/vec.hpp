// The vector layer: what a kernel may ask of an instruction set.
//
// scalar.hpp, avx2.hpp, avx512.hpp and neon.hpp each define one *policy*: a struct `V` of static functions
// on vectors of eight float32 lanes. A kernel is a template `template <class V>` on it. Every function
// below gives the same bits in every policy, so a kernel does too.
//
//   V::kName                  "scalar", "avx2", "avx512", "neon"
//   V::kLanes                 8
//   V::kRegisters             how many vectors the register file holds
//   V::Floats, V::Ints        kLanes float32 / int32 values
//   V::Mask                   one truth value per lane
//   V::Wide                   a second policy with the same functions and 8 or 16 lanes (V::Wide::kLanes),
//                             the width at which this instruction set multiplies fastest. Use it only
//                             where lanes never mix, or results depend on the machine.
//
// Memory (no alignment is needed; `first` variants touch n in [0, kLanes] elements and read zeros else)
//   load(const float*)                      store(float*, Floats)
//   load_first(const float*, n)             store_first(float*, Floats, n)
//   load_f16 / load_bf16(const uint16_t*)   store_f16 / store_bf16(uint16_t*, Floats)
//   load_first_f16 / load_first_bf16        store_first_f16 / store_first_bf16
//   load_ints(const int32_t*)               store_ints(int32_t*, Ints)
//   load_i8(const int8_t*), load_u8(const uint8_t*)   kLanes bytes, widened to Ints
//   store_i8(int8_t*, const Ints (&)[4])    4 kLanes bytes; only for -128..127
//   store_u8(uint8_t*, Ints)                the low byte of each lane
//   load_i4(const uint8_t*)                 kLanes signed halves of bytes, the low one first, widened to Ints
//   load_e5m2(const uint8_t*)               kLanes 8-bit floats E5M2, widened
//   load_e4m3(const uint8_t*)               kLanes 8-bit floats E4M3, widened and divided by 256
//
// Floats
//   zero() set1(x) add sub mul div sqrt abs
//   fma(a, b, c) = a * b + c, fnma(a, b, c) = c - a * b, each rounded once
//   max(a, b) = a > b ? a : b, min(a, b) = a < b ? a : b: a NaN in either gives b. (Where denormals are
//     flushed to zero, these two may still return one; no arithmetic tells it from zero.)
//   round(a) to nearest even, floor(a)
//   to_ints(a) rounds to nearest even; only for |a| < 2^31
//   less(a, b), greater(a, b), equal(a, b) -> Mask; false where either is NaN
//   select(mask, a, b) = mask ? a : b       (Floats or Ints)
//   first(n): Mask of the first n lanes   bits(mask): bit i is lane i   swap_lanes<n>(a)[i] = a[i ^ n], n = 1, 2, 4
//   reduce_add, reduce_max, reduce_min      lane i with i + 4, then with i + 2, then with i + 1
//
// Ints
//   set1_int(x) add sub bit_and bit_or bit_xor equal_ints(a, b) -> Mask
//   reduce_add(a) -> int32_t; sums that do not fit wrap around, here and in add, sub and shift_left
//   shift_left<n>, shift_right<n> (zeros come in), shift_right_signed<n>
//   shift_right_by(a, counts)               each lane by its own count in [0, 31]; zeros come in
//   to_floats(a) rounds to nearest even     as_ints(Floats), as_floats(Ints): the same bits
//
// Panels of packed weights (packing.hpp). Eight lanes come from `p`; where a vector has sixteen, the upper
// eight come from `p + stride` bytes, the same place of the next panel.
//   kPanels = kLanes / 8
//   load_panels(p, stride) 32 bytes -> Ints       load_panels_f32(p, stride) 8 f32 -> Floats
//   load_panels_f16(p, stride) 8 f16 -> Floats    load_panels_i8, load_panels_u8(p, stride) 8 bytes -> Ints
//   load_panels_e4m3(p, stride) 8 bytes E4M3 -> Floats, divided by 256
//   byte<i>(a): byte i of each lane, 0..255       byte_at_top<i>(a): byte i of each lane << 24
//   look_up_bytes(const int8_t (&)[16], a): entry [b] for each byte b of a, all in 0..15
//   look_up_floats(const float (&)[16], a): entry [n] for each lane n of a, all in 0..15
//
// Rules for kernels. Each policy's translation unit is compiled with other flags (-mavx2, -mavx512f, ...),
// and the linker keeps just one copy of an inline function that several units define. If that copy was
// compiled for AVX-512, calling it elsewhere is an illegal instruction. Therefore:
//   * policies live in an unnamed namespace: they, and every template over them, are local to the unit;
//   * a kernel header holds templates over a policy, constants and OCTAVO_INLINE functions, nothing else;
//   * kernels call no inline function of the standard library (std::min, std::vector, ...).
// GCC and Clang may fuse `a * b + c` on their own, which changes bits: these units are compiled with
// -ffp-contract=off and never with -ffast-math; a fused operation is always written fma().
#pragma once

#define OCTAVO_INLINE inline __attribute__((always_inline))

#if defined(__clang__)
#define OCTAVO_UNROLL _Pragma("clang loop unroll(full)")
#define OCTAVO_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define OCTAVO_UNROLL _Pragma("GCC unroll 64")
#define OCTAVO_NO_UNROLL _Pragma("GCC unroll 1")
#endif
