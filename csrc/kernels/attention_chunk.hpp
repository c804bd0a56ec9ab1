// Attention of a few query vectors over one chunk of keys: scores, exponentials, weighted values.
//
// For each query the operations and their order are fixed: a score is one chain of fused multiply-adds
// over the dimensions; the maximum and the sum of exponentials go over vectors of eight keys at absolute
// positions; an output is one chain over the keys. Which queries are computed side by side, and whether
// keys and values are widened to float32 once before or each time they are read, changes no bit.
#pragma once

#include <cstdint>

#include "../simd/math.hpp"
#include "../simd/vec.hpp"
#include "attention_plan.hpp"
#include "kv_stored.hpp"
#include "table.hpp"

namespace octavo {

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
  const Number* keys[kChunkGroups];    // of dimension 0; the next dimension is key_stride further
  const Number* values[kChunkGroups];  // of the first key; the next key is head_dim further
  int64_t key_stride;
};

// Registers decide how many queries and vectors fit into one block of products; every key vector that
// is loaded (and widened) serves all of them.
template <class W>
constexpr int64_t block_vectors(int64_t num_queries) {
  constexpr bool kManyRegisters = W::kLanes > 8;
  switch (num_queries) {
    case 1: return 8;
    case 2: return kManyRegisters ? 8 : 4;
    case 3: return kManyRegisters ? 8 : 4;
    case 4: return kManyRegisters ? 4 : 2;
    default: return kManyRegisters ? 4 : 2;
  }
}

constexpr int64_t kMostQueries = 6;  // in one block of products

// scores[i][key] = sum over d of q[i][d] * keys[d][key] for up to kVectors vectors of keys.
template <class W, class Store, int kQueries, int kVectors>
OCTAVO_INLINE void score_block(const float* q, int64_t head_dim, int64_t stride,
                               const typename Store::Number* const* groups, int64_t num_vectors,
                               float* scores) {
  using Floats = typename W::Floats;
  constexpr int64_t kStep = W::kLanes / kKeyGroup;
  const typename Store::Number* keys[kVectors];
  Floats sums[kQueries][kVectors];
  OCTAVO_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    keys[v] = groups[least(v, num_vectors - 1) * kStep];  // vectors too many repeat the last one
    OCTAVO_UNROLL
    for (int i = 0; i < kQueries; ++i) sums[i][v] = W::zero();
  }
  for (int64_t d = 0, offset = 0; d < head_dim; ++d, offset += stride) {
    Floats query[kQueries];
    OCTAVO_UNROLL
    for (int i = 0; i < kQueries; ++i) query[i] = W::set1(q[i * head_dim + d]);
    OCTAVO_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const Floats key = Store::load(keys[v] + offset);
      OCTAVO_UNROLL
      for (int i = 0; i < kQueries; ++i) sums[i][v] = W::fma(query[i], key, sums[i][v]);
    }
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

// Scores of kQueries queries for the groups [begin, end) of a chunk.
template <class W, class Store, int kQueries>
void score_groups(const float* q, int64_t head_dim,
                  const ChunkMap<typename Store::Number>& map, int64_t begin, int64_t end,
                  float* scores) {
  constexpr int64_t kVectors = block_vectors<W>(kQueries);
  constexpr int64_t kStep = W::kLanes / kKeyGroup;
  for (int64_t group = begin; group < end; group += kVectors * kStep) {
    const int64_t num_vectors = least(ceil_div(end - group, kStep), kVectors);
    score_block<W, Store, kQueries, kVectors>(q, head_dim, map.key_stride, map.keys + group,
                                              num_vectors, scores + group * kKeyGroup);
  }
}

}  // namespace octavo
