#include "repack.hpp"

#include <cstring>
#include <stdexcept>

#include "grids.hpp"
#include "packing.hpp"
#include "simd/half.hpp"

namespace octavo {
namespace {

constexpr int8_t kIq2Numbers[] = {8, 25, 43};
constexpr int8_t kIq3XxsNumbers[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr int8_t kIq3SNumbers[] = {1, 3, 5, 7, 9, 11, 13, 15};

uint32_t half_word(const uint8_t* p) { return static_cast<uint32_t>(p[0] | (p[1] << 8)); }
uint32_t word(const uint8_t* p) { return half_word(p) | (half_word(p + 2) << 16); }

// One block of INT8_K while it is filled.
struct Block {
  float d;
  int8_t scales[16];
  int8_t q[256];

  void write(uint8_t* out) const {
    std::memcpy(out, &d, sizeof d);
    std::memcpy(out + 4, scales, sizeof scales);
    std::memcpy(out + 20, q, sizeof q);
  }
  void set_scale(int index, uint32_t value) { scales[index] = static_cast<int8_t>(value); }
};

float half_float(const uint8_t* p) { return f16_to_float(static_cast<uint16_t>(half_word(p))); }

// Seven signs, and an eighth so that their number is even.
uint32_t even_signs(uint32_t seven) {
  uint32_t parity = seven ^ (seven >> 4);
  parity ^= parity >> 2;
  return seven | (((parity ^ (parity >> 1)) & 1u) << 7);
}

// `count` magnitudes of an entry of a grid, with a sign for each.
void put_signed(uint32_t entry, int bits, int count, const int8_t* numbers, uint32_t signs, int8_t* out) {
  for (int i = 0; i < count; ++i) {
    const int8_t magnitude = numbers[(entry >> (bits * i)) & ((1u << bits) - 1u)];
    out[i] = (signs >> i) & 1u ? static_cast<int8_t>(-magnitude) : magnitude;
  }
}

// ---- the formats, group after group of 32 elements ----

// fp16 d; per group: four bytes of grid entries, four of 7 x 4 signs and a scale.
Block from_iq2_xxs(const uint8_t* block) {
  Block result{half_float(block) / 8.0f, {}, {}};
  for (int g = 0; g < 8; ++g) {
    const uint8_t* entries = block + 2 + 8 * g;
    const uint32_t signs = word(entries + 4);
    result.set_scale(2 * g, 2 * (signs >> 28) + 1);
    result.set_scale(2 * g + 1, 2 * (signs >> 28) + 1);
    for (int l = 0; l < 4; ++l) {
      put_signed(kIq2XxsGrid[entries[l]], 2, 8, kIq2Numbers, even_signs((signs >> (7 * l)) & 127u),
                 result.q + 32 * g + 8 * l);
    }
  }
  return result;
}

// fp16 d, 32 words of 16 bits (9 for the entry, 7 signs), 8 bytes of scales.
Block from_iq2_xs(const uint8_t* block) {
  Block result{half_float(block) / 8.0f, {}, {}};
  for (int i = 0; i < 32; ++i) {
    const uint32_t code = half_word(block + 2 + 2 * i);
    put_signed(kIq2XsGrid[code & 511u], 2, 8, kIq2Numbers, even_signs(code >> 9), result.q + 8 * i);
  }
  for (int i = 0; i < 16; ++i) result.set_scale(i, 2 * ((block[66 + i / 2] >> (4 * (i % 2))) & 15u) + 1);
  return result;
}

// fp16 d, 32 bytes of entries, 32 of signs, 8 with two upper bits of four entries each, 8 of scales.
Block from_iq2_s(const uint8_t* block) {
  Block result{half_float(block) / 8.0f, {}, {}};
  for (int i = 0; i < 32; ++i) {
    const uint32_t upper = (block[66 + i / 4] >> (2 * (i % 4))) & 3u;
    put_signed(kIq2SGrid[block[2 + i] | (upper << 8)], 2, 8, kIq2Numbers, block[34 + i], result.q + 8 * i);
  }
  for (int i = 0; i < 16; ++i) result.set_scale(i, 2 * ((block[74 + i / 2] >> (4 * (i % 2))) & 15u) + 1);
  return result;
}

// fp16 d, 64 bytes of entries of four, 8 words of 7 x 4 signs and a scale.
Block from_iq3_xxs(const uint8_t* block) {
  Block result{half_float(block) / 4.0f, {}, {}};
  for (int g = 0; g < 8; ++g) {
    const uint32_t signs = word(block + 66 + 4 * g);
    result.set_scale(2 * g, 2 * (signs >> 28) + 1);
    result.set_scale(2 * g + 1, 2 * (signs >> 28) + 1);
    for (int i = 0; i < 8; ++i) {
      const uint32_t own = even_signs((signs >> (7 * (i / 2))) & 127u) >> (4 * (i % 2));
      put_signed(kIq3XxsGrid[block[2 + 8 * g + i]], 3, 4, kIq3XxsNumbers, own, result.q + 32 * g + 4 * i);
    }
  }
  return result;
}

// fp16 d, 64 bytes of entries of four, 8 with a ninth bit of them, 32 of signs, 4 of scales.
Block from_iq3_s(const uint8_t* block) {
  Block result{half_float(block), {}, {}};
  for (int i = 0; i < 64; ++i) {
    const uint32_t upper = (block[66 + i / 8] >> (i % 8)) & 1u;
    const uint32_t signs = block[74 + i / 2] >> (4 * (i % 2));
    put_signed(kIq3SGrid[block[2 + i] | (upper << 8)], 3, 4, kIq3SNumbers, signs, result.q + 4 * i);
  }
  for (int i = 0; i < 16; ++i) result.set_scale(i, 2 * ((block[106 + i / 4] >> (4 * (i / 2 % 2))) & 15u) + 1);
  return result;
}

// Eight numbers -1, 0, 1 moved up or down by an eighth, in eighths.
void put_ternary(uint32_t entry, bool is_down, int8_t* out) {
  for (int i = 0; i < 8; ++i) {
    const int number = static_cast<int>((entry >> (2 * i)) & 3u) - 1;
    out[i] = static_cast<int8_t>(8 * number + (is_down ? -1 : 1));
  }
}

// fp16 d, 32 bytes of entries, 8 words of 16 bits: 3 upper bits of four entries, a scale, a direction.
Block from_iq1_s(const uint8_t* block) {
  Block result{half_float(block) / 8.0f, {}, {}};
  for (int g = 0; g < 8; ++g) {
    const uint32_t more = half_word(block + 34 + 2 * g);
    result.set_scale(2 * g, 2 * ((more >> 12) & 7u) + 1);
    result.set_scale(2 * g + 1, 2 * ((more >> 12) & 7u) + 1);
    for (int l = 0; l < 4; ++l) {
      const uint32_t upper = (more >> (3 * l)) & 7u;
      put_ternary(kIq1Grid[block[2 + 4 * g + l] | (upper << 8)], more & 0x8000u, result.q + 32 * g + 8 * l);
    }
  }
  return result;
}

// 32 bytes of entries, 16 with 3 upper bits and a direction in each half, 8 of scales whose upper four bits
// in each word of 16 make fp16 d.
Block from_iq1_m(const uint8_t* block) {
  const uint8_t* scales = block + 48;
  uint32_t d = 0;
  for (int i = 0; i < 4; ++i) d |= (half_word(scales + 2 * i) >> 12) << (4 * i);
  Block result{f16_to_float(static_cast<uint16_t>(d)) / 8.0f, {}, {}};
  for (int i = 0; i < 16; ++i) {
    result.set_scale(i, 2 * ((half_word(scales + 2 * (i / 4)) >> (3 * (i % 4))) & 7u) + 1);
  }
  for (int i = 0; i < 32; ++i) {
    const uint32_t more = (block[32 + i / 2] >> (4 * (i % 2))) & 15u;
    put_ternary(kIq1Grid[block[i] | ((more & 7u) << 8)], more & 8u, result.q + 8 * i);
  }
  return result;
}

void put_ones(Block& block) {
  for (int8_t& scale : block.scales) scale = 1;
}

// The n-th of the base-3 digits of a byte, as a number -1, 0, 1: the byte is a fraction of 256.
int8_t digit(uint8_t byte, int n) {
  static const uint8_t powers[] = {1, 3, 9, 27, 81};
  const uint8_t rest = static_cast<uint8_t>(byte * powers[n]);
  return static_cast<int8_t>(((rest * 3) >> 8) - 1);
}

// 32 bytes of five digits, 16 bytes of five, 4 bytes of four; fp16 d.
Block from_tq1_0(const uint8_t* block) {
  Block result{half_float(block + 52), {}, {}};
  put_ones(result);
  int8_t* out = result.q;
  const auto put = [&](const uint8_t* bytes, int count, int digits) {
    for (int n = 0; n < digits; ++n) {
      for (int i = 0; i < count; ++i) *out++ = digit(bytes[i], n);
    }
  };
  put(block, 32, 5);
  put(block + 32, 16, 5);
  put(block + 48, 4, 4);
  return result;
}

// 64 bytes of bit pairs, fp16 d.
Block from_tq2_0(const uint8_t* block) {
  Block result{half_float(block + 64), {}, {}};
  put_ones(result);
  for (int i = 0; i < 256; ++i) {
    const int number = (block[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4))) & 3;
    result.q[i] = static_cast<int8_t>(number - 1);
  }
  return result;
}

// fp32 d, 256 int8, sums.
Block from_q8_k(const uint8_t* block) {
  Block result{};
  std::memcpy(&result.d, block, sizeof result.d);
  put_ones(result);
  std::memcpy(result.q, block + 4, sizeof result.q);
  return result;
}

// ---- NVFP4: four scales of E4M3, then eight bytes for each 16 elements, element i and i + 8 in byte i ----

constexpr int32_t kNvfp4 = 40;
constexpr int64_t kNvfp4Bytes = 36;

// By ggml's reading: a scale has no sign, and what would be no number is zero.
float nvfp4_scale(uint8_t code) {
  return code == 0x7f ? 0.0f : 256.0f * f16_to_float(static_cast<uint16_t>((code & 0x7f) << 7));
}

uint8_t nvfp4_code(const uint8_t* group, int i) { return i < 8 ? group[i] & 15 : group[i - 8] >> 4; }

std::vector<uint8_t> from_nvfp4(const uint8_t* data, int64_t num_blocks, float factor) {
  const int64_t out_bytes = panel_layout(WeightType::FP4_16).file_block;
  std::vector<uint8_t> result(static_cast<size_t>(2 * num_blocks * out_bytes));
  uint8_t* out = result.data();
  for (int64_t half = 0; half < 2 * num_blocks; ++half, out += out_bytes) {
    const uint8_t* block = data + half / 2 * kNvfp4Bytes;
    const uint8_t* scales = block + 2 * (half % 2);
    const uint8_t* first = block + 4 + 16 * (half % 2);
    const float d[] = {factor * nvfp4_scale(scales[0]), factor * nvfp4_scale(scales[1])};
    std::memcpy(out, d, sizeof d);
    for (int i = 0; i < 16; ++i) {
      out[8 + i] = static_cast<uint8_t>(nvfp4_code(first, i) | (nvfp4_code(first + 8, i) << 4));
    }
  }
  return result;
}

struct Format {
  int32_t ggml_type;
  int64_t bytes;
  Block (*read)(const uint8_t* block);
};

constexpr Format kFormats[] = {
    {15, 292, from_q8_k},  {16, 66, from_iq2_xxs}, {17, 74, from_iq2_xs}, {18, 98, from_iq3_xxs},
    {19, 50, from_iq1_s},  {21, 110, from_iq3_s},  {22, 82, from_iq2_s},  {29, 56, from_iq1_m},
    {34, 54, from_tq1_0},  {35, 66, from_tq2_0},
};

const Format* find_format(int32_t ggml_type) {
  for (const Format& format : kFormats) {
    if (format.ggml_type == ggml_type) return &format;
  }
  return nullptr;
}

}  // namespace

std::vector<uint8_t> repack_blocks(int32_t ggml_type, const uint8_t* data, int64_t bytes, float factor) {
  if (ggml_type == kNvfp4) {
    if (bytes % kNvfp4Bytes != 0) throw std::invalid_argument("the data are no whole blocks");
    return from_nvfp4(data, bytes / kNvfp4Bytes, factor);
  }
  const Format* format = find_format(ggml_type);
  if (!format) throw std::invalid_argument("no GGUF type that is repacked");
  if (bytes % format->bytes != 0) throw std::invalid_argument("the data are no whole blocks");
  const int64_t num_blocks = bytes / format->bytes, out_bytes = panel_layout(WeightType::INT8_K).file_block;
  std::vector<uint8_t> result(static_cast<size_t>(num_blocks * out_bytes));
  for (int64_t i = 0; i < num_blocks; ++i) {
    Block block = format->read(data + i * format->bytes);
    block.d *= factor;
    block.write(result.data() + i * out_bytes);
  }
  return result;
}

}  // namespace octavo
