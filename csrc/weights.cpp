#include "weights.hpp"

#include <atomic>
#include <stdexcept>
#include <string>

#include "packing.hpp"
#include "share.hpp"

namespace octavo {
namespace {

// Output row -> row of the file; empty where they are the same.
std::vector<int32_t> file_rows(int64_t rows, int32_t interleaved_heads) {
  std::vector<int32_t> order;
  if (interleaved_heads == 0) return order;
  const int64_t head_rows = rows / interleaved_heads, half = head_rows / 2;
  order.reserve(static_cast<size_t>(rows));
  for (int64_t head = 0; head < interleaved_heads; ++head) {
    for (int64_t j = 0; j < 2; ++j) {
      for (int64_t i = 0; i < half; ++i) {
        order.push_back(static_cast<int32_t>(head * head_rows + 2 * i + j));
      }
    }
  }
  return order;
}

// How many rows so many bytes are, after a look at whether they can lie there.
int64_t rows_of(const Matrix& matrix, const MatrixSource& source, WeightType from, int64_t bytes,
                int64_t first_row) {
  const int64_t row_bytes =
      matrix.cols % block_elements(from) == 0 ? file_row_bytes(from, matrix.cols) : 0;
  const int64_t rows = row_bytes == 0 ? 0 : bytes / row_bytes;
  const bool is_end = first_row + rows == source.rows;
  if (rows < 1 || bytes != rows * row_bytes || first_row < 0 || first_row % kPanelRows != 0 ||
      first_row > source.rows - rows || (rows % kPanelRows != 0 && !is_end)) {
    throw std::invalid_argument("a tensor of " + std::to_string(source.rows) + " x " +
                                std::to_string(matrix.cols) + " cannot have " +
                                std::to_string(bytes) + " bytes from row " +
                                std::to_string(first_row) + " on");
  }
  return rows;
}

}  // namespace

int64_t Matrix::num_panels() const {
  int64_t panels = 0;
  for (const MatrixPart& part : parts) panels += part.num_panels();
  return panels;
}

int32_t Weights::add_matrix(int64_t cols,
                            const std::vector<std::pair<WeightType, int64_t>>& sources) {
  if (memory_.size() != 0) throw std::logic_error("the memory of the weights is made already");
  if (cols < 1 || sources.empty()) throw std::invalid_argument("a matrix needs rows and columns");
  Matrix matrix;
  matrix.cols = cols;
  for (const auto& [type, rows] : sources) {
    if (rows < 1 || cols % block_elements(type) != 0) {
      throw std::invalid_argument("a tensor of " + std::to_string(rows) + " rows and " +
                                  std::to_string(cols) + " columns cannot have type " +
                                  std::to_string(static_cast<int>(type)));
    }
    const bool joins = !matrix.parts.empty() && matrix.parts.back().type == type &&
                       matrix.parts.back().rows % kPanelRows == 0;
    if (!joins) matrix.parts.push_back({type, matrix.rows, 0, panel_bytes(type, cols), 0});
    MatrixPart& part = matrix.parts.back();
    matrix.sources.push_back({rows, matrix.parts.size() - 1, part.num_panels()});
    part.rows += rows;
    matrix.rows += rows;
  }
  for (MatrixPart& part : matrix.parts) {
    part.offset = matrix_bytes_;
    matrix_bytes_ += part.num_panels() * part.panel_bytes;
  }
  matrices_.push_back(std::move(matrix));
  return static_cast<int32_t>(matrices_.size()) - 1;
}

void Weights::allocate() {
  if (memory_.size() != 0) throw std::logic_error("the memory of the weights is made already");
  memory_ = Memory(matrix_bytes_);
}

void Weights::fill(ThreadPool& threads, int32_t matrix_id, int32_t source_index, WeightType from,
                   const uint8_t* data, int64_t bytes, int32_t interleaved_heads, int64_t first_row) {
  const Matrix& matrix = this->matrix(matrix_id);
  const MatrixSource& source = matrix.sources.at(static_cast<size_t>(source_index));
  const MatrixPart& part = matrix.parts[source.part];
  if (memory_.size() == 0) throw std::logic_error("the weights have no memory yet");
  if (from != part.type && (is_quantised(from) || is_quantised(part.type))) {
    throw std::invalid_argument("only float tensors can be kept in another type");
  }
  const int64_t rows = rows_of(matrix, source, from, bytes, first_row);
  if (interleaved_heads < 0 ||
      (interleaved_heads > 0 &&
       (rows != source.rows || rows % (2 * int64_t{interleaved_heads}) != 0))) {
    throw std::invalid_argument(std::to_string(rows) + " rows cannot be " +
                                std::to_string(interleaved_heads) + " heads of rotary halves");
  }
  const std::vector<int32_t> order = file_rows(rows, interleaved_heads);
  PackArgs args;
  args.source = data;
  args.from = from;
  args.to = part.type;
  args.rows = rows;
  args.cols = matrix.cols;
  args.row_order = order.empty() ? nullptr : order.data();
  const int64_t first_panel = source.first_panel + first_row / kPanelRows;
  args.panels = memory_.data() + part.offset + first_panel * part.panel_bytes;
  const int64_t panels = (rows + kPanelRows - 1) / kPanelRows;
  std::atomic<bool> is_finite{true};
  threads.run([&](int thread) {
    PackArgs own = args;
    const Share share = share_of(panels, thread, threads.num_threads());
    own.panel_begin = share.begin;
    own.panel_end = share.end;
    if (share.begin < share.end && !pack_panels(own)) is_finite = false;
  });
  if (!is_finite) throw std::domain_error("it holds a number that is not finite");
}

void Weights::set_bias(int32_t matrix_id, std::vector<float> bias) {
  if (static_cast<int64_t>(bias.size()) != matrix(matrix_id).rows) {
    throw std::invalid_argument("a bias needs one number for each row of its matrix");
  }
  matrices_[static_cast<size_t>(matrix_id)].bias = std::move(bias);
}

int32_t Weights::add_vector(std::vector<float> values) {
  vectors_.push_back(std::move(values));
  return static_cast<int32_t>(vectors_.size()) - 1;
}

int32_t Weights::add_order(std::vector<int32_t> columns) {
  std::vector<bool> seen(columns.size());
  for (const int32_t column : columns) {
    const size_t index = static_cast<size_t>(column);
    if (column < 0 || index >= seen.size() || seen[index]) {
      throw std::invalid_argument("an order must name each column once");
    }
    seen[index] = true;
  }
  orders_.push_back(std::move(columns));
  return static_cast<int32_t>(orders_.size()) - 1;
}

const Matrix& Weights::matrix(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= matrices_.size()) {
    throw std::invalid_argument("no matrix " + std::to_string(id));
  }
  return matrices_[static_cast<size_t>(id)];
}

const std::vector<float>& Weights::vector(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= vectors_.size()) {
    throw std::invalid_argument("no vector " + std::to_string(id));
  }
  return vectors_[static_cast<size_t>(id)];
}

const std::vector<int32_t>& Weights::order(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= orders_.size()) {
    throw std::invalid_argument("no order " + std::to_string(id));
  }
  return orders_[static_cast<size_t>(id)];
}

int64_t Weights::num_bytes() const {
  int64_t bytes = matrix_bytes_;
  for (const std::vector<int32_t>& order : orders_) {
    bytes += static_cast<int64_t>(order.size() * sizeof(int32_t));
  }
  for (const Matrix& matrix : matrices_) {
    bytes += static_cast<int64_t>(matrix.bias.size() * sizeof(float));
  }
  for (const std::vector<float>& vector : vectors_) {
    bytes += static_cast<int64_t>(vector.size() * sizeof(float));
  }
  return bytes;
}

}  // namespace octavo
