// The part of octavo._native that makes programs: one method for each operation (program.hpp).
#include "program_bindings.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "program.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

using Ints = std::vector<int32_t>;

void bind_enums(nb::module_& module) {
  nb::enum_<Rows>(module, "Rows").value("TOKENS", Rows::Tokens).value("WANTED", Rows::Wanted);
  nb::enum_<Activation>(module, "Activation")
      .value("SILU", Activation::Silu)
      .value("GELU_TANH", Activation::GeluTanh)
      .value("GELU", Activation::Gelu)
      .value("RELU", Activation::Relu)
      .value("SQUARED_RELU", Activation::SquaredRelu)
      .value("TANH", Activation::Tanh)
      .value("SIGMOID", Activation::Sigmoid)
      .value("CLAMPED_SWIGLU", Activation::ClampedSwiglu)
      .value("HARDTANH", Activation::Hardtanh);
  nb::enum_<Rounding>(module, "Rounding")
      .value("INT8", Rounding::Int8)
      .value("BFLOAT16", Rounding::BFloat16);
  nb::enum_<Scoring>(module, "Scoring")
      .value("SOFTMAX", Scoring::Softmax)
      .value("SOFTMAX_CHOSEN", Scoring::SoftmaxChosen)
      .value("SIGMOID", Scoring::Sigmoid)
      .value("SCORE", Scoring::Score)
      .value("SPARSE_MIXER", Scoring::SparseMixer);
}

void bind_layers(nb::class_<Program>& program) {
  program
      .def("embed", &Program::embed, "rows"_a, "barrier"_a, "table"_a, "scale"_a, "out"_a)
      .def("embed_positions", &Program::embed_positions, "rows"_a, "barrier"_a, "table"_a, "out"_a)
      .def("embed_segments", &Program::embed_segments, "rows"_a, "barrier"_a, "table"_a, "out"_a)
      .def("round_rows", &Program::round_rows, "rows"_a, "barrier"_a, "x"_a, "out"_a)
      .def("linear", &Program::linear, "rows"_a, "barrier"_a, "matrix"_a, "x"_a.none(),
           "x_rounded"_a.none(), "out"_a)
      .def("norm", &Program::norm, "rows"_a, "barrier"_a, "weight"_a, "eps"_a, "x"_a, "out"_a)
      .def("layer_norm", &Program::layer_norm, "rows"_a, "barrier"_a, "weight"_a, "bias"_a, "eps"_a,
           "x"_a, "out"_a)
      .def("rope_table", &Program::rope_table, "rows"_a, "barrier"_a, "inv_freq"_a, "factor"_a,
           "out"_a)
      .def("position_factors", &Program::position_factors, "rows"_a, "barrier"_a, "period"_a,
           "weight"_a, "out"_a)
      .def("rotary", &Program::rotary, "rows"_a, "barrier"_a, "x"_a, "table"_a, "head_dim"_a,
           "out"_a)
      .def(
          "attention",
          [](Program& program, Rows rows, bool barrier, int64_t layer, int64_t num_heads,
             int64_t num_kv_heads, int64_t head_dim, float scale, int64_t window, float soft_cap,
             bool is_chunked, bool is_causal, int32_t sinks, std::vector<float> slopes, View q, View k,
             View v, View out) {
            program.attention(rows, barrier, sinks,
                              {layer, num_heads, num_kv_heads, head_dim, scale, window, soft_cap,
                               is_chunked, is_causal, nullptr, std::move(slopes), q, k, v, out});
          },
          "rows"_a, "barrier"_a, "layer"_a, "num_heads"_a, "num_kv_heads"_a, "head_dim"_a,
          "scale"_a, "window"_a, "soft_cap"_a, "is_chunked"_a, "is_causal"_a, "sinks"_a, "slopes"_a, "q"_a, "k"_a, "v"_a, "out"_a);
}

