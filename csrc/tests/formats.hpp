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

inline BlockElement element_of_q2_k(const uint8_t* block, int e) {
  const int q = (block[16 + 32 * (e / 128) + e % 32] >> (2 * (e / 32 % 4))) & 3;
  const uint8_t numbers = block[e / 16];
  const float d = f16_value(half_at(block + 80)), dmin = f16_value(half_at(block + 82));
  return {d * static_cast<float>(numbers & 15), q, -(dmin * static_cast<float>(numbers >> 4))};
}

inline BlockElement element_of_q3_k(const uint8_t* block, int e) {
  const int low = (block[32 + 32 * (e / 128) + e % 32] >> (2 * (e / 32 % 4))) & 3;
  const int high = (block[e % 32] >> (e / 32)) & 1;
  const uint8_t* s = block + 96;
  const int i = e / 16;
  const int scale = ((s[i % 8] >> (i / 8 * 4)) & 15) + 16 * ((s[8 + i % 4] >> (i / 4 * 2)) & 3) - 32;
  return {f16_value(half_at(block + 108)) * static_cast<float>(scale), low + 4 * high - 4, 0.0f};
}

inline int iq4_value(int code) {
  const int values[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  return values[code];
}

// Twice the number of an FP4: a sign, two bits of exponent with bias 1, one of fraction.
inline int fp4_doubled(int code) {
  const int exponent = (code >> 1) & 3, fraction = code & 1;
  const int magnitude = exponent == 0 ? fraction : (2 + fraction) << (exponent - 1);
  return code & 8 ? -magnitude : magnitude;
}

inline BlockElement element_of_iq4_xs(const uint8_t* block, int e) {
  const int g = e / 32, i = e % 32;
  const uint8_t byte = block[8 + 16 * g + i % 16];
  const int low = (block[4 + g / 2] >> (g % 2 * 4)) & 15, high = (half_at(block + 2) >> (2 * g)) & 3;
  const float scale = f16_value(half_at(block)) * static_cast<float>(low + 16 * high - 32);
  return {scale, iq4_value(i < 16 ? byte & 15 : byte >> 4), 0.0f};
}

inline float float_at(const uint8_t* p) {
  float x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

// Sign, four bits of exponent with bias 7, three of fraction; no infinities.
inline float e4m3_value(uint8_t byte) {
  const int exponent = (byte >> 3) & 15, fraction = byte & 7;
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                        : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return byte & 0x80 ? -magnitude : magnitude;
}

// Element `e` of a block of one of our own types that have integers behind the scale.
inline BlockElement element_of_own(WeightType type, const uint8_t* block, int e) {
  const float d = float_at(block);
  const auto nibble = [e](const uint8_t* bytes) {
    const uint8_t byte = bytes[e / 32 * 16 + e % 16];
    return e % 32 < 16 ? byte & 15 : byte >> 4;
  };
  switch (type) {
    case WeightType::INT4_32:
    case WeightType::INT4_128: return {d, nibble(block + 8), -(d * static_cast<float>(block[4]))};
    case WeightType::INT8_32:
    case WeightType::INT8_128: {
      const float zero = static_cast<float>(static_cast<int8_t>(block[4]));
      return {d, static_cast<int8_t>(block[8 + e]), -(d * zero)};
    }
    case WeightType::INT8_K: {
      const float scale = static_cast<float>(static_cast<int8_t>(block[4 + e / 16]));
      return {d * scale, static_cast<int8_t>(block[20 + e]), 0.0f};
    }
    default: return {float_at(block + e / 16 * 4) * 0.5f, fp4_doubled(nibble(block + 8)), 0.0f};
  }
}

inline float nf4_value(int code) {
  const float values[] = {-1.0f,
                          -0.6961928009986877f,
                          -0.5250730514526367f,
                          -0.39491748809814453f,
                          -0.28444138169288635f,
                          -0.18477343022823334f,
                          -0.09105003625154495f,
                          0.0f,
                          0.07958029955625534f,
                          0.16093020141124725f,
                          0.24611230194568634f,
                          0.33791524171829224f,
                          0.44070982933044434f,
                          0.5626170039176941f,
                          0.7229568362236023f,
                          1.0f};
  return values[code];
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
    case WeightType::Q2_K: return element_of_q2_k(block, e);
    case WeightType::Q3_K: return element_of_q3_k(block, e);
    case WeightType::Q4_K:
    case WeightType::Q5_K: return element_of_k45(type, block, e);
    case WeightType::Q6_K: return element_of_q6_k(block, e);
    case WeightType::IQ4_NL: return {d, iq4_value(nibble(block + 2)), 0.0f};
    case WeightType::IQ4_XS: return element_of_iq4_xs(block, e);
    case WeightType::MXFP4: return {std::ldexp(0.5f, block[0] - 127), fp4_doubled(nibble(block + 1)), 0.0f};
    default: return element_of_own(type, block, e);
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
    case WeightType::FP8_32:
    case WeightType::FP8_128: return float_at(block) * e4m3_value(block[4 + e]);
    case WeightType::NF4_32: {
      const uint8_t byte = block[4 + e % 16];
      return float_at(block) * nf4_value(e < 16 ? byte & 15 : byte >> 4);
    }
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
