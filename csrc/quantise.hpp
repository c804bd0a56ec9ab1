// From float rows to rows of quantised types, as a file stores them; and integers back to separate tables.
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

// Rows of INT4 or INT8 as the tables of a checkpoint: codes in 32-bit words along the row, lowest bits first;
// a float16 scale for each block; for INT4 zero points in words down the rows as well (no others have any).
struct IntTables {
  std::vector<uint8_t> words, scales, zeros;
};
IntTables int_tables(WeightType type, const uint8_t* rows, int64_t num_rows, int64_t cols);

}  // namespace octavo
