// Attention of a few query vectors over one chunk of keys: scores, exponentials, weighted values.
//
// For each query the operations and their order are fixed: a score is one chain of fused multiply-adds
// over the dimensions; the maximum and the sum of exponentials go over vectors of eight keys at absolute
// positions; an output is one chain over the keys. Which queries are computed side by side, and whether
// keys and values are widened to float32 once before or each time they are read, changes no bit. Products
// run on units (kv_stored.hpp): a score is multiplied with its key's scale, a weight with its value's.
#pragma once

#include <cstdint>

#include "../simd/math.hpp"
#include "../simd/vec.hpp"
#include "attention_plan.hpp"
#include "kv_stored.hpp"
#include "rotate.hpp"
#include "table.hpp"

namespace octavo {

template <int n>
struct Count {
  static constexpr int value = n;
};

constexpr int64_t kKeyGroup = 8;  // keys that share a vector; block sizes are multiples of it
constexpr int64_t kChunkGroups = kChunk / kKeyGroup;

// The result of one chunk, or of several that were merged, for each query vector of a unit:
// softmax(scores) . values = out / sum, where exponentials are taken relative to max.
struct Partial {
  float* max;  // [rows]
  float* sum;  // [rows]
  float* out;  // [rows][head_dim]
};

// Where groups of eight keys of a chunk lie; only groups that the unit sees are filled in.
template <class Number>
struct ChunkMap {
  const Number* keys[kChunkGroups];    // of dimension 0; the next Number is key_stride further
  const Number* values[kChunkGroups];  // of the first key; the next key is a row further
  int64_t key_stride;
  const uint16_t* scales[kChunkGroups];  // of the keys, where the type has them
  int64_t value_scales;                  // how far behind them are those of the values
  // What is wanted after these values: for each group as many Numbers, the keys of a later group.
  const Number* later_keys[kChunkGroups];
};

// Ask for `count` numbers from p on to be brought into the second-level cache. Reading keys asks for
// the values of the same group, reading values for keys of the next chunk: so memory is busy while
// products are computed.
template <int count, class Number>
OCTAVO_INLINE void prefetch(const Number* p) {
  constexpr int kLineNumbers = 64 / sizeof(Number);
  OCTAVO_UNROLL
  for (int i = 0; i < count; i += kLineNumbers) __builtin_prefetch(p + i, 0, 2);
}

// Vectors of keys or dimensions in a block of products. Every vector that is loaded (and widened) serves
// all queries; the sums must fit into registers (16, or 32 where vectors are wide) and be at least
// eight, because a chain of multiply-adds waits four cycles for each link and two start in a cycle.
template <class W>
constexpr int block_vectors(int num_queries) {
  constexpr bool kIsWide = W::kLanes > 8;
  if (num_queries == 1) return 8;
  if (num_queries <= 3) return 4;
  return kIsWide ? 4 : 2;
}

constexpr int64_t kMostQueries = 6;  // in one block of products

// scores[i][key] = sum over d of q[i][d] * keys[d][key] for up to kVectors vectors of keys.
template <class W, class Store, int kQueries, int kVectors, bool kPrefetch>
OCTAVO_INLINE void score_block(const float* q, int64_t head_dim, int64_t stride,
                               const typename Store::Number* const* groups,
                               const typename Store::Number* const* values, int64_t num_vectors,
                               float* scores) {
  using Floats = typename W::Floats;
  constexpr int kStep = W::kLanes / kKeyGroup;
  constexpr int kGroups = kVectors * kStep;
  constexpr int kLineSteps = 64 / kKeyGroup / sizeof(typename Store::Number);
  const typename Store::Number* keys[kVectors];
  Floats sums[kQueries][kVectors];
  OCTAVO_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    keys[v] = groups[least(v, num_vectors - 1) * kStep];  // vectors too many repeat the last one
    OCTAVO_UNROLL
    for (int i = 0; i < kQueries; ++i) sums[i][v] = W::zero();
  }
  const auto add_dimension = [&](auto part, int64_t d, int64_t offset) {
    Floats query[kQueries];
    OCTAVO_UNROLL
    for (int i = 0; i < kQueries; ++i) query[i] = W::set1(q[i * head_dim + d]);
    OCTAVO_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const Floats key = Store::template load_keys<decltype(part)::value>(keys[v] + offset);
      OCTAVO_UNROLL
      for (int i = 0; i < kQueries; ++i) sums[i][v] = W::fma(query[i], key, sums[i][v]);
    }
  };
  const int64_t num_steps = head_dim / Store::kDims;
  for (int64_t step = 0, offset = 0; step < num_steps; ++step, offset += stride) {
    if constexpr (kPrefetch) {
      OCTAVO_UNROLL
      for (int g = 0; g < (kGroups < kLineSteps ? 1 : kGroups / kLineSteps); ++g) {
        const int64_t group = (step + g * kLineSteps) & (kGroups - 1);
        prefetch<1>(values[least(group, num_vectors * kStep - 1)] + step * kKeyGroup);
      }
    }
    add_dimension(Count<0>{}, step * Store::kDims, offset);
    if constexpr (Store::kDims == 2) add_dimension(Count<1>{}, step * 2 + 1, offset);
  }
  OCTAVO_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    if (v >= num_vectors) break;
    OCTAVO_UNROLL
    for (int i = 0; i < kQueries; ++i) {
      W::store(scores + i * kChunk + v * W::kLanes, sums[i][v]);
    }
  }
}

