// From the rows of a model file to panels that the kernels stream.
//
// A panel holds kPanelRows (8) consecutive output rows, interleaved so that one 256-bit load brings the
// same columns of all eight rows and no inner loop needs a shuffle across lanes. Panels are consumed in
// groups of kGroup (32) columns. Numbers keep their own width: nothing is expanded in memory.
//
//   F32          [col][8 rows]
//   BF16, F16    [col / 2][8 rows][2 cols]        (odd last column padded with zero)
//   Q4_0, Q4_1   per group: 8 fp16 d (, 8 fp16 m), 4 x 32 B; byte row * 4 + i of vector j holds column
//                4j + i in the low and 16 + 4j + i in the high nibble
//   Q5_0, Q5_1   as Q4, then 8 x uint32: bit c is the fifth bit of column c of that row
//   Q8_0         per group: 8 fp16 d, 8 x 32 B; byte row * 4 + i of vector j holds column 4j + i
//   K-quants     per super-block of 256: the super-block numbers of 8 rows, then the groups alike
//
// The order of bytes within a group is the one that integer dot products over four columns want as well.
#pragma once

#include <cstdint>

#include "types.hpp"

namespace octavo {

// Bytes of `cols` elements of one row in the model file; cols must be a multiple of the type's block.
int64_t file_row_bytes(WeightType type, int64_t cols);

// Elements of a row that the type stores together: 1, 32 or 256.
int64_t block_elements(WeightType type);

// Bytes of one panel of `cols` columns, rounded up to 64.
int64_t panel_bytes(WeightType type, int64_t cols);

// The type in which a tensor of `stored` type is kept when the user asks for `wanted` (a float type), or
// the stored type itself for quantised tensors.
//
// Write panels [panel_begin, panel_end) of a matrix. `source` is row-major in the file's type `from`;
// `to` equals `from`, or both are float types. `row_order` maps output row -> source row, null = same.
struct PackArgs {
  const uint8_t* source;
  WeightType from, to;
  int64_t rows, cols;
  const int32_t* row_order;
  uint8_t* panels;
  int64_t panel_begin, panel_end;
};
void pack_panels(const PackArgs& args);

}  // namespace octavo
