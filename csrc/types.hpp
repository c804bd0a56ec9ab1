// Types of stored numbers, shared by packing, kernels and bindings.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

// How weights are stored. Values are GGML's type numbers (the GGUF format).
enum class WeightType : int32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  BF16 = 30,
};

constexpr bool is_quantised(WeightType type) {
  return type != WeightType::F32 && type != WeightType::F16 && type != WeightType::BF16;
}

// How keys and values are stored.
enum class KvType : int32_t { F32 = 0, F16 = 1, BF16 = 30 };

enum class Activation : int32_t {
  Silu = 0,
  GeluTanh = 1,
  Gelu = 2,
  Relu = 3,
  SquaredRelu = 4,
  Tanh = 5,
};

// Rows of a weight matrix that are interleaved into one panel; see packing.hpp.
constexpr int64_t kPanelRows = 8;
// Weights are consumed in groups of this many consecutive columns.
constexpr int64_t kGroup = 32;

}  // namespace octavo
