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
  const size_t block = static_cast<size_t>(file_row_bytes(type, block_elements(type)));
  for (size_t at = 0; at < file.size(); at += block) {
    put_half(type == WeightType::Q6_K ? at + 208 : at);
    const bool has_minimum = type == WeightType::Q4_1 || type == WeightType::Q5_1 ||
                             type == WeightType::Q4_K || type == WeightType::Q5_K;
    if (has_minimum) put_half(at + 2);
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
    default: break;
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
