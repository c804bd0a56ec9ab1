#include "program.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace octavo {
namespace {

void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

}  // namespace

Program::Program(std::shared_ptr<const Weights> weights, int64_t arena_floats, int64_t max_tokens,
                 int64_t wanted_rows, Rounding rounding)
    : weights_(std::move(weights)),
      arena_floats_(arena_floats),
      max_tokens_(max_tokens),
      wanted_rows_(wanted_rows),
      rounding_(rounding) {
  require(weights_ != nullptr, "a program needs weights");
  require(arena_floats >= 0 && max_tokens >= 1 && wanted_rows >= 1,
          "a program needs room for at least one row");
}

void Program::check_view(const View& view, Rows rows) const {
  const bool inside = view.offset >= 0 && view.width >= 1 && view.stride >= view.width &&
                      view.offset + (capacity(rows) - 1) * view.stride + view.width <= arena_floats_;
  require(inside, "a view leaves the arena");
}

void Program::append(Rows rows, bool barrier, OpBody body) {
  std::vector<Op>& ops = rows == Rows::Tokens ? token_ops_ : wanted_ops_;
  ops.push_back({std::move(body), rows, barrier});
}

void Program::elementwise(const View& x, const View& out, Rows rows) const {
  check_view(x, rows);
  check_view(out, rows);
  require(x.width == out.width, "an element-wise operation keeps the width");
}

void Program::embed(Rows rows, bool barrier, int32_t table, float scale, View out) {
  append_embed(rows, barrier, table, EmbedKey::TokenId, scale, out);
}

void Program::embed_positions(Rows rows, bool barrier, int32_t table, View out) {
  append_embed(rows, barrier, table, EmbedKey::Position, 1.0f, out);
}

void Program::embed_segments(Rows rows, bool barrier, int32_t table, View out) {
  append_embed(rows, barrier, table, EmbedKey::Segment, 1.0f, out);
}

int64_t Program::table_rows(EmbedKey key) const {
  int64_t fewest = 0;
  for (const Op& op : token_ops_) {
    const EmbedOp* embed = std::get_if<EmbedOp>(&op.body);
    if (embed == nullptr || embed->key != key) continue;
    fewest = fewest == 0 ? embed->table->rows : std::min(fewest, embed->table->rows);
  }
  return fewest;
}

void Program::append_embed(Rows rows, bool barrier, int32_t table, EmbedKey key, float scale,
                           View out) {
  const Matrix& matrix = weights_->matrix(table);
  check_view(out, rows);
  require(rows == Rows::Tokens, "ids, positions and segments belong to rows of tokens");
  require(matrix.parts.size() == 1 && matrix.cols == out.width, "embed: table and output differ");
  append(rows, barrier, EmbedOp{&matrix, key, scale, out});
}

// int8 comes in groups of columns.
bool Program::has_rounded_width(const View& rounded, int64_t cols) const {
  return (rounding_ != Rounding::Int8 || cols % kGroup == 0) &&
         rounded.width == rounded_row_floats(rounding_, cols);
}

void Program::round_rows(Rows rows, bool barrier, View x, View out) {
  check_view(x, rows);
  check_view(out, rows);
  require(has_rounded_width(out, x.width), "round_rows: wrong widths");
  append(rows, barrier, RoundOp{x, out});
}

void Program::linear(Rows rows, bool barrier, int32_t matrix_id, std::optional<View> x,
                     std::optional<View> x_rounded, View out) {
  const Matrix& matrix = weights_->matrix(matrix_id);
  check_view(out, rows);
  require(matrix.rows == out.width, "linear: matrix and output differ");
  if (x) {
    check_view(*x, rows);
    require(matrix.cols == x->width, "linear: matrix and input differ");
  }
  if (x_rounded) {
    check_view(*x_rounded, rows);
    require(has_rounded_width(*x_rounded, matrix.cols), "linear: matrix and rounded input differ");
  }
  for (const MatrixPart& part : matrix.parts) {
    require(x || (x_rounded && takes(part.type, rounding_)), "linear: an input is missing");
  }
  append(rows, barrier, LinearOp{&matrix, x, x_rounded, out});
}

void Program::norm(Rows rows, bool barrier, int32_t weight_id, float eps, View x, View out) {
  const std::vector<float>& weight = weights_->vector(weight_id);
  elementwise(x, out, rows);
  require(!weight.empty() && x.width % static_cast<int64_t>(weight.size()) == 0,
          "norm: the width is no multiple of the weight's size");
  append(rows, barrier, NormOp{&weight, eps, x, out});
}

