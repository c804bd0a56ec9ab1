// All kernels for one vector policy (see simd/vec.hpp) as a table. Included by the files in isa/ only.
#pragma once

#include "activation.hpp"
#include "attention.hpp"
#include "element.hpp"
#include "embed.hpp"
#include "kv_write.hpp"
#include "linear.hpp"
#include "linear_bf16.hpp"
#include "linear_int8.hpp"
#include "norm.hpp"
#include "quantised_row.hpp"
#include "reduce.hpp"
#include "rotary.hpp"
#include "rounded_row.hpp"
#include "table.hpp"

namespace octavo {
namespace {

// `V`: the vectors, `D`: the dot products of bytes (see simd/dot.hpp).
template <class V, class D>
constexpr KernelTable make_table() {
  KernelTable table{};
  table.name = V::kName;
  table.linear = &linear<V>;
  table.linear_int8 = &linear_int8<D>;
  table.linear_bf16 = &linear_bf16<PairsFused<typename V::Wide>>;
  table.round_int8 = &round_int8<V>;
  table.round_bf16 = &round_bf16<V>;
  table.embed = &embed<V>;
  table.linear_scratch_floats = &linear_scratch_floats<V>;
  table.norm = &norm<V>;
  table.layer_norm = &layer_norm<V>;
  table.rope_table = &rope_table<V>;
  table.rotary = &rotary<V>;
  table.gated = &gated<V>;
  table.activation = &activation<V>;
  table.add = &add<V>;
  table.scale = &scale<V>;
  table.soft_cap = &soft_cap<V>;
  table.kv_write = &kv_write<V>;
  table.attention = &attention<V>;
  table.attention_merge = &attention_merge<V>;
  table.attention_partial_floats = &attention_partial_floats<V>;
  table.log_sum_exp = &log_sum_exp<V>;
  return table;
}

}  // namespace
}  // namespace octavo
