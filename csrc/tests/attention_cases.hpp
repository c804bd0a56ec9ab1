// Sequences, a cache of random block tables, and steps over them, for the programs that check and time
// attention.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "../row_groups.hpp"
#include "check.hpp"
#include "kernel_tables.hpp"

namespace octavo::tests {

struct Shape {
  int64_t num_heads, num_kv_heads, head_dim;
  KvType type;
  int64_t block_size;
  int64_t window = 0;
  float soft_cap = 0.0f;
  bool is_biased = false;  // by sinks and by slopes

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
  // Bytes of the keys and values of so many tokens.
  int64_t bytes(int64_t num_tokens) const {
    return num_kv_heads * kv_head_bytes(type, num_tokens, head_dim);
  }
};

inline const std::vector<KvType> kKvTypes = {KvType::F32,     KvType::F16,     KvType::BF16, KvType::Int8,
                                             KvType::Fp8E4M3, KvType::Fp8E5M2, KvType::Int4};

// The nearest number of the 8-bit format, the even one of two; the largest one for those beyond it.
inline double rounded_fp8(KvType type, double value) {
  const bool is_e4m3 = type == KvType::Fp8E4M3;
  const int mantissa_bits = is_e4m3 ? 3 : 2, least_exponent = is_e4m3 ? -6 : -14;
  const double largest = is_e4m3 ? 448.0 : 57344.0;
  const int exponent = value == 0.0 ? least_exponent : std::max(std::ilogb(value), least_exponent);
  const double spacing = std::ldexp(1.0, exponent - mantissa_bits);
  return std::clamp(std::nearbyint(value / spacing) * spacing, -largest, largest);
}

// The product with the orthogonal Hadamard matrix, by sums and differences of pairs ever nearer.
template <class Number>
std::vector<Number> turned(std::vector<Number> x) {
  const size_t order = x.size() & -x.size();
  for (size_t step = order / 2; step > 0; step /= 2) {
    for (size_t i = 0; i < x.size(); ++i) {
      if (i & step) continue;
      const Number a = x[i], b = x[i + step];
      x[i] = a + b;
      x[i + step] = a - b;
    }
  }
  for (Number& number : x) number *= static_cast<Number>(1.0 / std::sqrt(static_cast<double>(order)));
  return x;
}

// A key or value after rounding.
inline std::vector<double> rounded_as_is(KvType type, const float* row, int64_t head_dim) {
  float farthest = 0.0f;  // from zero; the positive one of two
  for (int64_t d = 0; d < head_dim; ++d) {
    const bool is_tie = row[d] == -farthest && row[d] > 0.0f;
    if (std::abs(row[d]) > std::abs(farthest) || is_tie) farthest = row[d];
  }
  std::vector<double> numbers;
  for (int64_t d = 0; d < head_dim; ++d) {
    const float x = row[d];
    if (type == KvType::F32) numbers.push_back(x);
    else if (type == KvType::F16) numbers.push_back(f16_to_float(float_to_f16(x)));
    else if (type == KvType::BF16) numbers.push_back(bf16_to_float(float_to_bf16(x)));
    else if (type == KvType::Int8 || type == KvType::Int4) numbers.push_back(0.0);
    else numbers.push_back(rounded_fp8(type, x));
  }
  if (!has_scales(type)) return numbers;
  const bool is_8_bit = type == KvType::Int8;
  const float exact = is_8_bit ? std::abs(farthest) / 127.0f : farthest / -8.0f;
  const float scale = f16_to_float(float_to_f16(exact));
  for (int64_t d = 0; d < head_dim && scale != 0.0f; ++d) {
    const float units = std::nearbyint(row[d] * (1.0f / scale));
    const float bounded = std::clamp(units, is_8_bit ? -127.0f : -8.0f, is_8_bit ? 127.0f : 7.0f);
    numbers[static_cast<size_t>(d)] = static_cast<double>(scale) * bounded;
  }
  return numbers;
}

// A key or value as it comes back from the cache, turned back where its type is turned.
inline std::vector<double> rounded(KvType type, const float* row, int64_t head_dim) {
  if (!is_rotated(type)) return rounded_as_is(type, row, head_dim);
  const std::vector<float> stored = turned(std::vector<float>(row, row + head_dim));
  return turned(rounded_as_is(type, stored.data(), head_dim));
}

// Storage in which every slot that nobody wrote is NaN, and random block tables.
class Cache {
 public:
  Cache(const Shape& shape, int64_t num_blocks, Random& random) {
    const size_t num_bytes = static_cast<size_t>(shape.bytes(num_blocks * shape.block_size));
    bytes_.assign(num_bytes + kAlignment, 0xff);
    void* data = bytes_.data();
    size_t space = bytes_.size();
    std::align(kAlignment, num_bytes, data, space);
    kv_ = {data,           shape.type, num_blocks, shape.block_size, shape.num_kv_heads,
           shape.head_dim};
    for (int32_t id = 0; id < num_blocks; ++id) free_.push_back(id);
    std::shuffle(free_.begin(), free_.end(), random.engine());
  }
  const KvLayer& kv() const { return kv_; }

