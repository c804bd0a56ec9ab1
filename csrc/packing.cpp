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
  for (int j = 0; j < 4; ++j) group.word(offset + 32 * j, read_word(nibbles + 4 * j));
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
  if constexpr (type == WeightType::Q8_0) {
    for (int k = 0; k < 8; ++k) group.word(offset + 32 * k, read_word(rest + 4 * k));
    return;
  }
  if constexpr (has_fifth_bits) {
    group.word(offset + kNibbleBytes, spread_fifth_bits(read_word(rest)));
    rest += 4;
  }
  pack_nibbles(rest, group, offset);
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
    if constexpr (has_fifth_bits) {
      uint32_t bits = 0;
      for (int k = 0; k < 8; ++k) {
        bits |= ((read_word(fifth_bits + 4 * k) >> g) & 0x01010101u) << k;
      }
      group.word(16 + kNibbleBytes, bits);
    }
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
    for (int vector = 0; vector < 2; ++vector) {
      uint32_t bits = 0;
      for (int k = 0; k < 4; ++k) {  // of column 16h + 4j + i: h = k / 2, j = 2 * vector + k % 2
        const uint8_t* word = upper_bits + 16 * (k / 2) + 8 * vector + 4 * (k % 2);
        bits |= ((read_word(word) >> (2 * t)) & 0x03030303u) << (2 * k);
      }
      group.word(16 + kNibbleBytes + 32 * vector, bits);
    }
  }
}

template <WeightType type>
void pack_quantised_row(const uint8_t* source, RowWriter panel, int64_t cols) {
  constexpr PanelLayout layout = panel_layout(type);
  constexpr int64_t panel_block = layout.panel_header + layout.block / kGroup * layout.panel_group;
  for (int64_t block = 0; block < cols / layout.block; ++block) {
    if constexpr (type == WeightType::Q6_K) {
      pack_q6_k(source, panel);
    } else if constexpr (layout.block == 256) {
      pack_k45<type>(source, panel);
    } else {
      pack_block<type>(source, panel);
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