// Scores of kQueries queries for some groups of a chunk.
template <class W, class Store, int kQueries, bool kPrefetch>
void score_groups(const float* q, int64_t head_dim,
                  const ChunkMap<typename Store::Number>& map, KeyRange groups, float* scores) {
  constexpr int kVectors = block_vectors<W>(kQueries);
  constexpr int64_t kStep = W::kLanes / kKeyGroup;
  for (int64_t group = groups.begin; group < groups.end; group += kVectors * kStep) {
    const int64_t num_vectors = least((groups.end - group) / kStep, kVectors);
    score_block<W, Store, kQueries, kVectors, kPrefetch>(
        q, head_dim, map.key_stride, map.keys + group, map.values + group, num_vectors,
        scores + group * kKeyGroup);
  }
}

// out[i][d] = sum over `keys` of weights[i][key] * values[key][d] for kVectors vectors of
// dimensions from `dim` on (or the last `rest` dimensions). The chains start from `out`.
template <class W, class Store, int kQueries, int kVectors, bool kPrefetch, bool kWhole = true>
OCTAVO_INLINE void value_block(const float* weights, const ChunkMap<typename Store::Number>& map,
                               KeyRange keys, int64_t head_dim, int64_t dim, float* out,
                               int64_t rest = 0) {
  using Floats = typename W::Floats;
  const auto load_out = [rest](const float* p) {
    if constexpr (kWhole) return W::load(p);
    return W::load_first(p, rest);
  };
  Floats sums[kQueries][kVectors];
  OCTAVO_UNROLL
  for (int i = 0; i < kQueries; ++i) {
    OCTAVO_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = load_out(out + i * head_dim + dim + v * W::kLanes);
    }
  }
  const int64_t row = head_dim / Store::kDims;
  for (int64_t group = keys.begin / kKeyGroup; group * kKeyGroup < keys.end; ++group) {
    const int64_t first = greatest(group * kKeyGroup, keys.begin);
    const int64_t last = least((group + 1) * kKeyGroup, keys.end);
    const int64_t offset = (first - group * kKeyGroup) * row + dim / Store::kDims;
    const auto* value = map.values[group] + offset;
    const auto* later = kPrefetch ? map.later_keys[group] + offset : value;
    for (int64_t key = first; key < last; ++key, value += row, later += row) {
      if constexpr (kPrefetch) prefetch<kVectors * W::kLanes / Store::kDims>(later);
      Floats weight[kQueries];
      OCTAVO_UNROLL
      for (int i = 0; i < kQueries; ++i) weight[i] = W::set1(weights[i * kChunk + key]);
      OCTAVO_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        Floats vector;
        if constexpr (kWhole) vector = Store::load(value + v * W::kLanes / Store::kDims);
        else vector = Store::load_first(value, rest);
        OCTAVO_UNROLL
        for (int i = 0; i < kQueries; ++i) sums[i][v] = W::fma(weight[i], vector, sums[i][v]);
      }
    }
  }
  OCTAVO_UNROLL
  for (int i = 0; i < kQueries; ++i) {
    OCTAVO_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      float* to = out + i * head_dim + dim + v * W::kLanes;
      if constexpr (kWhole) W::store(to, sums[i][v]);
      else W::store_first(to, sums[i][v], rest);
    }
  }
}

