// Types of stored numbers, shared by packing, kernels and bindings.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simd/vec.hpp"

namespace octavo {

// How weights are stored. Values are GGML's type numbers (the GGUF format); those from 300 on are our own, made
// of the tensors of quantised checkpoints (convert.hpp). A number behind a name of ours is the block that
// shares a scale.
enum class WeightType : int32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  IQ4_NL = 20,
  IQ4_XS = 23,
  BF16 = 30,
  MXFP4 = 39,
  INT4_32 = 300,
  INT4_128 = 301,
  INT8_32 = 302,
  INT8_128 = 303,
  FP8_32 = 304,
  FP8_128 = 305,
  INT8_K = 306,
  FP4_16 = 307,
  NF4_32 = 308,
};

constexpr bool is_quantised(WeightType type) {
  return type != WeightType::F32 && type != WeightType::F16 && type != WeightType::BF16;
}

constexpr bool is_fp8(WeightType type) { return type == WeightType::FP8_32 || type == WeightType::FP8_128; }

// Whether products with int8 activations exist: the numbers behind the scale are integers of a byte.
constexpr bool takes_int8(WeightType type) {
  return is_quantised(type) && !is_fp8(type) && type != WeightType::NF4_32;
}

// What activations are rounded to before they are multiplied. Some types of weights take it, see takes().
enum class Rounding : int32_t { Int8 = 0, BFloat16 = 1 };

constexpr bool takes(WeightType type, Rounding rounding) {
  return rounding == Rounding::Int8 ? takes_int8(type) : type == WeightType::BF16;
}

// How keys and values are stored. Values are GGML's type numbers where it has them. Int8 and Int4 have a
// float16 scale for each token and head; the 8-bit floats (OCP 8-bit floating point, 2023) have none.
enum class KvType : int32_t {
  F32 = 0,
  F16 = 1,
  Int8 = 24,
  BF16 = 30,
  Fp8E4M3 = 200,
  Fp8E5M2 = 201,
  Int4 = 202,
};

constexpr OCTAVO_INLINE bool has_scales(KvType type) { return type == KvType::Int8 || type == KvType::Int4; }

// Bytes of one key or value of one head without its scale; 0 for no type. Int4 needs an even head_dim.
constexpr OCTAVO_INLINE int64_t kv_row_bytes(KvType type, int64_t head_dim) {
  switch (type) {
    case KvType::F32: return 4 * head_dim;
    case KvType::F16:
    case KvType::BF16: return 2 * head_dim;
    case KvType::Int8:
    case KvType::Fp8E4M3:
    case KvType::Fp8E5M2: return head_dim;
    case KvType::Int4: return head_dim / 2;
  }
  return 0;
}

// Bytes of the keys and values of one block and head, scales included.
constexpr OCTAVO_INLINE int64_t kv_head_bytes(KvType type, int64_t block_size,
                                               int64_t head_dim) {
  return 2 * block_size * (kv_row_bytes(type, head_dim) + (has_scales(type) ? 2 : 0));
}

enum class Activation : int32_t {
  Silu = 0,
  GeluTanh = 1,
  Gelu = 2,
  Relu = 3,
  SquaredRelu = 4,
  Tanh = 5,
  Sigmoid = 6,
  ClampedSwiglu = 7,  // of two inputs: the gate of a gated MLP
  Hardtanh = 8,
};

// Rows of a weight matrix that are interleaved into one panel; see packing.hpp.
constexpr int64_t kPanelRows = 8;
// Weights are consumed in groups of this many consecutive columns.
constexpr int64_t kGroup = 32;

}  // namespace octavo
