// The types in which keys and values are stored: reading them, rounding to them, and where they lie.
//
// Reading gives *units*: a number is its unit times Stored::kUnit times the scale of its token and head,
// where the type has scales. Products run on units; attention multiplies scores and weights with the rest.
#pragma once

#include <cstdint>

#include "../simd/half.hpp"
#include "../simd/vec.hpp"
#include "table.hpp"

namespace octavo {

// How a type is read and, for the types wider than a byte, written:
//   Number                       what is stored; kDims dimensions of a token share one
//   load_keys<part>(p)           units of kLanes keys, of dimension `part` of those that share a Number
//   load(p), load_first(p, n)    units of kLanes dimensions (or n of them) of one value
//   store, store_first           round to nearest even
template <class V, KvType type>
struct Stored;

// What most types have in common: one dimension in a Number, whose unit is 1.
template <class V, class Self>
struct StoredAlone {
  static constexpr int kDims = 1;
  static constexpr float kUnit = 1.0f;
  template <int part, class Number>
  static OCTAVO_INLINE typename V::Floats load_keys(const Number* p) {
    return Self::load(p);
  }
};

template <class V>
struct Stored<V, KvType::F32> : StoredAlone<V, Stored<V, KvType::F32>> {
  using Number = float;
  static OCTAVO_INLINE typename V::Floats load(const Number* p) { return V::load(p); }
  static OCTAVO_INLINE typename V::Floats load_first(const Number* p, int64_t n) {
    return V::load_first(p, n);
  }
  static OCTAVO_INLINE void store(Number* p, typename V::Floats v) { V::store(p, v); }
  static OCTAVO_INLINE void store_first(Number* p, typename V::Floats v, int64_t n) {
    V::store_first(p, v, n);
  }
};

template <class V>
struct Stored<V, KvType::F16> : StoredAlone<V, Stored<V, KvType::F16>> {
  using Number = uint16_t;
  static OCTAVO_INLINE typename V::Floats load(const Number* p) { return V::load_f16(p); }
  static OCTAVO_INLINE typename V::Floats load_first(const Number* p, int64_t n) {
    return V::load_first_f16(p, n);
  }
  static OCTAVO_INLINE void store(Number* p, typename V::Floats v) { V::store_f16(p, v); }
  static OCTAVO_INLINE void store_first(Number* p, typename V::Floats v, int64_t n) {
    V::store_first_f16(p, v, n);
  }
};

template <class V>
struct Stored<V, KvType::BF16> : StoredAlone<V, Stored<V, KvType::BF16>> {
  using Number = uint16_t;
  static OCTAVO_INLINE typename V::Floats load(const Number* p) { return V::load_bf16(p); }
  static OCTAVO_INLINE typename V::Floats load_first(const Number* p, int64_t n) {
    return V::load_first_bf16(p, n);
  }
  static OCTAVO_INLINE void store(Number* p, typename V::Floats v) { V::store_bf16(p, v); }
  static OCTAVO_INLINE void store_first(Number* p, typename V::Floats v, int64_t n) {
    V::store_first_bf16(p, v, n);
  }
};

// Types of a byte or less; encode_row in kv_write.hpp writes them.
template <class V, class Self>
struct StoredByte : StoredAlone<V, Self> {
  using Number = uint8_t;
  static OCTAVO_INLINE typename V::Floats load_first(const uint8_t* p, int64_t n) {
    uint8_t bytes[V::kLanes] = {};
    for (int64_t i = 0; i < n; ++i) bytes[i] = p[i];
    return Self::load(bytes);
  }
};

template <class V>
struct Stored<V, KvType::Int8> : StoredByte<V, Stored<V, KvType::Int8>> {
  static OCTAVO_INLINE typename V::Floats load(const uint8_t* p) {
    return V::to_floats(V::load_i8(reinterpret_cast<const int8_t*>(p)));
  }
};

template <class V>
struct Stored<V, KvType::Fp8E4M3> : StoredByte<V, Stored<V, KvType::Fp8E4M3>> {
  static constexpr float kUnit = 256.0f;
  static OCTAVO_INLINE typename V::Floats load(const uint8_t* p) { return V::load_e4m3(p); }
};

template <class V>
struct Stored<V, KvType::Fp8E5M2> : StoredByte<V, Stored<V, KvType::Fp8E5M2>> {
  static OCTAVO_INLINE typename V::Floats load(const uint8_t* p) { return V::load_e5m2(p); }
};

template <class V>
struct Stored<V, KvType::Int4> {
  using Number = uint8_t;
  static constexpr int kDims = 2;
  static constexpr float kUnit = 1.0f;
  template <int part>
  static OCTAVO_INLINE typename V::Floats load_keys(const Number* p) {
    typename V::Ints pairs = V::load_i8(reinterpret_cast<const int8_t*>(p));
    if constexpr (part == 0) pairs = V::template shift_left<28>(pairs);
    return V::to_floats(V::template shift_right_signed<part == 0 ? 28 : 4>(pairs));
  }
  static OCTAVO_INLINE typename V::Floats load(const Number* p) {
    return V::to_floats(V::load_i4(p));
  }
  static OCTAVO_INLINE typename V::Floats load_first(const Number* p, int64_t n) {
    Number bytes[V::kLanes / 2] = {};
    for (int64_t i = 0; i < n / 2; ++i) bytes[i] = p[i];
    return load(bytes);
  }
};

// K of one block and head, [head_dim][block_size]; V, [block_size][head_dim], follows it.
template <class Number>
OCTAVO_INLINE Number* block_keys(const KvLayer& kv, int64_t block_id, int64_t head) {
  const int64_t bytes = kv_head_bytes(kv.type, kv.block_size, kv.head_dim);
  uint8_t* first = static_cast<uint8_t*>(kv.data) + (block_id * kv.num_kv_heads + head) * bytes;
  return reinterpret_cast<Number*>(first);
}

template <class Number>
OCTAVO_INLINE Number* block_values(const KvLayer& kv, int64_t block_id, int64_t head) {
  uint8_t* keys = block_keys<uint8_t>(kv, block_id, head);
  return reinterpret_cast<Number*>(keys + kv.block_size * kv_row_bytes(kv.type, kv.head_dim));
}

// Scales of the keys of one block and head, [block_size]; those of the values follow.
OCTAVO_INLINE uint16_t* block_scales(const KvLayer& kv, int64_t block_id, int64_t head) {
  uint8_t* keys = block_keys<uint8_t>(kv, block_id, head);
  const int64_t part = kv.block_size * kv_row_bytes(kv.type, kv.head_dim);
  return reinterpret_cast<uint16_t*>(keys + 2 * part);
}

}  // namespace octavo
