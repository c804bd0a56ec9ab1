// Packing of weights. Owns: reading the blocks of a model file (the GGUF tensor formats), writing panels.
// Does not know: how kernels compute with them (kernels/unpack.hpp).
//
// Every quantised type stores four columns of a row in one 32-bit word, so packing is a transposition of
// words: a row is read in order and its words are scattered at a distance of 32 bytes, in a panel that stays
// in the cache until its eight rows are in.
#include "packing.hpp"

#include <cstring>

#include "simd/half.hpp"

namespace octavo {
namespace {

constexpr uint32_t kF16Infinity = 0x7c00u, kBf16Infinity = 0x7f80u, kF32Infinity = 0x7f800000u;
constexpr uint32_t kLowNibbles = 0x0f0f0f0fu;
constexpr int64_t kNibbleBytes = 128;  // of a group, for eight rows
constexpr int kGroupsInSuperBlock = 8;

uint32_t read_word(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

uint16_t read_half(const uint8_t* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof half);
  return half;
}

// Where one row puts its numbers in a sequence of bytes made for eight rows.
struct RowWriter {
  uint8_t* at;
  int64_t row;
  bool* is_finite;  // cleared by a scale that is no finite number

  void byte(int64_t offset, uint8_t value) { at[offset + row] = value; }
  void half(int64_t offset, uint16_t value) {
    std::memcpy(at + offset + 2 * row, &value, sizeof value);
  }
  void scale(int64_t offset, uint16_t value) {
    if ((value & kF16Infinity) == kF16Infinity) *is_finite = false;
    half(offset, value);
  }
  void word(int64_t offset, uint32_t value) {
    std::memcpy(at + offset + 4 * row, &value, sizeof value);
  }
  void float_scale(int64_t offset, uint32_t value) {
    if ((value & kF32Infinity) == kF32Infinity) *is_finite = false;
    word(offset, value);
  }
  void words(int64_t offset, const uint8_t* bytes, int count) {
    for (int i = 0; i < count; ++i) word(offset + 32 * i, read_word(bytes + 4 * i));
  }
};

// ---- float types ----

float read_float(WeightType type, const uint8_t* source, int64_t col) {
  if (type == WeightType::F32) return float_from_bits(read_word(source + 4 * col));
  const uint16_t half = read_half(source + 2 * col);
  return type == WeightType::F16 ? f16_to_float(half) : bf16_to_float(half);
}

template <WeightType from, WeightType to>
uint16_t convert_half(const uint8_t* source, int64_t col) {
  if constexpr (from == to) return read_half(source + 2 * col);
  const float value = read_float(from, source, col);
  return to == WeightType::F16 ? float_to_f16(value) : float_to_bf16(value);
}

// Whether no element of a row is infinite or no number at all.
template <WeightType from>
bool is_finite_row(const uint8_t* source, int64_t cols) {
  uint32_t found = 0;
  for (int64_t col = 0; col < cols; ++col) {
    if constexpr (from == WeightType::F32) {
      found |= static_cast<uint32_t>((read_word(source + 4 * col) & kF32Infinity) == kF32Infinity);
    } else {
      constexpr uint32_t infinity = from == WeightType::F16 ? kF16Infinity : kBf16Infinity;
      found |= static_cast<uint32_t>((read_half(source + 2 * col) & infinity) == infinity);
    }
  }
  return found == 0;
}

template <WeightType from, WeightType to>
void pack_float_row(const uint8_t* source, RowWriter panel, int64_t cols) {
  if (!is_finite_row<from>(source, cols)) *panel.is_finite = false;
  for (int64_t col = 0; col < cols; ++col) {
    if constexpr (to == WeightType::F32) {
      panel.word(32 * col, float_bits(read_float(from, source, col)));
    } else if constexpr (to == WeightType::F16) {
      panel.half(16 * col, convert_half<from, to>(source, col));
    } else {  // pairs of columns
      const uint32_t even = convert_half<from, to>(source, col);
      const uint32_t odd = col + 1 < cols ? convert_half<from, to>(source, col + 1) : 0;
      panel.word(16 * col, even | (odd << 16));
      ++col;
    }
  }
}

// ---- blocks of 32 columns ----

void pack_nibbles(const uint8_t* nibbles, RowWriter group, int64_t offset) {
  group.words(offset, nibbles, 4);
}

// Bit 4k + i of `bits` moves to bit 8i + k.
uint32_t spread_fifth_bits(uint32_t bits) {
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    uint32_t column = (bits >> i) & 0x11111111u;
    column = (column | (column >> 3)) & 0x03030303u;
    column = (column | (column >> 6)) & 0x000f000fu;
    column = (column | (column >> 12)) & 0xffu;
    result |= column << (8 * i);
  }
  return result;
}

template <WeightType type>
void pack_block(const uint8_t* block, RowWriter group) {
  constexpr bool has_minimum = type == WeightType::Q4_1 || type == WeightType::Q5_1;
  constexpr bool has_fifth_bits = type == WeightType::Q5_0 || type == WeightType::Q5_1;
  constexpr int64_t numbers = has_minimum ? 2 : 1;

  for (int64_t i = 0; i < numbers; ++i) group.scale(16 * i, read_half(block + 2 * i));
  const uint8_t* rest = block + 2 * numbers;
  int64_t offset = 16 * numbers;
  if constexpr (type == WeightType::Q8_0) return group.words(offset, rest, 8);
  if constexpr (has_fifth_bits) {
    group.word(offset + kNibbleBytes, spread_fifth_bits(read_word(rest)));
    rest += 4;
  }
  pack_nibbles(rest, group, offset);
}

// Block: an exponent (E8M0, 255 is no number), 16 bytes of nibbles.
void pack_mxfp4(const uint8_t* block, RowWriter group) {
  if (block[0] == 255) *group.is_finite = false;
  group.byte(0, block[0]);
  pack_nibbles(block + 1, group, 8);
}

// ---- our own blocks of 32 or 128 columns ----

template <WeightType type>
void pack_own(const uint8_t* block, RowWriter panel) {
  constexpr PanelLayout layout = panel_layout(type);
  constexpr int num_groups = static_cast<int>(layout.block / kGroup);
  constexpr int64_t numbers = layout.file_block - num_groups * (layout.panel_group / 8);
  panel.float_scale(0, read_word(block));
  if constexpr (type == WeightType::FP4_16) panel.float_scale(32, read_word(block + 4));
  else if constexpr (numbers == 8) panel.byte(32, block[4]);
  const uint8_t* rest = block + numbers;
  for (int g = 0; g < num_groups; ++g, rest += layout.panel_group / 8) {
    RowWriter group{panel.at + layout.panel_header + g * layout.panel_group, panel.row, panel.is_finite};
    if constexpr (is_fp8(type)) {
      for (int col = 0; col < kGroup; ++col) {
        if ((rest[col] & 0x7f) == 0x7f) *panel.is_finite = false;
        group.byte(8 * col, rest[col]);
      }
    } else {
      group.words(0, rest, static_cast<int>(layout.panel_group / 32));
    }
  }
}

// Block: fp32 d, 16 int8 scales, 256 int8.
void pack_int8_k(const uint8_t* block, RowWriter panel) {
  constexpr PanelLayout layout = panel_layout(WeightType::INT8_K);
  panel.float_scale(0, read_word(block));
  for (int g = 0; g < kGroupsInSuperBlock; ++g) {
    RowWriter group{panel.at + layout.panel_header + g * layout.panel_group, panel.row, panel.is_finite};
    group.byte(0, block[4 + 2 * g]);
    group.byte(8, block[5 + 2 * g]);
    group.words(16, block + 20 + 32 * g, 8);
  }
}

// ---- super-blocks of 256 columns ----

// A K-quant keeps one group in the low and another in the high nibbles of 32 bytes; ours are split within
// the group. `shift` is 0 or 4.
void pack_split_nibbles(const uint8_t* bytes, int shift, RowWriter group, int64_t offset) {
  for (int j = 0; j < 4; ++j) {
    const uint32_t low = (read_word(bytes + 4 * j) >> shift) & kLowNibbles;
    const uint32_t high = (read_word(bytes + 16 + 4 * j) >> shift) & kLowNibbles;
    group.word(offset + 32 * j, low | (high << 4));
  }
}

// The 6-bit scales and minima of Q4_K and Q5_K: twelve bytes for eight of each.
void unpack_scale(const uint8_t* scales, int group, uint8_t* scale, uint8_t* minimum) {
  if (group < 4) {
    *scale = scales[group] & 63;
    *minimum = scales[group + 4] & 63;
    return;
  }
  *scale = static_cast<uint8_t>((scales[group + 4] & 15) | ((scales[group - 4] >> 6) << 4));
  *minimum = static_cast<uint8_t>((scales[group + 4] >> 4) | ((scales[group] >> 6) << 4));
}

// Bit `group` of 32 bytes, one for each column, in the order of packing.hpp.
uint32_t bits_of_group(const uint8_t* bytes, int group) {
  uint32_t bits = 0;
  for (int k = 0; k < 8; ++k) bits |= ((read_word(bytes + 4 * k) >> group) & 0x01010101u) << k;
  return bits;
}

// Block: fp16 d, fp16 dmin, 12 bytes of scales, (Q5_K: 32 bytes, bit g of byte c is the fifth bit of column
// c of group g,) 128 bytes of nibbles.
template <WeightType type>
void pack_k45(const uint8_t* block, RowWriter panel) {
  constexpr PanelLayout layout = panel_layout(type);
  constexpr bool has_fifth_bits = type == WeightType::Q5_K;
  const uint8_t* scales = block + 4;
  const uint8_t* fifth_bits = block + 16;
  const uint8_t* nibbles = fifth_bits + (has_fifth_bits ? 32 : 0);

  panel.scale(0, read_half(block));
  panel.scale(16, read_half(block + 2));
  for (int g = 0; g < kGroupsInSuperBlock; ++g) {
    RowWriter group{panel.at + layout.panel_header + g * layout.panel_group, panel.row,
                    panel.is_finite};
    uint8_t scale, minimum;
    unpack_scale(scales, g, &scale, &minimum);
    group.byte(0, scale);
    group.byte(8, minimum);
    pack_split_nibbles(nibbles + 32 * (g / 2), 4 * (g % 2), group, 16);
    if constexpr (has_fifth_bits) group.word(16 + kNibbleBytes, bits_of_group(fifth_bits, g));
  }
}

// The two bits from `shift` on of 32 bytes, one for each column of a group.
void pack_bit_pairs(const uint8_t* bytes, int shift, RowWriter group, int64_t offset) {
  for (int vector = 0; vector < 2; ++vector) {
    uint32_t bits = 0;
    for (int k = 0; k < 4; ++k) {  // of column 16h + 4j + i: h = k / 2, j = 2 * vector + k % 2
      const uint8_t* word = bytes + 16 * (k / 2) + 8 * vector + 4 * (k % 2);
      bits |= ((read_word(word) >> shift) & 0x03030303u) << (2 * k);
    }
    group.word(offset + 32 * vector, bits);
  }
}

// Block: 16 bytes with a scale in the low and a minimum in the high half, 64 bytes of bit pairs, fp16 d, fp16
// dmin. Each half of the block has four groups; group t of it is at bit 2t.
void pack_q2_k(const uint8_t* block, RowWriter panel) {
  constexpr PanelLayout layout = panel_layout(WeightType::Q2_K);
  panel.scale(0, read_half(block + 80));
  panel.scale(16, read_half(block + 82));
  for (int g = 0; g < kGroupsInSuperBlock; ++g) {
    RowWriter group{panel.at + layout.panel_header + g * layout.panel_group, panel.row, panel.is_finite};
    for (int half = 0; half < 2; ++half) {
      group.byte(8 * half, block[2 * g + half] & 15);
      group.byte(16 + 8 * half, block[2 * g + half] >> 4);
    }
    pack_bit_pairs(block + 16 + 32 * (g / 4), 2 * (g % 4), group, 32);
  }
}

// The sixteen 6-bit scales of Q3_K: the low halves of eight bytes, then the high ones; two upper bits each in
// the last four bytes.
uint8_t q3_k_scale(const uint8_t* scales, int index) {
  const int low = index < 8 ? scales[index] & 15 : scales[index - 8] >> 4;
  const int high = (scales[8 + index % 4] >> (2 * (index / 4))) & 3;
  return static_cast<uint8_t>((low | (high << 4)) - 32);
}

// Block: 32 bytes of third bits as the fifth ones of Q5_K, 64 bytes of bit pairs as Q2_K, 12 bytes of scales,
// fp16 d.
void pack_q3_k(const uint8_t* block, RowWriter panel) {
  constexpr PanelLayout layout = panel_layout(WeightType::Q3_K);
  panel.scale(0, read_half(block + 108));
  for (int g = 0; g < kGroupsInSuperBlock; ++g) {
    RowWriter group{panel.at + layout.panel_header + g * layout.panel_group, panel.row, panel.is_finite};
    group.byte(0, q3_k_scale(block + 96, 2 * g));
    group.byte(8, q3_k_scale(block + 96, 2 * g + 1));
    pack_bit_pairs(block + 32 + 32 * (g / 4), 2 * (g % 4), group, 16);
    group.word(16 + 64, bits_of_group(block, g));
  }
}

// Block: fp16 d, 16 bits of upper scale bits, four bytes of lower ones, 16 bytes of nibbles for each group.
void pack_iq4_xs(const uint8_t* block, RowWriter panel) {
  constexpr PanelLayout layout = panel_layout(WeightType::IQ4_XS);
  panel.scale(0, read_half(block));
  const int upper_bits = read_half(block + 2);
  for (int g = 0; g < kGroupsInSuperBlock; ++g) {
    RowWriter group{panel.at + layout.panel_header + g * layout.panel_group, panel.row, panel.is_finite};
    const int low = (block[4 + g / 2] >> (4 * (g % 2))) & 15;
    const int high = (upper_bits >> (2 * g)) & 3;
    group.byte(0, static_cast<uint8_t>((low | (high << 4)) - 32));
    pack_nibbles(block + 8 + 16 * g, group, 8);
  }
}

// Block: 128 bytes of nibbles, 64 bytes of upper bits, 16 int8 scales, fp16 d. Each half of the block has
// four groups: groups 0, 1 in the low and 2, 3 in the high nibbles, and the upper bits of group t at bit 2t.
void pack_q6_k(const uint8_t* block, RowWriter panel) {
  constexpr PanelLayout layout = panel_layout(WeightType::Q6_K);
  const uint8_t* scales = block + 192;

  panel.scale(0, read_half(block + 208));
  for (int g = 0; g < kGroupsInSuperBlock; ++g) {
    const int half = g / 4, t = g % 4;
    const uint8_t* nibbles = block + 64 * half + 32 * (t % 2);
    const uint8_t* upper_bits = block + 128 + 32 * half;
    RowWriter group{panel.at + layout.panel_header + g * layout.panel_group, panel.row,
                    panel.is_finite};
    group.byte(0, scales[2 * g]);
    group.byte(8, scales[2 * g + 1]);
    pack_split_nibbles(nibbles, 4 * (t / 2), group, 16);
    pack_bit_pairs(upper_bits, 2 * t, group, 16 + kNibbleBytes);
  }
}

template <WeightType type>
void pack_quantised_row(const uint8_t* source, RowWriter panel, int64_t cols) {
  constexpr PanelLayout layout = panel_layout(type);
  constexpr int64_t panel_block = layout.panel_header + layout.block / kGroup * layout.panel_group;
  for (int64_t block = 0; block < cols / layout.block; ++block) {
    switch (type) {
      case WeightType::Q2_K: pack_q2_k(source, panel); break;
      case WeightType::Q3_K: pack_q3_k(source, panel); break;
      case WeightType::Q4_K:
      case WeightType::Q5_K: pack_k45<type>(source, panel); break;
      case WeightType::Q6_K: pack_q6_k(source, panel); break;
      case WeightType::IQ4_XS: pack_iq4_xs(source, panel); break;
      case WeightType::MXFP4: pack_mxfp4(source, panel); break;
      case WeightType::INT8_K: pack_int8_k(source, panel); break;
      default:
        if constexpr (type >= WeightType::INT4_32) pack_own<type>(source, panel);
        else pack_block<type>(source, panel);
    }
    source += layout.file_block;
    panel.at += panel_block;
  }
}

// ---- choice by type ----

using PackRow = void (*)(const uint8_t* source, RowWriter panel, int64_t cols);

template <WeightType from>
PackRow pack_row_from_float(WeightType to) {
  switch (to) {
    case WeightType::F32: return pack_float_row<from, WeightType::F32>;
    case WeightType::F16: return pack_float_row<from, WeightType::F16>;
    default: return pack_float_row<from, WeightType::BF16>;
  }
}

PackRow pack_row(WeightType from, WeightType to) {
  switch (from) {
    case WeightType::F32: return pack_row_from_float<WeightType::F32>(to);
    case WeightType::F16: return pack_row_from_float<WeightType::F16>(to);
    case WeightType::BF16: return pack_row_from_float<WeightType::BF16>(to);
    case WeightType::Q4_0: return pack_quantised_row<WeightType::Q4_0>;
    case WeightType::Q4_1: return pack_quantised_row<WeightType::Q4_1>;
    case WeightType::Q5_0: return pack_quantised_row<WeightType::Q5_0>;
    case WeightType::Q5_1: return pack_quantised_row<WeightType::Q5_1>;
    case WeightType::Q8_0: return pack_quantised_row<WeightType::Q8_0>;
    case WeightType::Q4_K: return pack_quantised_row<WeightType::Q4_K>;
    case WeightType::Q5_K: return pack_quantised_row<WeightType::Q5_K>;
    case WeightType::Q6_K: return pack_quantised_row<WeightType::Q6_K>;
    case WeightType::Q2_K: return pack_quantised_row<WeightType::Q2_K>;
    case WeightType::Q3_K: return pack_quantised_row<WeightType::Q3_K>;
    case WeightType::IQ4_NL: return pack_quantised_row<WeightType::IQ4_NL>;
    case WeightType::IQ4_XS: return pack_quantised_row<WeightType::IQ4_XS>;
    case WeightType::MXFP4: return pack_quantised_row<WeightType::MXFP4>;
    case WeightType::INT4_32: return pack_quantised_row<WeightType::INT4_32>;
    case WeightType::INT4_128: return pack_quantised_row<WeightType::INT4_128>;
    case WeightType::INT8_32: return pack_quantised_row<WeightType::INT8_32>;
    case WeightType::INT8_128: return pack_quantised_row<WeightType::INT8_128>;
    case WeightType::FP8_32: return pack_quantised_row<WeightType::FP8_32>;
    case WeightType::FP8_128: return pack_quantised_row<WeightType::FP8_128>;
    case WeightType::INT8_K: return pack_quantised_row<WeightType::INT8_K>;
    case WeightType::FP4_16: return pack_quantised_row<WeightType::FP4_16>;
    case WeightType::NF4_32: return pack_quantised_row<WeightType::NF4_32>;
  }
  return nullptr;
}

// Bytes of a panel that hold numbers; what follows up to panel_bytes() is padding.
int64_t used_panel_bytes(WeightType type, int64_t cols) {
  const PanelLayout layout = panel_layout(type);
  if (type == WeightType::BF16) cols += cols % 2;
  if (layout.block == 1) return cols * layout.panel_group;
  return cols / layout.block * (layout.panel_header + layout.block / kGroup * layout.panel_group);
}

}  // namespace