  std::vector<int32_t> table(int64_t num_tokens) {
    std::vector<int32_t> ids;
    for (int64_t slot = 0; slot < num_tokens; slot += kv_.block_size) {
      ids.push_back(free_.back());
      free_.pop_back();
    }
    return ids;
  }

 private:
  static constexpr size_t kAlignment = 64;

  std::vector<uint8_t> bytes_;
  KvLayer kv_;
  std::vector<int32_t> free_;
};

struct Sequence {
  int64_t length;
  std::vector<float> q, k, v;  // [length][heads * head_dim]

  Sequence(const Shape& shape, int64_t length, Random& random)
      : length(length),
        q(random.normals(length * shape.num_heads * shape.head_dim, 1.5f)),
        k(random.normals(length * shape.num_kv_heads * shape.head_dim)),
        v(random.normals(length * shape.num_kv_heads * shape.head_dim)) {}

  // Take over the first tokens of another sequence.
  void begin_like(const Shape& shape, const Sequence& other, int64_t num_tokens) {
    std::copy_n(other.q.begin(), num_tokens * shape.num_heads * shape.head_dim, q.begin());
    std::copy_n(other.k.begin(), num_tokens * shape.num_kv_heads * shape.head_dim, k.begin());
    std::copy_n(other.v.begin(), num_tokens * shape.num_kv_heads * shape.head_dim, v.begin());
  }
};

// Tokens [begin, end) of a sequence, as one row of a step.
struct Piece {
  size_t sequence;
  int64_t begin, end;
};

// The outputs of all tokens of all sequences, computed step by step.
class Runner {
 public:
  Runner(const KernelTable& kernels, const Shape& shape, const std::vector<Sequence>& sequences,
         Random& random)
      : kernels_(kernels), shape_(shape), sequences_(sequences), random_(random),
        cache_(shape, num_blocks(shape, sequences) + 3, random) {
    for (const Sequence& sequence : sequences) {
      tables_.push_back(cache_.table(sequence.length));
      outputs.emplace_back(static_cast<size_t>(sequence.length * width()), NAN);
    }
  }

  // The first tokens of a sequence are in the blocks of another one, as many as fill blocks.
  void share(size_t sequence, size_t other, int64_t num_tokens) {
    std::copy_n(tables_[other].begin(), num_tokens / shape_.block_size, tables_[sequence].begin());
  }

  void step(const std::vector<Piece>& pieces, int num_threads) {
    std::vector<BatchRow> rows;
    std::vector<float> q, k, v;
    const int64_t gap = random_.below(5);  // the arrays are columns of wider ones
    int32_t num_tokens = 0;
    int64_t max_len = 0;
    for (const Piece& piece : pieces) {
      const Sequence& sequence = sequences_[piece.sequence];
      rows.push_back({num_tokens, static_cast<int32_t>(piece.end - piece.begin),
                      static_cast<int32_t>(piece.begin), tables_[piece.sequence].data()});
      for (int64_t token = piece.begin; token < piece.end; ++token) {
        append(q, sequence.q, token, width(), gap);
        append(k, sequence.k, token, kv_width(), gap);
        append(v, sequence.v, token, kv_width(), gap);
      }
      num_tokens += rows.back().num_tokens;
      max_len = std::max(max_len, piece.end);
    }
    const std::vector<BatchRow> in_order = rows;
    RowGroups(cache_.kv().num_blocks, shape_.block_size).gather(rows.data(), static_cast<int64_t>(rows.size()));
    for (const BatchRow& row : rows) num_sharing += row.num_sharing > 1 ? row.num_sharing : 0;
    StepBatch batch{};
    batch.num_tokens = num_tokens;
    batch.num_rows = static_cast<int32_t>(rows.size());
    batch.rows = rows.data();
    write(batch, k, v, kv_width() + gap, num_threads);
    const std::vector<float> out = attend(batch, q, width() + gap, max_len, num_threads);
    for (size_t r = 0; r < pieces.size(); ++r) {
      std::copy_n(out.begin() + in_order[r].first_token * width(), in_order[r].num_tokens * width(),
                  outputs[pieces[r].sequence].begin() + pieces[r].begin * width());
    }
  }

