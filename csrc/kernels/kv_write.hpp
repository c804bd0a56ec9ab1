// Storing the keys and values of a step's tokens in their blocks.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kv_stored.hpp"
#include "rotate.hpp"
#include "table.hpp"

namespace octavo {

// The 8-bit float formats: bits of the mantissa, what is subtracted from a float32's exponent, the
// smallest normal number, 1 over the smallest number, the largest number.
struct E4M3 {
  static constexpr int kMantissa = 3, kRebias = 120;
  static constexpr float kNormal = 0x1p-6f, kSteps = 0x1p9f, kLargest = 448.0f;
};
struct E5M2 {
  static constexpr int kMantissa = 2, kRebias = 112;
  static constexpr float kNormal = 0x1p-14f, kSteps = 0x1p16f, kLargest = 57344.0f;
};

// Round to nearest even; what is too large becomes the largest number of its sign; NaN stays.
template <class V, class Format>
OCTAVO_INLINE typename V::Ints encode_fp8(typename V::Floats x) {
  using Floats = typename V::Floats;
  using Ints = typename V::Ints;
  constexpr int kShift = 23 - Format::kMantissa;
  const Floats magnitude = V::min(V::abs(x), V::set1(Format::kLargest));
  const Ints bits = V::as_ints(magnitude);
  const Ints odd = V::bit_and(V::template shift_right<kShift>(bits), V::set1_int(1));
  const Ints rounded = V::add(bits, V::add(odd, V::set1_int((1 << (kShift - 1)) - 1)));
  const Ints normal = V::sub(V::template shift_right<kShift>(rounded),
                             V::set1_int(Format::kRebias << Format::kMantissa));
  const Ints denormal = V::to_ints(V::mul(magnitude, V::set1(Format::kSteps)));
  Ints code = V::select(V::less(magnitude, V::set1(Format::kNormal)), denormal, normal);
  code = V::select(V::equal(x, x), code, V::set1_int(0x7f));
  const Ints sign = V::bit_and(V::template shift_right<24>(V::as_ints(x)), V::set1_int(0x80));
  return V::bit_or(code, sign);
}

// Calls visit(vector, d) for the kLanes numbers from each d on; zeros follow the last one.
template <class V, class Visit>
OCTAVO_INLINE void each_vector(const float* x, int64_t size, Visit visit) {
  for (int64_t d = 0; d < size; d += V::kLanes) {
    const int64_t n = size - d < V::kLanes ? size - d : V::kLanes;
    visit(n == V::kLanes ? V::load(x + d) : V::load_first(x + d, n), d);
  }
}

// The scale of a key or value, as float16 bits: of largest magnitude / 127, or of the number of largest
// magnitude / -8, so that all sixteen int4 are in use. NaN if there is an infinity or a NaN.
template <class V, KvType type>
OCTAVO_INLINE uint16_t row_scale(const float* x, int64_t head_dim) {
  using Floats = typename V::Floats;
  Floats highest = V::zero(), lowest = V::zero(), zeros = V::zero();
  each_vector<V>(x, head_dim, [&](Floats v, int64_t) {
    highest = V::max(v, highest);
    lowest = V::min(v, lowest);
    zeros = V::fma(v, V::zero(), zeros);
  });
  const float most = V::reduce_max(highest), least = V::reduce_min(lowest);
  const float farthest = most >= -least ? most : least;
  const float steps = type == KvType::Int8 ? (most >= -least ? 127.0f : -127.0f) : -8.0f;
  return float_to_f16(farthest / steps + V::reduce_add(zeros));
}

// Write a key or value of a byte type as one byte for each dimension (Int4 as well); returns the scale.
template <class V, KvType type>
OCTAVO_INLINE uint16_t encode_row(const float* x, int64_t head_dim, uint8_t* bytes) {
  using Floats = typename V::Floats;
  if constexpr (has_scales(type)) {
    const uint16_t scale = row_scale<V, type>(x, head_dim);
    const float step = f16_to_float(scale);
    const Floats inverse = V::set1(step > 0.0f || step < 0.0f ? 1.0f / step : 0.0f);
    const Floats least = V::set1(type == KvType::Int8 ? -127.0f : -8.0f);
    const Floats most = V::set1(type == KvType::Int8 ? 127.0f : 7.0f);
    each_vector<V>(x, head_dim, [&](Floats v, int64_t d) {
      // The maximum makes a number of a NaN.
      const Floats bounded = V::min(V::max(V::mul(v, inverse), least), most);
      V::store_u8(bytes + d, V::to_ints(bounded));
    });
    return scale;
  } else {
    using Format = std::conditional_t<type == KvType::Fp8E4M3, E4M3, E5M2>;
    each_vector<V>(x, head_dim, [&](Floats v, int64_t d) {
      V::store_u8(bytes + d, encode_fp8<V, Format>(v));
    });
    return 0;
  }
}

// The same of a key or value that is turned first where its type says so.
template <class V, KvType type>
OCTAVO_INLINE uint16_t encode_turned(const float* x, int64_t head_dim, uint8_t* bytes) {
  if constexpr (!is_rotated(type)) return encode_row<V, type>(x, head_dim, bytes);
  float turned[kMostHeadDim];
  __builtin_memcpy(turned, x, static_cast<size_t>(head_dim) * sizeof(float));
  rotate<V>(turned, head_dim);
  return encode_row<V, type>(turned, head_dim, bytes);
}

// Store the keys and values of `count` consecutive slots of one head, of a type of a byte or less.
template <class V, KvType type>
OCTAVO_INLINE void write_bytes(const KvWriteArgs& args, int64_t block_id, int64_t head, int64_t slot,
                               int64_t token, int64_t count) {
  constexpr int kDims = Stored<V, type>::kDims;
  const KvLayer& kv = args.kv;
  const int64_t row_numbers = kv.head_dim / kDims;
  uint8_t* keys = block_keys<uint8_t>(kv, block_id, head) + slot;
  uint8_t* values = block_values<uint8_t>(kv, block_id, head) + slot * row_numbers;
  uint16_t* scales = block_scales(kv, block_id, head) + slot;
  uint8_t bytes[kMostHeadDim + V::kLanes];
  const auto number = [&bytes](int64_t i) {
    if constexpr (kDims == 1) return bytes[i];
    else return static_cast<uint8_t>((bytes[2 * i] & 15) | (bytes[2 * i + 1] << 4));
  };
  const int64_t column = head * kv.head_dim;
  for (int64_t i = 0; i < count; ++i, values += row_numbers) {
    const float* k = args.k + (token + i) * args.k_stride + column;
    const float* v = args.v + (token + i) * args.v_stride + column;
    const uint16_t key_scale = encode_turned<V, type>(k, kv.head_dim, bytes);
    for (int64_t d = 0; d < row_numbers; ++d) keys[d * kv.block_size + i] = number(d);
    const uint16_t value_scale = encode_turned<V, type>(v, kv.head_dim, bytes);
    for (int64_t d = 0; d < row_numbers; ++d) values[d] = number(d);
    if constexpr (!has_scales(type)) continue;
    scales[i] = key_scale;
    scales[kv.block_size + i] = value_scale;
  }
}

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

// Store the keys and values of `count` consecutive slots of one head, of a type wider than a byte.
template <class V, KvType type>
OCTAVO_INLINE void write_floats(const KvWriteArgs& args, int64_t block_id, int64_t head, int64_t slot,
                                int64_t token, int64_t count) {
  using Number = typename Stored<V, type>::Number;
  const KvLayer& kv = args.kv;
  const int64_t column = head * kv.head_dim;
  write_keys<V, type>(args, block_keys<Number>(kv, block_id, head) + slot,
                      args.k + token * args.k_stride + column, count);
  write_values<V, type>(args, block_values<Number>(kv, block_id, head) + slot * kv.head_dim,
                        args.v + token * args.v_stride + column, count);
}

template <class V, KvType type>
void write_tokens(const KvWriteArgs& args) {
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
        if constexpr (kv_row_bytes(type, 2) > 2) {
          write_floats<V, type>(args, block_id, head, slot, token, count);
        } else {
          write_bytes<V, type>(args, block_id, head, slot, token, count);
        }
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
    case KvType::Int8: return write_tokens<V, KvType::Int8>(args);
    case KvType::Fp8E4M3: return write_tokens<V, KvType::Fp8E4M3>(args);
    case KvType::Fp8E5M2: return write_tokens<V, KvType::Fp8E5M2>(args);
    case KvType::Int4: return write_tokens<V, KvType::Int4>(args);
  }
}

}  // namespace octavo
