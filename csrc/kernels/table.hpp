// The kernels of one instruction set, as a table of function pointers.
//
// Every kernel works on raw pointers and on the share [begin, end) that the caller names, so the program
// decides how work is split; kernels know nothing of threads. All activations are float32, row-major.
//
// Batch invariance. A kernel computes each output in an order of operations that does not depend on how
// many rows it is given or on the share: each output of `linear` is one chain of fused multiply-adds
// over k = 0, 1, 2, ..., that of `linear_int8` one chain over groups, that of `linear_bf16` one over pairs of
// columns; attention walks a sequence in fixed chunks at absolute positions. So the same sequence gets the same
// bits alone, in a batch, in chunks or after a preemption.
#pragma once

#include <cstdint>

#include "../batch.hpp"
#include "../types.hpp"

namespace octavo {

constexpr int64_t kMostHeadDim = 8192;  // of keys and values

// out[t][r] = sum_k x[t][k] * w[r][k] (+ bias[r])   for panels [panel_begin, panel_end)
struct LinearArgs {
  WeightType type;
  const uint8_t* panels;  // panel p at panels + p * panel_bytes; layout in packing.hpp
  int64_t panel_bytes;
  int64_t rows;           // out_features; the last panel may be partial, its pad rows are zero
  int64_t cols;           // in_features
  const float* x;         // [num_tokens][x_stride]
  int64_t x_stride;
  int64_t num_tokens;
  float* out;             // [num_tokens][out_stride], column 0 = row 0 of this matrix
  int64_t out_stride;
  const float* bias;      // [rows] or null
  int64_t panel_begin, panel_end;
  float* scratch;         // linear_scratch_floats(cols) floats of this thread
  const uint8_t* x_rounded = nullptr;  // instead of x: rows of round_int8() or round_bf16()
  int64_t x_rounded_stride = 0;        // bytes
};

// out[t] = x[t] rounded   for rows [begin, end)
// round_int8: bytes with a scale for each group of 32 columns, see quantised_row.hpp. cols: a multiple of 32.
// round_bf16: bfloat16, and a zero behind an odd number of columns.
struct RoundArgs {
  const float* x;
  int64_t x_stride;
  int64_t cols;
  uint8_t* out;
  int64_t out_stride;     // bytes, a multiple of 4
  int64_t begin, end;
};

// Bytes of a rounded row, and floats that take as much memory.
constexpr int64_t rounded_row_bytes(Rounding rounding, int64_t cols) {
  return rounding == Rounding::Int8 ? cols + cols / kGroup * 16 : (cols + 1) / 2 * 4;
}
constexpr int64_t rounded_row_floats(Rounding rounding, int64_t cols) {
  return rounded_row_bytes(rounding, cols) / 4;
}

// out[t] = dequantised row ids[t] of the packed matrix, times scale   for tokens [begin, end)
struct EmbedArgs {
  WeightType type;
  const uint8_t* panels;
  int64_t panel_bytes;
  int64_t rows, cols;
  const int32_t* ids;  // token ids, or positions
  float scale;
  float* out;
  int64_t out_stride;
  int64_t begin, end;
};

// For rows [begin, end), each split into `groups` groups of `size` columns that are normalised alone:
// out = x / sqrt(mean(x^2) + eps) * weight. rms_norm: groups = 1. head_norm: groups = heads.
struct NormArgs {
  const float* x;
  int64_t x_stride;
  float* out;
  int64_t out_stride;
  const float* weight;  // [size]
  int64_t groups, size;
  float eps;
  int64_t begin, end;
};

// For rows [begin, end): out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias.
struct LayerNormArgs {
  const float* x;
  int64_t x_stride;
  float* out;
  int64_t out_stride;
  const float* weight;  // [size] or null: ones
  const float* bias;    // [size] or null: zeros
  int64_t size;
  float eps;
  int64_t begin, end;
};

// cos_sin[t] = [rotary_dim / 2 cosines | rotary_dim / 2 sines] of positions[t] * inv_freq[i] (the product
// rounded to float32 as Hugging Face does), times factor   for tokens [begin, end)
struct RopeTableArgs {
  const int32_t* positions;
  const float* inv_freq;  // [rotary_dim / 2]
  int64_t rotary_dim;
  float factor;
  float* cos_sin;         // [num_tokens][rotary_dim]
  int64_t begin, end;
};

// Rotate the first rotary_dim columns of each head, halves style   for tokens [begin, end). out may be x.
struct RotaryArgs {
  const float* x;
  int64_t x_stride;
  float* out;
  int64_t out_stride;
  const float* cos_sin;
  int64_t heads, head_dim, rotary_dim;
  int64_t begin, end;
};

// KV storage of one layer. Block b, head h starts at byte (b * num_kv_heads + h) * kv_head_bytes(...):
// K transposed, [head_dim][block_size], then V, [block_size][head_dim]; where the type has scales, those
// of K, [block_size] float16, and those of V follow. Int4 stores two dimensions of a key or value in a
// byte, the first one in the low half: K is [head_dim / 2][block_size] bytes. So no two tokens share one.
struct KvLayer {
  void* data;
  KvType type;
  int64_t num_blocks, block_size, num_kv_heads, head_dim;  // block_size is a multiple of 8
};

// Store k and v of tokens [begin, end) of the step.
struct KvWriteArgs {
  KvLayer kv;
  const StepBatch* batch;
  const float* k;
  int64_t k_stride;
  const float* v;
  int64_t v_stride;
  int64_t begin, end;
};

struct AttentionArgs {
  KvLayer kv;
  const StepBatch* batch;
  const float* q;
  int64_t q_stride;
  float* out;
  int64_t out_stride;
  int64_t num_heads;
  float scale;
  int64_t window;      // 0: full
  float soft_cap;      // 0: none
  float* partials;     // attention_partial_floats(...) floats shared by all threads of this op
  // Whether tokens see only those before them. Else they see all of their sequence, which is in the
  // batch as a whole; a window then reaches so far to either side, the token itself included.
  bool is_causal = true;
  // With a window: sequences are cut into chunks of that size, and tokens see those of their own chunk.
  bool is_chunked = false;
  // A score of each head that takes part in the softmax of every row and brings no value; null: none.
  const float* sinks = nullptr;  // [num_heads]
  // What each position that a key lies behind the query takes from its score; null: nothing.
  const float* slopes = nullptr;  // [num_heads]
};

// out[t] = act(x[t][0:size]) * x[t][size:2*size]   for rows [begin, end)
struct GatedArgs {
  const float* x;
  int64_t x_stride;
  float* out;
  int64_t out_stride;
  int64_t size;
  Activation activation;
  int64_t begin, end;
};

// out = f(a, b, factor) row by row; which f is the name of the function in the table.
struct ElementArgs {
  const float* a;
  int64_t a_stride;
  const float* b;  // add only
  int64_t b_stride;
  float* out;      // may be a
  int64_t out_stride;
  int64_t size;
  float factor;    // scale, soft_cap
  Activation activation;
  int64_t begin, end;
};

struct KernelTable {
  const char* name;  // "scalar", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "neon"