int64_t file_row_bytes(WeightType type, int64_t cols) {
  const PanelLayout layout = panel_layout(type);
  return cols / layout.block * layout.file_block;
}

int64_t block_elements(WeightType type) { return panel_layout(type).block; }

int64_t panel_bytes(WeightType type, int64_t cols) {
  return (used_panel_bytes(type, cols) + 63) / 64 * 64;
}

bool pack_panels(const PackArgs& args) {
  const int64_t source_stride = file_row_bytes(args.from, args.cols);
  const int64_t panel_stride = panel_bytes(args.to, args.cols);
  const int64_t used = used_panel_bytes(args.to, args.cols);
  const PackRow pack = pack_row(args.from, args.to);
  bool is_finite = true;

  for (int64_t p = args.panel_begin; p < args.panel_end; ++p) {
    uint8_t* panel = args.panels + p * panel_stride;
    const int64_t first_row = p * kPanelRows;
    const int64_t left = args.rows - first_row;
    const int64_t num_rows = left < kPanelRows ? left : kPanelRows;
    const int64_t written = num_rows == kPanelRows ? used : 0;
    std::memset(panel + written, 0, static_cast<size_t>(panel_stride - written));
    for (int64_t row = 0; row < num_rows; ++row) {
      const int64_t source_row = args.row_order ? args.row_order[first_row + row] : first_row + row;
      pack(args.source + source_row * source_stride, RowWriter{panel, row, &is_finite}, args.cols);
    }
  }
  return is_finite;
}

}  // namespace octavo
