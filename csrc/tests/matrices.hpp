// Random weight matrices in file order and in panels, for checks and measurements.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "check.hpp"
#include "formats.hpp"
#include "packing.hpp"

namespace octavo::tests {

struct NamedType {
  WeightType type;
  const char* name;
};
constexpr NamedType kTypes[] = {
    {WeightType::F32, "F32"},   {WeightType::F16, "F16"},   {WeightType::BF16, "BF16"},
    {WeightType::Q4_0, "Q4_0"}, {WeightType::Q4_1, "Q4_1"}, {WeightType::Q5_0, "Q5_0"},
    {WeightType::Q5_1, "Q5_1"}, {WeightType::Q8_0, "Q8_0"}, {WeightType::Q4_K, "Q4_K"},
    {WeightType::Q5_K, "Q5_K"}, {WeightType::Q6_K, "Q6_K"},
    {WeightType::Q2_K, "Q2_K"}, {WeightType::Q3_K, "Q3_K"}, {WeightType::IQ4_NL, "IQ4_NL"}, {WeightType::IQ4_XS, "IQ4_XS"},
    {WeightType::MXFP4, "MXFP4"}, {WeightType::INT4_32, "INT4_32"}, {WeightType::INT4_128, "INT4_128"}, {WeightType::INT8_32, "INT8_32"},
    {WeightType::INT8_128, "INT8_128"}, {WeightType::FP8_32, "FP8_32"}, {WeightType::FP8_128, "FP8_128"}, {WeightType::INT8_K, "INT8_K"},
    {WeightType::FP4_16, "FP4_16"}, {WeightType::NF4_32, "NF4_32"},
};

inline bool is_float(WeightType type) { return block_elements(type) == 1; }

// In [-1, 1).
inline float uniform_float(Random& random) {
  return static_cast<float>(random.below(int64_t{1} << 24)) * 0x1p-23f - 1.0f;
}

struct Matrix {
  WeightType type;
  int64_t rows, cols;
  std::vector<uint8_t> file;    // row-major
  std::vector<uint8_t> panels;

  int64_t num_panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  int64_t bytes_of_panel() const { return panel_bytes(type, cols); }
  float value(int64_t row, int64_t col) const {
    return file_value(type, file.data() + row * file_row_bytes(type, cols), col);
  }
  BlockElement element(int64_t row, int64_t col) const {
    return file_element(type, file.data() + row * file_row_bytes(type, cols), col);
  }
};

// How many numbers of a block are floats, and where they begin.
struct Numbers {
  size_t halves, first, floats;
};
inline Numbers numbers_of(WeightType type) {
  switch (type) {
    case WeightType::Q4_1:
    case WeightType::Q5_1:
    case WeightType::Q4_K:
    case WeightType::Q5_K: return {2, 0, 0};
    case WeightType::Q2_K: return {2, 80, 0};
    case WeightType::Q3_K: return {1, 108, 0};
    case WeightType::Q6_K: return {1, 208, 0};
    case WeightType::MXFP4: return {0, 0, 0};
    case WeightType::FP4_16: return {0, 0, 2};
    default: return type >= WeightType::INT4_32 ? Numbers{0, 0, 1} : Numbers{1, 0, 0};
  }
}

// Random bits with scales of a moderate size.
inline std::vector<uint8_t> random_rows(WeightType type, int64_t rows, int64_t cols, Random& random) {
  std::vector<uint8_t> file(static_cast<size_t>(rows * file_row_bytes(type, cols)));
  const auto put_half = [&](size_t at) {
    const int64_t sign_and_fraction = random.below(2048), exponent = random.between(2, 11);
    const int64_t half = (sign_and_fraction & 1023) | (exponent << 10) | (sign_and_fraction >> 10 << 15);
    const uint16_t bits = static_cast<uint16_t>(half);
    std::memcpy(&file[at], &bits, sizeof bits);
  };
  if (type == WeightType::F32) {
    for (size_t at = 0; at < file.size(); at += 4) {
      const float x = uniform_float(random);
      std::memcpy(&file[at], &x, sizeof x);
    }
    return file;
  }
  for (uint8_t& byte : file) byte = static_cast<uint8_t>(random.below(256));
  if (type == WeightType::BF16) {
    for (size_t at = 1; at < file.size(); at += 2) file[at] = (file[at] & 0x80) | 0x3e;
    return file;
  }
  const auto put_float = [&](size_t at) {  // of as few bits, so that products with weights are exact
    put_half(at);
    const float x = f16_value(half_at(&file[at]));
    std::memcpy(&file[at], &x, sizeof x);
  };
  const size_t block = static_cast<size_t>(file_row_bytes(type, block_elements(type)));
  for (size_t at = 0; at < file.size(); at += block) {
    const Numbers numbers = numbers_of(type);
    for (size_t i = 0; i < numbers.halves; ++i) put_half(at + numbers.first + 2 * i);
    for (size_t i = 0; i < numbers.floats; ++i) put_float(at + 4 * i);
    if (type == WeightType::MXFP4) file[at] = static_cast<uint8_t>(random.between(100, 140));
    if (is_fp8(type)) {
      for (size_t i = 4; i < block; ++i) file[at + i] &= 0xfb;  // no NaN
    }
  }
  return file;
}

inline void pack(Matrix& matrix, WeightType from, const int32_t* row_order = nullptr) {
  const size_t bytes = static_cast<size_t>(matrix.num_panels() * matrix.bytes_of_panel());
  matrix.panels.assign(bytes, 0xff);
  const int64_t middle = matrix.num_panels() / 2;
  PackArgs args{matrix.file.data(), from, matrix.type, matrix.rows, matrix.cols, row_order,
                matrix.panels.data(), middle, matrix.num_panels()};
  pack_panels(args);
  args.panel_begin = 0;
  args.panel_end = middle;
  pack_panels(args);
}

inline Matrix random_matrix(WeightType type, int64_t rows, int64_t cols, Random& random) {
  Matrix matrix{type, rows, cols, random_rows(type, rows, cols, random), {}};
  pack(matrix, type);
  return matrix;
}

// Give all weights of a quantised matrix the same bits and leave scales and offsets.
inline void fill_weights(Matrix& matrix, uint8_t byte) {
  const size_t block = static_cast<size_t>(file_row_bytes(matrix.type, block_elements(matrix.type)));
  size_t first = 2, last = block;
  switch (matrix.type) {
    case WeightType::Q4_1:
    case WeightType::Q5_1: first = 4; break;
    case WeightType::Q4_K:
    case WeightType::Q5_K: first = 16; break;
    case WeightType::Q6_K: first = 0, last = 192; break;
    case WeightType::Q2_K: first = 16, last = 80; break;
    case WeightType::Q3_K: first = 0, last = 96; break;
    case WeightType::IQ4_XS: first = 8; break;
    case WeightType::MXFP4: first = 1; break;
    case WeightType::INT8_K: first = 20; break;
    default:
      if (matrix.type >= WeightType::INT4_32) first = 8;
  }
  for (size_t at = 0; at < matrix.file.size(); at += block) {
    std::memset(&matrix.file[at + first], byte, last - first);
  }
}

inline std::vector<float> random_floats(int64_t count, Random& random) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform_float(random);
  return values;
}

}  // namespace octavo::tests
