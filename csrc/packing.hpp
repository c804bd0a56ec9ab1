// From the rows of a model file to panels that the kernels stream.
//
// A panel holds kPanelRows (8) consecutive output rows, interleaved so that one 256-bit load brings the
// same columns of all eight rows and no inner loop needs a shuffle across lanes. Panels are consumed in
// groups of kGroup (32) columns. Numbers keep their own width: nothing is expanded in memory.
//
//   F32    [col][8 rows]
//   F16    [col][8 rows]
//   BF16   [col / 2][8 rows][2 cols]      (odd last column padded with zero)
//
// Quantised types are sequences of groups. A group starts with its numbers per row, followed by vectors of
// 32 bytes, four for each row. "Nibbles" are four vectors; byte row * 4 + i of vector j holds column 4j + i
// in its low and 16 + 4j + i in its high half.
//
//   Q4_0   8 fp16 d, nibbles
//   Q4_1   8 fp16 d, 8 fp16 m, nibbles
//   Q5_0   8 fp16 d, nibbles, 8 uint32    bit 8i + k is the fifth bit of column 4k + i
//   Q5_1   8 fp16 d, 8 fp16 m, nibbles, 8 uint32
//   Q8_0   8 fp16 d, 8 vectors            byte row * 4 + i of vector k holds column 4k + i
//   IQ4_NL 8 fp16 d, nibbles
//   MXFP4  8 uint8 exponent, nibbles
//
// The K-quants are sequences of super-blocks of 256 columns: numbers for the whole super-block, then eight
// groups. Their 6-bit scales are unpacked to bytes.
//
//   Q4_K   8 fp16 d, 8 fp16 dmin; per group: 8 uint8 scale, 8 uint8 min, nibbles
//   Q5_K   8 fp16 d, 8 fp16 dmin; per group: 8 uint8 scale, 8 uint8 min, nibbles, 8 uint32 as Q5_0
//   Q6_K   8 fp16 d; per group: 8 int8 scale of columns 0..15, 8 int8 scale of columns 16..31, nibbles,
//          two vectors: bits 8i + 4h + 2(j % 2) of vector j / 2 are the upper bits of column 16h + 4j + i
//   Q2_K   8 fp16 d, 8 fp16 dmin; per group: 8 uint8 scale of columns 0..15, the same of 16..31, 8 uint8 min and
//          again, two vectors as the upper bits of Q6_K
//   Q3_K   8 fp16 d; per group: 8 int8 scale of columns 0..15, the same of 16..31, two vectors as Q2_K,
//          8 uint32 as Q5_0 for the third bits
//   IQ4_XS 8 fp16 d; per group: 8 int8 scale, nibbles
//   INT8_K 8 fp32 d; per group: 8 int8 scale of columns 0..15, the same of 16..31, 8 vectors as Q8_0
//
// Our own types are sequences of blocks of 32 or 128 columns: numbers for the block, then its groups. In a file
// row a block is its numbers, then its weights: nibbles as in Q4_0, or bytes.
//
//   INT4   8 fp32 d, 8 uint8 zero; nibbles               d * (q - zero)       file: d, zero, 3 bytes of 0
//   INT8   8 fp32 d, 8 int8 zero; 8 vectors as Q8_0      d * (q - zero)       file: d, zero, 3 bytes of 0
//   FP8    8 fp32 d; 32 columns of 8 bytes E4M3          d * q                file: d
//   FP4_16 8 fp32 d of columns 0..15, 8 of 16..31; nibbles                    file: two d
//   NF4_32 8 fp32 d; nibbles                                                  file: d
//
// In every group the four bytes that a row has in one vector belong to four consecutive columns: the order
// that integer dot products want as well.
#pragma once

#include <cstdint>

#include "types.hpp"

namespace octavo {

// Sizes of a stored type. A panel of float type takes panel_header + columns * panel_group bytes (group =
// one column); of a quantised type, per block: panel_header + (block / kGroup) * panel_group bytes.
struct PanelLayout {
  int64_t block;         // elements of a row that are stored together: 1, 32, 128 or 256
  int64_t file_block;    // bytes of such a block of one row in the model file
  int64_t panel_header;  // bytes in front of the groups of a block, for eight rows
  int64_t panel_group;   // bytes of a group for eight rows
};

// Static, because kernels include this header too: see the rules in simd/vec.hpp.
static constexpr PanelLayout panel_layout(WeightType type) {
  switch (type) {
    case WeightType::F32: return {1, 4, 0, 32};
    case WeightType::F16: return {1, 2, 0, 16};
    case WeightType::BF16: return {1, 2, 0, 16};
    case WeightType::Q4_0: return {32, 18, 0, 16 + 128};
    case WeightType::Q4_1: return {32, 20, 0, 32 + 128};
    case WeightType::Q5_0: return {32, 22, 0, 16 + 128 + 32};
    case WeightType::Q5_1: return {32, 24, 0, 32 + 128 + 32};
    case WeightType::Q8_0: return {32, 34, 0, 16 + 256};
    case WeightType::Q4_K: return {256, 144, 32, 16 + 128};
    case WeightType::Q5_K: return {256, 176, 32, 16 + 128 + 32};
    case WeightType::Q6_K: return {256, 210, 16, 16 + 128 + 64};
    case WeightType::Q2_K: return {256, 84, 32, 32 + 64};
    case WeightType::Q3_K: return {256, 110, 16, 16 + 64 + 32};
    case WeightType::IQ4_NL: return {32, 18, 0, 16 + 128};
    case WeightType::IQ4_XS: return {256, 136, 16, 8 + 128};
    case WeightType::MXFP4: return {32, 17, 0, 8 + 128};
    case WeightType::INT4_32: return {32, 8 + 16, 40, 128};
    case WeightType::INT4_128: return {128, 8 + 64, 40, 128};
    case WeightType::INT8_32: return {32, 8 + 32, 40, 256};
    case WeightType::INT8_128: return {128, 8 + 128, 40, 256};
    case WeightType::FP8_32: return {32, 4 + 32, 32, 256};
    case WeightType::FP8_128: return {128, 4 + 128, 32, 256};
    case WeightType::INT8_K: return {256, 4 + 16 + 256, 32, 16 + 256};
    case WeightType::FP4_16: return {32, 8 + 16, 64, 128};
    case WeightType::NF4_32: return {32, 4 + 16, 32, 128};
  }
  return {0, 0, 0, 0};
}

// Bytes of `cols` elements of one row in the model file; cols must be a multiple of the type's block.
int64_t file_row_bytes(WeightType type, int64_t cols);

// Elements of a row that the type stores together: 1, 32, 128 or 256.
int64_t block_elements(WeightType type);

// Bytes of one panel of `cols` columns, rounded up to 64.
int64_t panel_bytes(WeightType type, int64_t cols);

// Write panels [panel_begin, panel_end) of a matrix. `source` is row-major in the file's type `from`;
// `to` equals `from`, or both are float types (rounded to nearest even). `row_order` maps output row ->
// source row, null = same. Rows that the last panel lacks become zero. Whether all elements of float types,
// and all scales of quantised ones, were finite numbers.
struct PackArgs {
  const uint8_t* source;
  WeightType from, to;
  int64_t rows, cols;
  const int32_t* row_order;
  uint8_t* panels;
  int64_t panel_begin, panel_end;
};
bool pack_panels(const PackArgs& args);

}  // namespace octavo