// Outputs from dimension `d` on, kVectors vectors at a time and the rest in smaller blocks; returns the
// first dimension that is left.
template <class W, class Store, int kQueries, int kVectors, bool kPrefetch>
OCTAVO_INLINE int64_t weigh_vectors(const float* weights, int64_t head_dim,
                                    const ChunkMap<typename Store::Number>& map, KeyRange keys,
                                    int64_t d, float* out) {
  for (; d + kVectors * W::kLanes <= head_dim; d += kVectors * W::kLanes) {
    value_block<W, Store, kQueries, kVectors, kPrefetch>(weights, map, keys, head_dim, d, out);
  }
  if constexpr (kVectors > 1) {
    return weigh_vectors<W, Store, kQueries, kVectors / 2, kPrefetch>(weights, head_dim, map, keys,
                                                                      d, out);
  }
  return d;
}

// Add to the outputs of kQueries queries, all dimensions.
template <class V, KvType type, int kQueries, bool kPrefetch>
void weigh_values(const float* weights, int64_t head_dim,
                  const ChunkMap<typename Stored<V, type>::Number>& map, KeyRange keys,
                  float* out) {
  using W = typename V::Wide;
  using Store = Stored<V, type>;
  int64_t d = weigh_vectors<W, Stored<W, type>, kQueries, block_vectors<W>(kQueries), kPrefetch>(
      weights, head_dim, map, keys, 0, out);
  if (V::kLanes < W::kLanes && d + V::kLanes <= head_dim) {
    value_block<V, Store, kQueries, 1, kPrefetch>(weights, map, keys, head_dim, d, out);
    d += V::kLanes;
  }
  if (d == head_dim) return;
  value_block<V, Store, kQueries, 1, kPrefetch, false>(weights, map, keys, head_dim, d, out,
                                                       head_dim - d);
}

// A score is made larger by this for each position that its key lies further ahead (Press et al. 2022).
struct Slope {
  float per_position;   // 0: none
  int64_t first_key;    // position of the chunk's first key, counted from the query: mostly negative
};

static constexpr float kLaneNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// From scores to weights of the values for keys [begin, end) of a chunk, in place: exp(score - max) times
// what makes numbers of units. Neighbours in the same vectors may hold anything, before and after. X is V
// or V::Wide: lanes meet only in the maximum, which has no order, and the sum, which goes by eights.
template <class V, class X, KvType type>
void exponentials(const AttentionArgs& args, KeyRange keys,
                  const ChunkMap<typename Stored<V, type>::Number>& map, const Slope& slope,
                  float* scores, float* max, float* sum) {
  using Floats = typename X::Floats;
  constexpr float kUnit = Stored<V, type>::kUnit;
  const int64_t begin = keys.begin & ~int64_t{X::kLanes - 1};
  const Floats lowest = X::set1(-__builtin_inff());
  Floats highest = lowest;
  for (int64_t key = begin; key < keys.end; key += X::kLanes) {
    Floats score = X::load(scores + key);
    if constexpr (has_scales(type)) score = X::mul(score, X::load_f16(map.scales[key / kKeyGroup]));
    score = X::mul(score, X::set1(args.scale * kUnit));
    if (args.soft_cap > 0.0f) {
      const Floats cap = X::set1(args.soft_cap);
      score = X::mul(cap, tanh<X>(X::div(score, cap)));
    }
    if (slope.per_position != 0.0f) {
      const Floats first = X::set1(static_cast<float>(slope.first_key + key));
      const Floats distance = X::add(first, X::load(kLaneNumbers));
      score = X::fma(X::set1(slope.per_position), distance, score);
    }
    if (key + X::kLanes > keys.end) score = X::select(X::first(keys.end - key), score, lowest);
    if (key < keys.begin) score = X::select(X::first(keys.begin - key), lowest, score);
    X::store(scores + key, score);
    highest = X::max(score, highest);
  }
  *max = X::reduce_max(highest);
  typename V::Floats total = V::zero();
  for (int64_t key = begin; key < keys.end; key += X::kLanes) {
    float* at = scores + key;
    const Floats power = exp<X>(X::sub(X::load(at), X::set1(*max)));
    X::store(at, power);
    OCTAVO_UNROLL
    for (int i = 0; i < X::kLanes; i += kKeyGroup) total = V::add(total, V::load(at + i));
    if constexpr (has_scales(type)) {
      const uint16_t* scales = map.scales[key / kKeyGroup] + map.value_scales;
      X::store(at, X::mul(power, X::load_f16(scales)));
    } else if constexpr (kUnit != 1.0f) {
      X::store(at, X::mul(power, X::set1(kUnit)));
    }
  }
  *sum = V::reduce_add(total);
}