  std::vector<std::vector<float>> outputs;
  int64_t used_partials = 0;
  int64_t num_sharing = 0;  // rows that shared a prefix, counted over all steps

 private:
  static int64_t num_blocks(const Shape& shape, const std::vector<Sequence>& sequences) {
    int64_t count = 0;
    for (const Sequence& sequence : sequences) {
      count += (sequence.length + shape.block_size - 1) / shape.block_size;
    }
    return count;
  }
  int64_t width() const { return shape_.num_heads * shape_.head_dim; }
  int64_t kv_width() const { return shape_.num_kv_heads * shape_.head_dim; }

  static void append(std::vector<float>& to, const std::vector<float>& from, int64_t token,
                     int64_t width, int64_t gap) {
    to.insert(to.end(), from.begin() + token * width, from.begin() + (token + 1) * width);
    to.insert(to.end(), static_cast<size_t>(gap), NAN);
  }

  void write(const StepBatch& batch, const std::vector<float>& k, const std::vector<float>& v,
             int64_t stride, int num_threads) {
    KvWriteArgs args{cache_.kv(), &batch, k.data(), stride, v.data(), stride, 0, 0};
    for (int thread = 0; thread < num_threads; ++thread) {
      args.begin = static_cast<int64_t>(batch.num_tokens) * thread / num_threads;
      args.end = static_cast<int64_t>(batch.num_tokens) * (thread + 1) / num_threads;
      kernels_.kv_write(args);
    }
  }

  std::vector<float> attend(const StepBatch& batch, const std::vector<float>& q, int64_t q_stride,
                            int64_t max_len, int num_threads) {
    const int64_t partials = kernels_.attention_partial_floats(
        batch.num_tokens, batch.num_rows, max_len, shape_.num_heads, shape_.head_dim);
    const int64_t guard = 64;
    std::vector<float> memory(static_cast<size_t>(partials + guard), NAN);
    std::vector<float> out(static_cast<size_t>(batch.num_tokens * width()), NAN);
    AttentionArgs args{cache_.kv(), &batch, q.data(), q_stride, out.data(), width(),
                       shape_.num_heads, shape_.scale(), shape_.window, shape_.soft_cap,
                       memory.data()};
    std::vector<float> biases;  // of each head, as sink and as slope
    for (int64_t head = 0; head < shape_.num_heads; ++head) {
      biases.push_back(0.5f / static_cast<float>(head + 1));
    }
    if (shape_.is_biased) args.sinks = args.slopes = biases.data();
    for (const auto phase : {kernels_.attention, kernels_.attention_merge}) {
      std::vector<std::thread> others;
      for (int thread = 1; thread < num_threads; ++thread) {
        others.emplace_back(phase, std::cref(args), thread, num_threads);
      }
      phase(args, 0, num_threads);
      for (std::thread& other : others) other.join();
    }
    for (int64_t i = 0; i < partials + guard; ++i) {
      if (std::isnan(memory[static_cast<size_t>(i)])) continue;
      check(i < partials, "%s wrote behind the partial results", kernels_.name);
      ++used_partials;
    }
    return out;
  }

  const KernelTable& kernels_;
  const Shape shape_;
  const std::vector<Sequence>& sequences_;
  Random& random_;
  Cache cache_;
  std::vector<std::vector<int32_t>> tables_;
};

}  // namespace octavo::tests