  void (*linear)(const LinearArgs&);
  void (*linear_int8)(const LinearArgs&);  // types that take so rounded activations, as the next
  void (*linear_bf16)(const LinearArgs&);
  void (*round_int8)(const RoundArgs&);
  void (*round_bf16)(const RoundArgs&);
  void (*embed)(const EmbedArgs&);
  int64_t (*linear_scratch_floats)(int64_t cols);

  void (*norm)(const NormArgs&);
  void (*layer_norm)(const LayerNormArgs&);
  void (*rope_table)(const RopeTableArgs&);
  void (*rotary)(const RotaryArgs&);
  void (*gated)(const GatedArgs&);
  void (*activation)(const ElementArgs&);
  void (*add)(const ElementArgs&);
  void (*scale)(const ElementArgs&);
  void (*soft_cap)(const ElementArgs&);

  void (*kv_write)(const KvWriteArgs&);
  // Attention in two phases with a barrier between them. Each thread calls both with its number and does
  // its share of a work list that all threads derive alike from the batch.
  void (*attention)(const AttentionArgs&, int thread, int num_threads);
  void (*attention_merge)(const AttentionArgs&, int thread, int num_threads);
  // Floats of `partials` that any batch of so many tokens of sequences up to max_len may need.
  int64_t (*attention_partial_floats)(int64_t max_tokens, int64_t max_rows, int64_t max_len,
                                      int64_t num_heads, int64_t head_dim);

  // Sampling: maximum and log(sum(exp(x))) of a row of logits, in a fixed order.
  void (*log_sum_exp)(const float* logits, int64_t size, float* max, double* log_sum_exp);
};

// One per file in isa/; null where the compiler cannot build it.
const KernelTable* scalar_kernels();
const KernelTable* avx2_kernels();
const KernelTable* avx_vnni_kernels();
const KernelTable* avx512_kernels();
const KernelTable* avx512_vnni_kernels();
const KernelTable* avx512_bf16_kernels();
const KernelTable* neon_kernels();

}  // namespace octavo