// Merge the result of the next chunk into that of the chunks before it, for one query vector.
template <class V>
void merge_chunk(const Partial& next, const Partial& total, int64_t row, int64_t head_dim) {
  using Floats = typename V::Floats;
  const float max = total.max[row] > next.max[row] ? total.max[row] : next.max[row];
  const Floats old_factor = exp<V>(V::set1(total.max[row] - max));
  const Floats new_factor = exp<V>(V::set1(next.max[row] - max));
  const Floats new_sum = V::mul(V::set1(next.sum[row]), new_factor);
  total.sum[row] = V::reduce_max(V::fma(V::set1(total.sum[row]), old_factor, new_sum));
  total.max[row] = max;

  const float* from = next.out + row * head_dim;
  float* out = total.out + row * head_dim;
  int64_t d = 0;
  for (; d + V::kLanes <= head_dim; d += V::kLanes) {
    const Floats addend = V::mul(V::load(from + d), new_factor);
    V::store(out + d, V::fma(V::load(out + d), old_factor, addend));
  }
  const int64_t rest = head_dim - d;
  if (rest == 0) return;
  const Floats addend = V::mul(V::load_first(from + d, rest), new_factor);
  V::store_first(out + d, V::fma(V::load_first(out + d, rest), old_factor, addend), rest);
}

// Take over the result of a row's first chunk.
template <class V>
void copy_chunk(const Partial& next, const Partial& total, int64_t row, int64_t head_dim) {
  total.max[row] = next.max[row];
  total.sum[row] = next.sum[row];
  __builtin_memcpy(total.out + row * head_dim, next.out + row * head_dim,
                   static_cast<size_t>(head_dim) * sizeof(float));
}

// The attention output of one query vector: out / sum, turned back where values were turned. The sum includes
// that of the head's sink, where there is one.
template <class V>
void finish_row(const KvLayer& kv, const Partial& total, int64_t row, const float* sink, float* out) {
  using Floats = typename V::Floats;
  const int64_t head_dim = kv.head_dim;
  Floats sum = V::set1(total.sum[row]);
  if (sink != nullptr) sum = V::add(sum, exp<V>(V::set1(*sink - total.max[row])));
  const Floats factor = V::div(V::set1(1.0f), sum);
  const float* from = total.out + row * head_dim;
  int64_t d = 0;
  for (; d + V::kLanes <= head_dim; d += V::kLanes) {
    V::store(out + d, V::mul(V::load(from + d), factor));
  }
  const int64_t rest = head_dim - d;
  if (rest > 0) V::store_first(out + d, V::mul(V::load_first(from + d, rest), factor), rest);
  if (is_rotated(kv.type)) rotate<V>(out, head_dim);
}

}  // namespace octavo
