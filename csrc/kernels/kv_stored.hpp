// Reading and writing the types in which keys and values are stored, and where they lie.
#pragma once

#include <cstdint>

#include "../simd/half.hpp"
#include "../simd/vec.hpp"
#include "table.hpp"

namespace octavo {

// kLanes stored numbers <-> float32 lanes. Narrowing rounds to nearest even.
template <class V, KvType type>
struct Stored;

template <class V>
struct Stored<V, KvType::F32> {
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
struct Stored<V, KvType::F16> {
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
struct Stored<V, KvType::BF16> {
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

// K of one block and head, [head_dim][block_size]; V, [block_size][head_dim], follows it.
template <class Number>
OCTAVO_INLINE Number* block_keys(const KvLayer& kv, int64_t block_id, int64_t head) {
  const int64_t part = kv.block_size * kv.head_dim;
  return static_cast<Number*>(kv.data) + (block_id * kv.num_kv_heads + head) * 2 * part;
}

template <class Number>
OCTAVO_INLINE Number* block_values(const KvLayer& kv, int64_t block_id, int64_t head) {
  return block_keys<Number>(kv, block_id, head) + kv.block_size * kv.head_dim;
}

}  // namespace octavo
