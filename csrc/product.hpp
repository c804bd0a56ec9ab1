// A matrix product of some tokens, part by part of the matrix, and the rounding of what it multiplies.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/table.hpp"
#include "share.hpp"
#include "weights.hpp"

namespace octavo {

// Rows of activations. Parts of a matrix whose type takes the rounding multiply x_rounded where it is given,
// all others x.
struct ProductInput {
  const float* x;
  int64_t x_stride;
  const uint8_t* x_rounded;
  int64_t x_rounded_stride;  // bytes
  int64_t num_tokens;
  Rounding rounding;
};

// out[t][r] = row r of the matrix times token t, plus the bias, for the rows of `panels`, which count over
// all parts. `scratch`: of this thread, as large as the kernels ask for.
inline void multiply(const KernelTable& kernels, const Weights& weights, const Matrix& matrix,
                     const ProductInput& input, float* out, int64_t out_stride, const Share& panels,
                     float* scratch) {
  int64_t first_panel = 0;  // of the part
  for (const MatrixPart& part : matrix.parts) {
    const int64_t begin = std::max<int64_t>(panels.begin - first_panel, 0);
    const int64_t end = std::min(panels.end - first_panel, part.num_panels());
    first_panel += part.num_panels();
    if (begin >= end) continue;
    LinearArgs args{};
    args.type = part.type;
    args.panels = weights.panels(part);
    args.panel_bytes = part.panel_bytes;
    args.rows = part.rows;
    args.cols = matrix.cols;
    args.x = input.x;
    args.x_stride = input.x_stride;
    args.x_rounded = input.x_rounded;
    args.x_rounded_stride = input.x_rounded_stride;
    args.num_tokens = input.num_tokens;
    args.out = out + part.first_row;
    args.out_stride = out_stride;
    args.bias = matrix.bias.empty() ? nullptr : matrix.bias.data() + part.first_row;
    args.panel_begin = begin;
    args.panel_end = end;
    args.scratch = scratch;
    const bool is_rounded = input.x_rounded != nullptr && takes(part.type, input.rounding);
    if (!is_rounded) kernels.linear(args);
    else if (input.rounding == Rounding::Int8) kernels.linear_int8(args);
    else kernels.linear_bf16(args);
  }
}

inline void round_rows(const KernelTable& kernels, Rounding rounding, const RoundArgs& args) {
  if (rounding == Rounding::Int8) kernels.round_int8(args);
  else kernels.round_bf16(args);
}

}  // namespace octavo
