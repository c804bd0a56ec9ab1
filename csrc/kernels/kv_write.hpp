// Storing the keys and values of a step's tokens in their blocks.
#pragma once

#include <cstdint>

#include "kv_stored.hpp"
#include "table.hpp"

namespace octavo {

// Store the keys of `count` <= kLanes consecutive slots: keys[d * block_size + slot] = k[slot][d].
// Rows of K are dimensions, so with a whole vector of slots each dimension is one store.
template <class V, KvType type>
OCTAVO_INLINE void write_keys(const KvWriteArgs& args, typename Stored<V, type>::Number* keys,
                              const float* k, int64_t count) {
  using Store = Stored<V, type>;
  constexpr int64_t kLanes = V::kLanes;
  const int64_t block_size = args.kv.block_size;
  const int64_t head_dim = args.kv.head_dim;
  if (count == kLanes) {
    for (int64_t d = 0; d < head_dim; ++d) {
      float column[kLanes];
      OCTAVO_UNROLL
      for (int64_t slot = 0; slot < kLanes; ++slot) column[slot] = k[slot * args.k_stride + d];
      Store::store(keys + d * block_size, V::load(column));
    }
    return;
  }
  for (int64_t slot = 0; slot < count; ++slot) {
    const float* row = k + slot * args.k_stride;
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      const int64_t n = head_dim - d < kLanes ? head_dim - d : kLanes;
      typename Store::Number rounded[kLanes];
      Store::store(rounded, n == kLanes ? V::load(row + d) : V::load_first(row + d, n));
      for (int64_t i = 0; i < n; ++i) keys[(d + i) * block_size + slot] = rounded[i];
    }
  }
}

// Store the values of `count` consecutive slots: values[slot * head_dim + d] = v[slot][d].
template <class V, KvType type>
OCTAVO_INLINE void write_values(const KvWriteArgs& args, typename Stored<V, type>::Number* values,
                                const float* v, int64_t count) {
  using Store = Stored<V, type>;
  constexpr int64_t kLanes = V::kLanes;
  const int64_t head_dim = args.kv.head_dim;
  for (int64_t slot = 0; slot < count; ++slot) {
    const float* from = v + slot * args.v_stride;
    auto* to = values + slot * head_dim;
    int64_t d = 0;
    for (; d + kLanes <= head_dim; d += kLanes) Store::store(to + d, V::load(from + d));
    const int64_t rest = head_dim - d;
    if (rest > 0) Store::store_first(to + d, V::load_first(from + d, rest), rest);
  }
}

template <class V, KvType type>
void write_tokens(const KvWriteArgs& args) {
  using Number = typename Stored<V, type>::Number;
  const KvLayer& kv = args.kv;
  for (int64_t r = 0; r < args.batch->num_rows; ++r) {
    const BatchRow& row = args.batch->rows[r];
    const int64_t row_end = row.first_token + row.num_tokens;
    const int64_t end = row_end < args.end ? row_end : args.end;
    int64_t token = row.first_token > args.begin ? row.first_token : args.begin;
    while (token < end) {
      // As many slots as share one vector of K: up to the next multiple of kLanes.
      const int64_t position = row.context_len + (token - row.first_token);
      const int64_t aligned = V::kLanes - position % V::kLanes;
      const int64_t count = aligned < end - token ? aligned : end - token;
      const int64_t block_id = row.block_table[position / kv.block_size];
      const int64_t slot = position % kv.block_size;
      for (int64_t head = 0; head < kv.num_kv_heads; ++head) {
        const int64_t column = head * kv.head_dim;
        write_keys<V, type>(args, block_keys<Number>(kv, block_id, head) + slot,
                            args.k + token * args.k_stride + column, count);
        write_values<V, type>(
            args, block_values<Number>(kv, block_id, head) + slot * kv.head_dim,
            args.v + token * args.v_stride + column, count);
      }
      token += count;
    }
  }
}

template <class V>
void kv_write(const KvWriteArgs& args) {
  switch (args.kv.type) {
    case KvType::F32: return write_tokens<V, KvType::F32>(args);
    case KvType::F16: return write_tokens<V, KvType::F16>(args);
    case KvType::BF16: return write_tokens<V, KvType::BF16>(args);
  }
}

}  // namespace octavo
