// From the tensors of quantised checkpoints to rows of our own types (packing.hpp tells what those are).
//
// A quantised matrix is three tables: codes of a few bits, a scale for a group of them, and sometimes a zero
// point for the group. Checkpoint formats differ in where a number lies; that is what the structs here say.
// What the numbers mean is told by the type that they become. Nothing is rounded: scales become float32.
#pragma once

#include <cstdint>
#include <vector>

#include "types.hpp"

namespace octavo {

// Which place in a word the i-th number of it has.
enum class WordOrder : int32_t {
  Natural = 0,  // the lowest bits first
  Awq = 1,      // 0 4 1 5 2 6 3 7
  Swapped = 2,  // the upper half of a byte first
};

// A matrix of numbers of `bits` bits. Words of `word_bits` hold several neighbours of one column, if
// packs_rows, or else of one row. Strides are in words.
struct PackedInts {
  const uint8_t* data;
  int64_t num_bytes;
  int bits, word_bits;
  int64_t rows, cols;
  int64_t row_stride, col_stride;
  bool packs_rows;
  WordOrder order;
  bool is_signed;  // two's complement: half of the range is added

  // Throws std::invalid_argument when a number lies outside of the data.
  void check() const;
  // Numbers of rows [first, first + count) and columns [0, cols), in the order given; null = as they are.
  void read_rows(int64_t first, int64_t count, const int32_t* columns, uint8_t* out, int64_t out_stride) const;
};

// Floats, E4M3 (FP8) or powers of two (E8M0) that groups of numbers are multiplied with.
enum class ScaleType : int32_t { F32 = 0, F16 = 1, BF16 = 30, E4M3 = 200, E8M0 = 201 };

struct Scales {
  const uint8_t* data;
  int64_t num_bytes;
  ScaleType type;
  int64_t rows, groups;      // of the table
  int64_t row_stride, group_stride;
  int64_t rows_each;         // rows of the matrix that share a row of the table
  int64_t cols_each;         // columns that share a group
  float factor;

  void check() const;
  float value(int64_t row, int64_t group) const;
};

struct ConvertArgs {
  WeightType to;
  int64_t rows, cols;
  const PackedInts* codes;
  const Scales* scales;
  const PackedInts* zeros;   // null: zero_point for all
  int32_t zero_point;        // or what is added to `zeros`, modulo the range of its bits
  const int32_t* columns;    // [cols] column of the matrix -> column of the codes; null: the same
  const int32_t* groups;     // [cols of the codes] -> its group of scales; null: column / cols_each
  int64_t row_begin, row_end;
};

// Rows [row_begin, row_end) as `to` stores them in a file.
// Throws std::invalid_argument for tables that do not fit together.
std::vector<uint8_t> convert_rows(const ConvertArgs& args);

// out[i] = map[codes[i]] * scales[i / block] + offset: scales that are quantised themselves (bitsandbytes).
// `map` has 256 entries.
std::vector<float> nested_scales(const uint8_t* codes, int64_t count, const float* map, const float* scales,
                                 int64_t block, float offset);

}  // namespace octavo
