// The weights of one model in the layout that the kernels stream.
//
// All matrices are declared first, then memory for them is made in one piece, then they are filled, one
// tensor of the model file at a time. So a model that does not fit is refused before anything is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "memory.hpp"
#include "packing.hpp"
#include "threads.hpp"
#include "types.hpp"

namespace octavo {

// Consecutive output rows of a matrix that are stored in one type. A fused matrix may mix types.
struct MatrixPart {
  WeightType type;
  int64_t first_row;
  int64_t rows;
  int64_t panel_bytes;
  int64_t offset;  // of the first panel in the memory of all weights

  int64_t num_panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
};

// One tensor of the model file inside a matrix.
struct MatrixSource {
  int64_t rows;
  size_t part;
  int64_t first_panel;  // within the part
};

struct Matrix {
  int64_t rows = 0, cols = 0;
  std::vector<MatrixPart> parts;      // neighbours of one type whose panels are whole share a part
  std::vector<MatrixSource> sources;
  std::vector<float> bias;            // [rows], or empty

  int64_t num_panels() const;
};

// Rows of one tensor of a matrix, from `first_row` on (a multiple of kPanelRows): `bytes` bytes in the file's
// type `from`. Whole panels, or up to the last row.
// interleaved_heads: 0, or the number of heads whose rows lie in the file in llama.cpp's rotary
// order: file row h * d + 2 * i + j is row h * d + j * d / 2 + i (d = rows / heads); all rows then.
struct Piece {
  int32_t matrix;
  int32_t source;
  WeightType from;
  const uint8_t* data;
  int64_t bytes;
  int32_t interleaved_heads;
  int64_t first_row;
};

struct Packed {
  size_t count;     // pieces that are in
  std::string why;  // the next one is not; empty where that was all
};

class Weights {
 public:
  // A matrix of `cols` columns made of tensors stacked row-wise: (type in memory, rows) each.
  // Returns its id. Throws std::invalid_argument for sizes that the types cannot have, and
  // std::logic_error after allocate().
  int32_t add_matrix(int64_t cols, const std::vector<std::pair<WeightType, int64_t>>& sources);

  // Make the memory of all matrices; once.
  void allocate();

  // Pack pieces on all threads, without a meeting between them. Not packed are those from the first on that
  // is no piece of its matrix, or has a number or scale that is not finite.
  // Throws std::logic_error before allocate().
  Packed fill(ThreadPool& threads, const std::vector<Piece>& pieces);

  void set_bias(int32_t matrix, std::vector<float> bias);

  // A float32 vector; returns its id.
  int32_t add_vector(std::vector<float> values);

  // An order of columns; returns its id. Throws std::invalid_argument unless each index occurs once.
  int32_t add_order(std::vector<int32_t> columns);

  const Matrix& matrix(int32_t id) const;
  const std::vector<float>& vector(int32_t id) const;
  const std::vector<int32_t>& order(int32_t id) const;

  // The panels of a part; null before allocate().
  const uint8_t* panels(const MatrixPart& part) const {
    return memory_.size() == 0 ? nullptr : memory_.data() + part.offset;
  }

  // Of everything declared so far, whether allocated yet or not.
  int64_t num_bytes() const;

 private:
  // A piece that is ready to be packed.
  struct Job {
    PackArgs args;
    std::vector<int32_t> row_order;
    int64_t panel_bytes;
    int64_t num_panels;
  };

  Job job_of(const Piece& piece) const;

  std::deque<Matrix> matrices_;  // programs point into these
  std::deque<std::vector<float>> vectors_;
  std::deque<std::vector<int32_t>> orders_;
  int64_t matrix_bytes_ = 0;
  Memory memory_;
};

}  // namespace octavo