void Program::layer_norm(Rows rows, bool barrier, int32_t weight_id, int32_t bias_id, float eps, View x,
                         View out) {
  elementwise(x, out, rows);
  const auto vector = [&](int32_t id) -> const std::vector<float>* {
    if (id == kNone) return nullptr;
    const std::vector<float>& values = weights_->vector(id);
    require(static_cast<int64_t>(values.size()) == x.width, "layer_norm: weight and views differ");
    return &values;
  };
  append(rows, barrier, LayerNormOp{vector(weight_id), vector(bias_id), eps, x, out});
}

void Program::rope_table(Rows rows, bool barrier, std::vector<float> inv_freq, float factor,
                         View out) {
  check_view(out, rows);
  require(rows == Rows::Tokens, "positions belong to rows of tokens");
  require(static_cast<int64_t>(2 * inv_freq.size()) == out.width, "rope_table: wrong width");
  append(rows, barrier, RopeTableOp{std::move(inv_freq), factor, out});
}

void Program::position_factors(Rows rows, bool barrier, float period, float weight, View out) {
  check_view(out, rows);
  require(rows == Rows::Tokens, "positions belong to rows of tokens");
  require(out.width == 1 && period > 0.0f, "position_factors: one factor for each row");
  append(rows, barrier, PositionFactorsOp{period, weight, out});
}

void Program::rotary(Rows rows, bool barrier, View x, View table, int64_t head_dim, View out) {
  elementwise(x, out, rows);
  check_view(table, rows);
  require(rows == Rows::Tokens, "positions belong to rows of tokens");
  require(head_dim >= 1 && x.width % head_dim == 0, "rotary: the width is no multiple of a head");
  require(table.width <= head_dim && table.width % 2 == 0, "rotary: the table is wider than a head");
  require(table.stride == table.width, "rotary: the table must be contiguous");
  append(rows, barrier, RotaryOp{x, table, out, head_dim});
}

void Program::attention(Rows rows, bool barrier, int32_t sinks, AttentionOp op) {
  require(rows == Rows::Tokens, "attention belongs to rows of tokens");
  for (const View* view : {&op.q, &op.k, &op.v, &op.out}) check_view(*view, rows);
  require(op.layer >= 0 && op.num_heads >= 1 && op.num_kv_heads >= 1 && op.head_dim >= 1 &&
              op.num_heads % op.num_kv_heads == 0 && op.window >= 0 && op.soft_cap >= 0.0f &&
              (!op.is_chunked || (op.window > 0 && op.is_causal)),
          "attention: wrong constants");
  const int64_t q_width = op.num_heads * op.head_dim, kv_width = op.num_kv_heads * op.head_dim;
  require(op.q.width == q_width && op.out.width == q_width && op.k.width == kv_width &&
              op.v.width == kv_width,
          "attention: views and heads differ");
  const size_t layer = static_cast<size_t>(op.layer);
  if (layer >= kv_shapes_.size()) kv_shapes_.resize(layer + 1, KvShape{0, 0});
  KvShape& shape = kv_shapes_[layer];
  const bool is_shared = !op.is_causal && shape.num_kv_heads == op.num_kv_heads && shape.head_dim == op.head_dim;
  require(shape.num_kv_heads == 0 || is_shared, "attention: two operations use one layer");
  shape = {op.num_kv_heads, op.head_dim};
  op.sinks = sinks == kNone ? nullptr : &weights_->vector(sinks);
  require(op.sinks == nullptr || static_cast<int64_t>(op.sinks->size()) == op.num_heads,
          "attention: sinks and heads differ");
  require(op.slopes.empty() || static_cast<int64_t>(op.slopes.size()) == op.num_heads,
          "attention: slopes and heads differ");
  append(rows, barrier, std::move(op));
}

void Program::gated(Rows rows, bool barrier, Activation activation, View x, View out) {
  check_view(x, rows);
  check_view(out, rows);
  require(x.width == 2 * out.width, "gated: the input is twice as wide as the output");
  append(rows, barrier, GatedOp{activation, x, out});
}

void Program::route(Rows rows, bool barrier, const RouterSpec& spec, int32_t correction, View scores,
                    View out) {
  check_view(scores, rows);
  check_view(out, rows);
  require(is_sound(spec), "route: numbers of experts and groups that do not fit together");
  require(scores.width == spec.num_experts && out.width == 2 * spec.num_chosen,
          "route: views and experts differ");
  const std::vector<float>* vector = correction == kNone ? nullptr : &weights_->vector(correction);
  require(vector == nullptr || static_cast<int64_t>(vector->size()) == spec.num_experts,
          "route: correction and experts differ");
  append(rows, barrier, RouteOp{spec, vector, scores, out});
}

