// The stored number formats, written down a second time from their definitions (IEEE 754, GGUF), one element
// at a time: what packing and kernels are checked against.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "packing.hpp"

namespace octavo::tests {

inline uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// IEEE 754 binary16: sign, 5 bits of exponent with bias 15, 10 bits of fraction.
inline float f16_value(uint16_t half) {
  const int exponent = (half >> 10) & 31, fraction = half & 1023;
  const float sign = half & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) {
    return fraction ? std::numeric_limits<float>::quiet_NaN() : sign * std::numeric_limits<float>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

inline float bf16_value(uint16_t half) { return float_of(static_cast<uint32_t>(half) << 16); }

// The half nearest to x, found by search; on a tie the one with an even last bit. `value` maps the halves
// 0 .. last (finite, then infinity, which counts as the next power of two) to increasing numbers.
inline uint16_t nearest_half(float x, uint16_t infinity, float (*value)(uint16_t)) {
  if (std::isnan(x)) return 0xffff;
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(x));
  uint16_t low = 0, high = infinity;
  const auto value_of = [&](uint16_t half) -> double {
    if (half < infinity) return value(half);
    const double last = value(static_cast<uint16_t>(infinity - 1));
    return last + (last - value(static_cast<uint16_t>(infinity - 2)));
  };
  while (high - low > 1) {
    const uint16_t middle = static_cast<uint16_t>((low + high) / 2);
    if (value_of(middle) <= magnitude) low = middle;
    else high = middle;
  }
  const double below = magnitude - value_of(low), above = value_of(high) - magnitude;
  const bool takes_low = below < above || (below == above && low % 2 == 0);
  return sign | (takes_low ? low : high);
}

inline uint16_t half_at(const uint8_t* p) { return static_cast<uint16_t>(p[0] | (p[1] << 8)); }

// A weight of a quantised type: scale * q + offset.
struct BlockElement {
  float scale;
  int q;
  float offset;
};

// Element `e` of a block of Q4_K or Q5_K.
inline BlockElement element_of_k45(WeightType type, const uint8_t* block, int e) {
  const float d = f16_value(half_at(block)), dmin = f16_value(half_at(block + 2));
  const uint8_t* s = block + 4;
  const int g = e / 32;
  const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) + 16 * (s[g - 4] >> 6);
  const int minimum = g < 4 ? s[g + 4] & 63 : (s[g + 4] >> 4) + 16 * (s[g] >> 6);
  const bool is_q5 = type == WeightType::Q5_K;
  const uint8_t byte = block[(is_q5 ? 48 : 16) + 32 * (e / 64) + e % 32];
  int q = g % 2 == 0 ? byte & 15 : byte >> 4;
  if (is_q5) q += 16 * ((block[16 + e % 32] >> g) & 1);
  return {d * static_cast<float>(scale), q, -(dmin * static_cast<float>(minimum))};
}

inline BlockElement element_of_q6_k(const uint8_t* block, int e) {
  const int half = e / 128, quarter = e % 128 / 32, l = e % 32;
  const uint8_t low_byte = block[64 * half + 32 * (quarter % 2) + l];
  const int low = quarter < 2 ? low_byte & 15 : low_byte >> 4;
  const int high = (block[128 + 32 * half + l] >> (2 * quarter)) & 3;
  const int scale = static_cast<int8_t>(block[192 + e / 16]);
  return {f16_value(half_at(block + 208)) * static_cast<float>(scale), low + 16 * high - 32, 0.0f};
}

// Element `e` of a block, as the GGUF tensor formats define it. Quantised types only.
inline BlockElement block_element(WeightType type, const uint8_t* block, int e) {
  const auto nibble = [e](const uint8_t* bytes) { return e < 16 ? bytes[e] & 15 : bytes[e - 16] >> 4; };
  const auto fifth = [e](const uint8_t* bits) { return ((bits[e / 8] >> (e % 8)) & 1) << 4; };
  const float d = f16_value(half_at(block)), m = f16_value(half_at(block + 2));
  switch (type) {
    case WeightType::Q4_0: return {d, nibble(block + 2) - 8, 0.0f};
    case WeightType::Q4_1: return {d, nibble(block + 4), m};
    case WeightType::Q5_0: return {d, (nibble(block + 6) | fifth(block + 2)) - 16, 0.0f};
    case WeightType::Q5_1: return {d, nibble(block + 8) | fifth(block + 4), m};
    case WeightType::Q8_0: return {d, static_cast<int8_t>(block[2 + e]), 0.0f};
    case WeightType::Q4_K:
    case WeightType::Q5_K: return element_of_k45(type, block, e);
    default: return element_of_q6_k(block, e);
  }
}

inline float block_value(WeightType type, const uint8_t* block, int e) {
  switch (type) {
    case WeightType::F32: {
      float x;
      std::memcpy(&x, block, sizeof x);
      return x;
    }
    case WeightType::F16: return f16_value(half_at(block));
    case WeightType::BF16: return bf16_value(half_at(block));
    default: {
      const BlockElement element = block_element(type, block, e);
      return element.scale * static_cast<float>(element.q) + element.offset;
    }
  }
}

inline BlockElement file_element(WeightType type, const uint8_t* row, int64_t col) {
  const int64_t block = block_elements(type);
  return block_element(type, row + file_row_bytes(type, block) * (col / block), static_cast<int>(col % block));
}

inline float file_value(WeightType type, const uint8_t* row, int64_t col) {
  const int64_t block = block_elements(type);
  return block_value(type, row + file_row_bytes(type, block) * (col / block), static_cast<int>(col % block));
}

}  // namespace octavo::tests
