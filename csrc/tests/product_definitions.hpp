// What a matrix product is, written down a second time without regard to speed: what kernels/linear.hpp and
// kernels/linear_{int8,bf16}.hpp are checked against, bit for bit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "matrices.hpp"

namespace octavo::tests {

// The definition of a product: one chain of fused multiply-adds per output.
inline std::vector<float> chain_products(const Matrix& matrix, const std::vector<float>& x,
                                         int64_t x_stride, int64_t num_tokens, const float* bias) {
  std::vector<float> out;
  std::vector<float> weights(static_cast<size_t>(matrix.rows * matrix.cols));
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t k = 0; k < matrix.cols; ++k) {
      weights[static_cast<size_t>(row * matrix.cols + k)] = matrix.value(row, k);
    }
  }
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t row = 0; row < matrix.rows; ++row) {
      const float* w = weights.data() + row * matrix.cols;
      float sum = 0.0f;
      for (int64_t k = 0; k < matrix.cols; ++k) {
        sum = std::fma(x[static_cast<size_t>(t * x_stride + k)], w[k], sum);
      }
      out.push_back(bias ? sum + bias[row] : sum);
    }
  }
  return out;
}

// The definition of a product with bfloat16 activations: one chain over pairs of columns, the odd one first.
inline std::vector<float> bf16_products(const Matrix& matrix, const std::vector<float>& x, int64_t x_stride,
                                        int64_t num_tokens, const float* bias) {
  const size_t even_cols = static_cast<size_t>(matrix.cols + matrix.cols % 2);
  std::vector<std::vector<float>> rows(static_cast<size_t>(num_tokens), std::vector<float>(even_cols));
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t k = 0; k < matrix.cols; ++k) {
      const uint16_t half = nearest_half(x[static_cast<size_t>(t * x_stride + k)], 0x7f80, bf16_value);
      rows[static_cast<size_t>(t)][static_cast<size_t>(k)] = bf16_value(half);
    }
  }
  std::vector<float> out(static_cast<size_t>(num_tokens * matrix.rows)), w(even_cols);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t k = 0; k < matrix.cols; ++k) w[static_cast<size_t>(k)] = matrix.value(row, k);
    for (int64_t t = 0; t < num_tokens; ++t) {
      const std::vector<float>& own = rows[static_cast<size_t>(t)];
      float sum = 0.0f;
      for (size_t k = 0; k < even_cols; k += 2) {
        sum = std::fma(own[k + 1], w[k + 1], sum);
        sum = std::fma(own[k], w[k], sum);
      }
      out[static_cast<size_t>(t * matrix.rows + row)] = bias ? sum + bias[row] : sum;
    }
  }
  return out;
}

// A row of activations as int8, by its definition.
struct QuantisedTwin {
  std::vector<int> q;
  std::vector<float> scales;  // of groups of 32
};

inline QuantisedTwin quantised_twin(const float* x, int64_t cols) {
  QuantisedTwin twin;
  for (int64_t begin = 0; begin < cols; begin += kGroup) {
    float largest = 0.0f;
    for (int64_t k = begin; k < begin + kGroup; ++k) largest = std::max(largest, std::fabs(x[k]));
    twin.scales.push_back(largest / 127.0f);
    const float inverse = largest > 0x1p-100f ? 127.0f / largest : 0.0f;
    for (int64_t k = begin; k < begin + kGroup; ++k) {
      twin.q.push_back(static_cast<int>(std::nearbyint(x[k] * inverse)));
    }
  }
  return twin;
}

// One output of a product with int8 activations: for each scale of the weights an exact sum, then the offsets.
inline float int8_product(const std::vector<BlockElement>& weights, bool has_offset, int64_t part,
                          const QuantisedTwin& x) {
  float out = 0.0f;
  for (size_t begin = 0; begin < weights.size(); begin += kGroup) {
    const float activation_scale = x.scales[begin / kGroup];
    std::vector<int> activation_sums;
    for (size_t from = begin; from < begin + kGroup; from += static_cast<size_t>(part)) {
      int sum = 0;
      activation_sums.push_back(0);
      for (size_t k = from; k < from + static_cast<size_t>(part); ++k) {
        sum += weights[k].q * x.q[k];
        activation_sums.back() += x.q[k];
      }
      out = std::fma(static_cast<float>(sum), weights[from].scale * activation_scale, out);
    }
    for (size_t i = 0; has_offset && i < activation_sums.size(); ++i) {
      const float scaled_sum = activation_scale * static_cast<float>(activation_sums[i]);
      out = std::fma(weights[begin + i * static_cast<size_t>(part)].offset, scaled_sum, out);
    }
  }
  return out;
}

// The definition of a product with int8 activations.
inline std::vector<float> int8_products(const Matrix& matrix, const std::vector<float>& x,
                                        int64_t x_stride, int64_t num_tokens, const float* bias) {
  const auto is_one_of = [&](std::initializer_list<WeightType> types) {
    return std::find(types.begin(), types.end(), matrix.type) != types.end();
  };
  using T = WeightType;
  const bool has_two_scales = is_one_of({T::Q2_K, T::Q3_K, T::Q6_K, T::INT8_K, T::FP4_16});
  const int64_t part = has_two_scales ? 16 : 32;
  const bool has_offset = is_one_of({T::Q4_1, T::Q5_1, T::Q2_K, T::Q4_K, T::Q5_K, T::INT4_32, T::INT4_128,
                                     T::INT8_32, T::INT8_128});
  std::vector<QuantisedTwin> rows;
  for (int64_t t = 0; t < num_tokens; ++t) rows.push_back(quantised_twin(x.data() + t * x_stride, matrix.cols));
  std::vector<float> out(static_cast<size_t>(num_tokens * matrix.rows));
  std::vector<BlockElement> weights(static_cast<size_t>(matrix.cols));
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t k = 0; k < matrix.cols; ++k) weights[static_cast<size_t>(k)] = matrix.element(row, k);
    for (int64_t t = 0; t < num_tokens; ++t) {
      const float y = int8_product(weights, has_offset, part, rows[static_cast<size_t>(t)]);
      out[static_cast<size_t>(t * matrix.rows + row)] = bias ? y + bias[row] : y;
    }
  }
  return out;
}

// What activations are rounded to.
enum class Activations { Float32, Int8, BFloat16 };

constexpr bool takes(WeightType type, Activations activations) {
  if (activations == Activations::Float32) return true;
  return takes(type, activations == Activations::Int8 ? Rounding::Int8 : Rounding::BFloat16);
}

inline const char* name_of(Activations activations) {
  return activations == Activations::Int8 ? "int8" : activations == Activations::BFloat16 ? "bf16" : "float32";
}

inline std::vector<float> defined_products(Activations activations, const Matrix& matrix,
                                           const std::vector<float>& x, int64_t x_stride, int64_t num_tokens,
                                           const float* bias) {
  const auto definition = activations == Activations::Int8       ? int8_products
                          : activations == Activations::BFloat16 ? bf16_products
                                                                 : chain_products;
  return definition(matrix, x, x_stride, num_tokens, bias);
}

}  // namespace octavo::tests