void Program::experts(Rows rows, bool barrier, const std::vector<int32_t>& gate_up,
                      const std::vector<int32_t>& down, ExpertsOp op) {
  check_view(op.routing, rows);
  check_view(op.out, rows);
  require(!gate_up.empty() && gate_up.size() == down.size() && op.routing.width % 2 == 0,
          "experts: wrong numbers of experts");
  for (size_t i = 0; i < gate_up.size(); ++i) {
    const Matrix& in = weights_->matrix(gate_up[i]);
    const Matrix& back = weights_->matrix(down[i]);
    require(in.cols == op.out.width && back.rows == op.out.width && in.rows == 2 * back.cols &&
                (i == 0 || back.cols == op.down.front()->cols),
            "experts: matrices and views differ");
    for (const MatrixPart& part : in.parts) {
      require(op.x || (op.x_rounded && takes(part.type, rounding_)), "experts: an input is missing");
    }
    op.gate_up.push_back(&in);
    op.down.push_back(&back);
  }
  require(!op.inner_rounded || rounding_ != Rounding::Int8 || op.inner_width() % kGroup == 0,
          "experts: wrong width for int8");
  if (op.x) check_view(*op.x, rows);
  if (op.x_rounded) check_view(*op.x_rounded, rows);
  require((!op.x || op.x->width == op.out.width) &&
              (!op.x_rounded || has_rounded_width(*op.x_rounded, op.out.width)),
          "experts: inputs and matrices differ");
  append(rows, barrier, std::move(op));
}

void Program::head_products(Rows rows, bool barrier, const std::vector<int32_t>& heads, View x, View out) {
  check_view(x, rows);
  check_view(out, rows);
  HeadProductsOp op{{}, x, out};
  for (const int32_t id : heads) op.heads.push_back(&weights_->matrix(id));
  const int64_t count = static_cast<int64_t>(op.heads.size());
  require(count >= 1 && x.width % count == 0, "head_products: wrong number of heads");
  for (const Matrix* matrix : op.heads) {
    require(matrix->rows * count == out.width && matrix->cols <= op.head_stride(),
            "head_products: matrices and views differ");
  }
  append(rows, barrier, std::move(op));
}

void Program::join_heads(Rows rows, bool barrier, JoinHeadsOp op) {
  check_view(op.out, rows);
  int64_t width = 0;
  for (const JoinHeadsOp::Piece& piece : op.pieces) {
    check_view(piece.from, rows);
    require((piece.heads == 1 || piece.heads == op.num_heads) && piece.from.width % piece.heads == 0 &&
                piece.width >= 1,
            "join_heads: pieces and heads differ");
    width += piece.width;
  }
  require(op.num_heads >= 1 && width * op.num_heads == op.out.width, "join_heads: wrong width");
  append(rows, barrier, std::move(op));
}

void Program::multiply_rows(Rows rows, bool barrier, View x, View factors, View out) {
  elementwise(x, out, rows);
  check_view(factors, rows);
  require(factors.width == 1, "multiply_rows: one factor for each row");
  append(rows, barrier, MultiplyRowsOp{x, factors, out});
}

void Program::activation(Rows rows, bool barrier, Activation activation, View x, View out) {
  elementwise(x, out, rows);
  require(activation != Activation::ClampedSwiglu, "activation: this one is the gate of two inputs");
  append(rows, barrier, ActivationOp{activation, x, out});
}

void Program::add(Rows rows, bool barrier, View a, View b, View out) {
  elementwise(a, out, rows);
  elementwise(b, out, rows);
  append(rows, barrier, AddOp{a, b, out});
}

void Program::scale(Rows rows, bool barrier, float factor, View x, View out) {
  elementwise(x, out, rows);
  append(rows, barrier, ScaleOp{factor, x, out});
}

void Program::soft_cap(Rows rows, bool barrier, float cap, View x, View out) {
  elementwise(x, out, rows);
  require(cap > 0.0f, "soft_cap: the cap must be positive");
  append(rows, barrier, SoftCapOp{cap, x, out});
}

void Program::reorder(Rows rows, bool barrier, int32_t order_id, View x, View out) {
  const std::vector<int32_t>& order = weights_->order(order_id);
  elementwise(x, out, rows);
  require(static_cast<int64_t>(order.size()) == x.width, "reorder: order and views differ");
  append(rows, barrier, ReorderOp{&order, x, out});
}

void Program::wanted_rows(Rows rows, bool barrier, View x, View out) {
  check_view(x, Rows::Tokens);
  check_view(out, Rows::Wanted);
  require(rows == Rows::Wanted && x.width == out.width, "wanted_rows: input and output differ");
  append(rows, barrier, WantedRowsOp{x, out});
}

void Program::set_logits(View logits) {
  check_view(logits, Rows::Wanted);
  logits_ = logits;
}

}  // namespace octavo