void bind_elements(nb::class_<Program>& program) {
  program
      .def("gated", &Program::gated, "rows"_a, "barrier"_a, "activation"_a, "x"_a, "out"_a)
      .def("activation", &Program::activation, "rows"_a, "barrier"_a, "activation"_a, "x"_a,
           "out"_a)
      .def("add", &Program::add, "rows"_a, "barrier"_a, "a"_a, "b"_a, "out"_a)
      .def("scale", &Program::scale, "rows"_a, "barrier"_a, "factor"_a, "x"_a, "out"_a)
      .def("soft_cap", &Program::soft_cap, "rows"_a, "barrier"_a, "cap"_a, "x"_a, "out"_a)
      .def("reorder", &Program::reorder, "rows"_a, "barrier"_a, "order"_a, "x"_a, "out"_a)
      .def("wanted_rows", &Program::wanted_rows, "rows"_a, "barrier"_a, "x"_a, "out"_a);
}

void bind_experts(nb::class_<Program>& program) {
  program
      .def(
          "route",
          [](Program& program, Rows rows, bool barrier, int64_t num_experts, int64_t num_chosen,
             Scoring scoring, bool normalises, float scale, int64_t num_groups,
             int64_t num_chosen_groups, int64_t group_best, float tolerance, int32_t correction,
             View scores, View out) {
            program.route(rows, barrier,
                          {num_experts, num_chosen, scoring, normalises, scale, num_groups,
                           num_chosen_groups, group_best, tolerance},
                          correction, scores, out);
          },
          "rows"_a, "barrier"_a, "num_experts"_a, "num_chosen"_a, "scoring"_a, "normalises"_a,
          "scale"_a, "num_groups"_a, "num_chosen_groups"_a, "group_best"_a, "tolerance"_a,
          "correction"_a, "scores"_a, "out"_a)
      .def(
          "experts",
          [](Program& program, Rows rows, bool barrier, const Ints& gate_up, const Ints& down,
             Activation activation, bool is_weighted, bool inner_rounded, std::optional<View> x,
             std::optional<View> x_rounded, View routing, View out) {
            program.experts(rows, barrier, gate_up, down,
                            {{}, {}, activation, is_weighted, inner_rounded, x, x_rounded, routing, out});
          },
          "rows"_a, "barrier"_a, "gate_up"_a, "down"_a, "activation"_a, "is_weighted"_a,
          "inner_rounded"_a, "x"_a.none(), "x_rounded"_a.none(), "routing"_a, "out"_a);
}

void bind_heads(nb::class_<Program>& program) {
  program
      .def("head_products", &Program::head_products, "rows"_a, "barrier"_a, "heads"_a, "x"_a, "out"_a)
      .def(
          "join_heads",
          [](Program& program, Rows rows, bool barrier, int64_t num_heads,
             const std::vector<std::tuple<View, int64_t, int64_t>>& pieces, View out) {
            JoinHeadsOp op{{}, num_heads, out};
            for (const auto& [from, heads, width] : pieces) op.pieces.push_back({from, heads, width});
            program.join_heads(rows, barrier, std::move(op));
          },
          "rows"_a, "barrier"_a, "num_heads"_a, "pieces"_a, "out"_a)
      .def("multiply_rows", &Program::multiply_rows, "rows"_a, "barrier"_a, "x"_a, "factors"_a,
           "out"_a);
}

}  // namespace

void bind_program(nb::module_& module) {
  bind_enums(module);
  nb::class_<View>(module, "View")
      .def(nb::init<int64_t, int64_t, int64_t>(), "offset"_a, "stride"_a, "width"_a)
      .def_ro("offset", &View::offset)
      .def_ro("stride", &View::stride)
      .def_ro("width", &View::width);
  module.def("rounded_row_floats", &rounded_row_floats, "rounding"_a, "cols"_a);
  nb::class_<Program> program(module, "Program");
  program
      .def(nb::init<std::shared_ptr<const Weights>, int64_t, int64_t, int64_t, Rounding>(), "weights"_a,
           "arena_floats"_a, "max_tokens"_a, "wanted_rows"_a, "rounding"_a = Rounding::Int8)
      .def("set_logits", &Program::set_logits, "logits"_a);
  bind_layers(program);
  bind_elements(program);
  bind_experts(program);
  bind_heads(program);
}

}  // namespace octavo
