// The kernels of every policy that the compiler's flags allow, for the check programs.
#pragma once

#include <vector>

#include "../kernels/activation.hpp"
#include "../kernels/attention.hpp"
#include "../kernels/element.hpp"
#include "../kernels/kv_write.hpp"
#include "../kernels/norm.hpp"
#include "../kernels/reduce.hpp"
#include "../kernels/rotary.hpp"
#include "../kernels/table.hpp"
#include "../simd/scalar.hpp"
#ifdef __AVX2__
#include "../simd/avx2.hpp"
#endif
#ifdef __AVX512F__
#include "../simd/avx512.hpp"
#endif
#ifdef __ARM_NEON
#include "../simd/neon.hpp"
#endif

namespace octavo::tests {

// Calls visit(V{}) for each policy.
template <class Visit>
void each_policy(Visit visit) {
  visit(Scalar{});
#ifdef __AVX2__
  visit(Avx2{});
#endif
#ifdef __AVX512F__
  visit(Avx512{});
#endif
#ifdef __ARM_NEON
  visit(Neon{});
#endif
}

// All kernels but the matrix products.
template <class V>
KernelTable kernel_table() {
  KernelTable table{};
  table.name = V::kName;
  table.norm = norm<V>;
  table.layer_norm = layer_norm<V>;
  table.rope_table = rope_table<V>;
  table.rotary = rotary<V>;
  table.gated = gated<V>;
  table.activation = activation<V>;
  table.add = add<V>;
  table.scale = scale<V>;
  table.soft_cap = soft_cap<V>;
  table.kv_write = kv_write<V>;
  table.attention = attention<V>;
  table.attention_merge = attention_merge<V>;
  table.attention_partial_floats = attention_partial_floats<V>;
  table.log_sum_exp = log_sum_exp<V>;
  return table;
}

inline std::vector<KernelTable> kernel_tables() {
  std::vector<KernelTable> tables;
  each_policy([&](auto policy) { tables.push_back(kernel_table<decltype(policy)>()); });
  return tables;
}

}  // namespace octavo::tests
