// The 16-bit float formats, one number at a time: IEEE 754 binary16 ("f16") and bfloat16 ("bf16"); and the
// way from the 8-bit formats of OCP ("E4M3", "E5M2") to f16.
//
// Integer arithmetic only, so the results depend neither on the instruction set nor on the rounding or
// denormal mode. Narrowing rounds to nearest even; a NaN stays a (quiet) NaN of the same sign. The
// vector conversions of every policy give the same bits.
#pragma once

#include <cstdint>

#include "vec.hpp"

namespace octavo {
namespace {

OCTAVO_INLINE uint32_t float_bits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

OCTAVO_INLINE float float_from_bits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

OCTAVO_INLINE float bf16_to_float(uint16_t half) {
  return float_from_bits(static_cast<uint32_t>(half) << 16);
}

OCTAVO_INLINE uint16_t float_to_bf16(float value) {
  const uint32_t bits = float_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

OCTAVO_INLINE float f16_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 31u;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 31u) {  // infinity, NaN
    const uint32_t quiet = mantissa ? 0x400000u : 0u;
    return float_from_bits(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  if (exponent != 0u) return float_from_bits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  if (mantissa == 0u) return float_from_bits(sign);
  // A denormal: mantissa * 2^-24, its leading one becomes the implicit bit.
  const uint32_t shift = static_cast<uint32_t>(__builtin_clz(mantissa)) - 21u;
  return float_from_bits(sign | ((113u - shift) << 23) | (((mantissa << shift) & 0x3ffu) << 13));
}

// E5M2 is the upper half of an f16.
OCTAVO_INLINE uint16_t e5m2_to_f16(uint8_t value) { return static_cast<uint16_t>(value << 8); }

// The number divided by 256, because E4M3's exponents count from 2^-7 and those of f16 from 2^-15.
OCTAVO_INLINE uint16_t e4m3_to_f16(uint8_t value) {
  const uint32_t magnitude = value & 0x7fu;
  if (magnitude == 0x7fu) return 0xffffu;  // NaN
  return static_cast<uint16_t>(((value & 0x80u) << 8) | (magnitude << 7));
}

OCTAVO_INLINE uint16_t float_to_f16(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // from 65520 on: infinity
  if (magnitude >= 0x38800000u) {  // a normal f16; a carry out of the mantissa raises the exponent
    const uint32_t rebased = magnitude - (112u << 23);
    return static_cast<uint16_t>(sign | ((rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13));
  }
  if (magnitude <= 0x33000000u) return static_cast<uint16_t>(sign);  // up to 2^-25: zero
  // A denormal f16: the mantissa with its implicit bit in units of 2^-24.
  const uint32_t shift = 126u - (magnitude >> 23);  // 14..24
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t half_unit = 1u << (shift - 1u);
  const uint32_t rounded = (mantissa + half_unit - 1u + ((mantissa >> shift) & 1u)) >> shift;
  return static_cast<uint16_t>(sign | rounded);
}

}  // namespace
}  // namespace octavo
