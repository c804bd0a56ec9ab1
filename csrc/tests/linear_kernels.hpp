// The kernels under test, one set for each instruction set that was linked in. See test_linear.cpp.
#pragma once

#include <cstdint>

#include "kernels/table.hpp"

namespace octavo::tests {

// What the program calls of one instruction set.
struct Kernels {
  const char* name;
  void (*linear)(const LinearArgs&);
  void (*linear_int8)(const LinearArgs&);
  void (*linear_bf16)(const LinearArgs&);
  void (*round_int8)(const RoundArgs&);
  void (*round_bf16)(const RoundArgs&);
  void (*embed)(const EmbedArgs&);
  int64_t (*linear_scratch_floats)(int64_t cols);
  // Every function of the vector layer on three vectors of eight floats; returns the number of words
  // written, at most kMostVectorResults.
  int64_t (*vector_results)(const float* a, const float* b, const float* c, uint32_t* results);
  // count * 64 fused multiply-adds of wide vectors in independent chains, from registers: the roof.
  // Returns the number of operations; a multiply-add counts as two.
  double (*multiply_adds)(int64_t count, float* result);
};

constexpr int kMostVectorResults = 1024;
// Where vector_results() puts some of them.
constexpr int kF16Results = 0;
constexpr int kBf16Results = 16;
constexpr int kAddResults = 529;
constexpr int kFmaResults = kAddResults + 4 * 8;

// Null unless linked in.
__attribute__((weak)) const Kernels* scalar_test_kernels();
__attribute__((weak)) const Kernels* avx2_test_kernels();
__attribute__((weak)) const Kernels* avx_vnni_test_kernels();
__attribute__((weak)) const Kernels* avx512_test_kernels();
__attribute__((weak)) const Kernels* avx512_vnni_test_kernels();
__attribute__((weak)) const Kernels* avx512_bf16_test_kernels();
__attribute__((weak)) const Kernels* neon_test_kernels();

}  // namespace octavo::tests
