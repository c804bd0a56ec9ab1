// From float rows to rows of quantised types, as a file stores them, or to separate tables of integers.
#pragma once

#include <cstdint>
#include <vector>

#include "types.hpp"

namespace octavo {

// Types that quantise_rows makes.
bool is_quantisable(WeightType to);

// `rows` rows of `cols` numbers of a float type. Rounding is to the nearest; each row stands alone.
//   Q8_0, Q4_0, Q4_1   the numbers of ggml's reference quantisation
//   Q4_K               scale and minimum of a group by least squares over a few candidates
//   INT4               minimum and maximum of a block on 0..15; scales are float16 numbers
//   INT8               the largest magnitude of a block on 127; scales are float16 numbers
//   FP8                the largest magnitude of the row on 448
// Throws std::invalid_argument for columns that are no whole blocks, std::domain_error for numbers that are
// not finite.
std::vector<uint8_t> quantise_rows(WeightType from, const uint8_t* data, int64_t rows, int64_t cols,
                                   WeightType to);

// Float rows to be rounded to integers of 4 or 8 bits, with a scale for each `group` columns, as INT4 and INT8 are.
// Each number is multiplied by the factor of its row and that of its column first; null: 1.
struct RowRounding {
  WeightType from;
  const uint8_t* data;
  int64_t rows, cols;
  int bits;
  int64_t group;
  const float* row_factors;
  const float* column_factors;
};

// The tables of a checkpoint: codes in 32-bit words along the row, lowest bits first; a float16 scale for each
// group; for 4 bits zero points in words down the rows as well (no others have any).
// All of these throw std::invalid_argument for sizes that do not fit, std::domain_error for numbers that are not
// finite.
struct IntTables {
  std::vector<uint8_t> words, scales, zeros;
};
IntTables rounded_tables(const RowRounding& args);

// The squared errors of every `step`-th row, column factors taken out again, each times the weight of its column.
double rounding_error(const RowRounding& args, const float* weights, int64_t step);

// Adds up the magnitudes and squares of each column of `rows` rows.
void add_columns(const float* x, int64_t rows, int64_t cols, double* magnitudes, double* squares);

}  // namespace octavo
