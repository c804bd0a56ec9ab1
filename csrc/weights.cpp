#include "weights.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

namespace octavo {
namespace {

// Memory that one thread fills at a time. New memory comes in pages of this size, where the system has them,
// and is cleared twice where two threads want the same page.
constexpr int64_t kMostAtOnce = 2 << 20;
constexpr int64_t kPortionsPerThread = 4;  // at least, so that no thread waits long for the last one

// Panels of one piece in one stretch of memory. A thread takes all that are in it.
struct Portion {
  size_t job;
  int64_t begin, end;
};

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

Weights::Job Weights::job_of(const Piece& piece) const {
  const Matrix& matrix = this->matrix(piece.matrix);
  const MatrixSource& source = matrix.sources.at(static_cast<size_t>(piece.source));
  const MatrixPart& part = matrix.parts[source.part];
  if (piece.from != part.type && (is_quantised(piece.from) || is_quantised(part.type))) {
    throw std::invalid_argument("only float tensors can be kept in another type");
  }
  const int64_t rows = rows_of(matrix, source, piece.from, piece.bytes, piece.first_row);
  if (piece.interleaved_heads < 0 ||
      (piece.interleaved_heads > 0 &&
       (rows != source.rows || rows % (2 * int64_t{piece.interleaved_heads}) != 0))) {
    throw std::invalid_argument(std::to_string(rows) + " rows cannot be " +
                                std::to_string(piece.interleaved_heads) +
                                " heads of rotary halves");
  }
  Job job;
  job.row_order = file_rows(rows, piece.interleaved_heads);
  job.args.source = piece.data;
  job.args.from = piece.from;
  job.args.to = part.type;
  job.args.rows = rows;
  job.args.cols = matrix.cols;
  job.args.row_order = job.row_order.empty() ? nullptr : job.row_order.data();
  const int64_t first_panel = source.first_panel + piece.first_row / kPanelRows;
  job.args.panels = memory_.data() + part.offset + first_panel * part.panel_bytes;
  job.panel_bytes = part.panel_bytes;
  job.num_panels = (rows + kPanelRows - 1) / kPanelRows;
  return job;
}

Packed Weights::fill(ThreadPool& threads, const std::vector<Piece>& pieces) {
  if (memory_.size() == 0) throw std::logic_error("the weights have no memory yet");
  Packed packed{pieces.size(), ""};
  std::vector<Job> jobs;
  int64_t bytes = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    try {
      jobs.push_back(job_of(pieces[i]));
    } catch (const std::exception& error) {
      packed = {i, error.what()};
      break;
    }
    bytes += jobs.back().num_panels * jobs.back().panel_bytes;
  }
  const int64_t stretch =
      std::clamp<int64_t>(bytes / (kPortionsPerThread * threads.num_threads()), 1, kMostAtOnce);
  std::vector<std::vector<Portion>> shares;
  int64_t last_stretch = -1;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Job& job = jobs[i];
    for (int64_t begin = 0, end; begin < job.num_panels; begin = end) {
      const int64_t offset = job.args.panels - memory_.data() + begin * job.panel_bytes;
      const int64_t left = stretch - offset % stretch;
      end = std::min(begin + (left + job.panel_bytes - 1) / job.panel_bytes, job.num_panels);
      if (offset / stretch != last_stretch) shares.emplace_back();
      last_stretch = offset / stretch;
      shares.back().push_back({i, begin, end});
    }
  }
  std::atomic<size_t> next{0}, first_wrong{jobs.size()};
  threads.run([&](int) {
    for (size_t i = next++; i < shares.size(); i = next++) {
      for (const Portion& portion : shares[i]) {
        PackArgs args = jobs[portion.job].args;
        args.panel_begin = portion.begin;
        args.panel_end = portion.end;
        if (pack_panels(args)) continue;
        size_t before = first_wrong;
        while (portion.job < before && !first_wrong.compare_exchange_weak(before, portion.job)) {
        }
      }
    }
  });
  if (first_wrong < jobs.size()) packed = {first_wrong, "it holds a number that is not finite"};
  return packed;
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
