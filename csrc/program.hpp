// A model's forward pass as a flat list of operations over one arena of float32 buffers.
//
// The list is made once, by backends/native in Python, which also decides where each buffer lies and
// which operations need a barrier before them. Here every operation is checked against the arena and
// the weights when it is added, so that running it needs no checks.
//
// An operation's rows are the tokens of the step, or the rows whose logits are wanted. The operations
// over tokens run first and once; those over wanted rows run once for each slice of at most
// `wanted_rows` rows, which keeps the buffer of logits small however many are wanted.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "kernels/table.hpp"
#include "kv_pool.hpp"
#include "router.hpp"
#include "weights.hpp"

namespace octavo {

enum class Rows : int32_t { Tokens = 0, Wanted = 1 };

// Some columns of a buffer: row r is at arena[offset + r * stride], `width` floats.
struct View {
  int64_t offset, stride, width;
};

// What of a token names its row of a table.
enum class EmbedKey { TokenId, Position, Segment };

struct EmbedOp {
  const Matrix* table;
  EmbedKey key;
  float scale;
  View out;
};

// Rows of floats as the program rounds them, in a buffer that is counted in floats like any other.
struct RoundOp {
  View x, out;
};

// Columns in another order: out[i] = x[order[i]].
struct ReorderOp {
  const std::vector<int32_t>* order;
  View x, out;
};

// Parts of the matrix whose type takes the program's rounding multiply x_rounded where there is one, all
// others x.
struct LinearOp {
  const Matrix* matrix;
  std::optional<View> x, x_rounded;
  View out;
};

struct NormOp {  // rms_norm: one group; head_norm: one group per head
  const std::vector<float>* weight;
  float eps;
  View x, out;
};

struct LayerNormOp {
  const std::vector<float>* weight;  // or null: ones
  const std::vector<float>* bias;    // or null: zeros
  float eps;
  View x, out;
};

struct RopeTableOp {
  std::vector<float> inv_freq;
  float factor;
  View out;
};

struct PositionFactorsOp {  // log(1 + floor((position + 1) / period)) * weight + 1
  float period, weight;
  View out;
};

struct RotaryOp {
  View x, table, out;
  int64_t head_dim;
};

struct AttentionOp {
  int64_t layer, num_heads, num_kv_heads, head_dim;
  float scale;
  int64_t window;  // 0: all keys
  float soft_cap;  // 0: none
  bool is_chunked; // the window is a chunk: tokens see those before them in their own
  bool is_causal;  // else operations may share a layer: what it holds is of no use after each
  const std::vector<float>* sinks;  // of each head, or null
  std::vector<float> slopes;        // of each head, or empty
  View q, k, v, out;
};

struct GatedOp {
  Activation activation;
  View x, out;
};

struct ActivationOp {
  Activation activation;
  View x, out;
};

struct AddOp {
  View a, b, out;
};

struct ScaleOp {
  float factor;
  View x, out;
};

struct SoftCapOp {
  float cap;
  View x, out;
};

struct WantedRowsOp {  // from rows of tokens to wanted rows, which may be means of several
  View x, out;
};

struct RouteOp {
  RouterSpec spec;
  const std::vector<float>* correction;  // or null
  View scores, out;
};

// MLPs of which each row goes through those that `routing` names. Parts of gate_up whose type takes the
// program's rounding multiply x_rounded where there is one; those of down the inner activations so rounded,
// with inner_rounded.
struct ExpertsOp {
  std::vector<const Matrix*> gate_up, down;  // of each expert
  Activation activation;
  bool is_weighted;  // else what experts give counts in full
  bool inner_rounded;
  std::optional<View> x, x_rounded;
  View routing, out;

  int64_t num_chosen() const { return routing.width / 2; }
  int64_t inner_width() const { return down.front()->cols; }
};

struct MultiplyRowsOp {  // each row of x by the one number of its row of factors
  View x, factors, out;
};

// Head h of out is matrix h times the first columns of head h of x.
struct HeadProductsOp {
  std::vector<const Matrix*> heads;
  View x, out;

  int64_t head_stride() const { return x.width / static_cast<int64_t>(heads.size()); }
};

// Heads put together of pieces that lie in several buffers.
struct JoinHeadsOp {
  struct Piece {
    View from;
    int64_t heads;  // that lie in `from`; 1: all heads share it
    int64_t width;  // columns of each head in `out`: its first ones, zeros where it has fewer
  };
  std::vector<Piece> pieces;
  int64_t num_heads;
  View out;
};

using OpBody = std::variant<EmbedOp, RoundOp, LinearOp, NormOp, RopeTableOp, RotaryOp, AttentionOp,
                            GatedOp, ActivationOp, AddOp, ScaleOp, SoftCapOp, WantedRowsOp,
                            LayerNormOp, RouteOp, ExpertsOp, MultiplyRowsOp, HeadProductsOp, JoinHeadsOp,
                            PositionFactorsOp, ReorderOp>;

struct Op {
  OpBody body;
  Rows rows;
  bool barrier;  // all threads must have finished what comes before
};

class Program {
 public:
  static constexpr int32_t kNone = -1;  // in place of the id of a vector

  // arena_floats: size of the arena. max_tokens, wanted_rows: rows that a buffer of either kind holds.
  // rounding: of all inputs of products that are rounded.
  Program(std::shared_ptr<const Weights> weights, int64_t arena_floats, int64_t max_tokens,
          int64_t wanted_rows, Rounding rounding);

  // Each throws std::invalid_argument when a view leaves the arena or a size does not fit.
  // Matrices and vectors are ids of the weights.
  void embed(Rows rows, bool barrier, int32_t table, float scale, View out);
  void embed_positions(Rows rows, bool barrier, int32_t table, View out);
  void embed_segments(Rows rows, bool barrier, int32_t table, View out);
  void round_rows(Rows rows, bool barrier, View x, View out);
  // x, x_rounded: what the types of the matrix need, see LinearOp.
  void linear(Rows rows, bool barrier, int32_t matrix, std::optional<View> x,
              std::optional<View> x_rounded, View out);
  void norm(Rows rows, bool barrier, int32_t weight, float eps, View x, View out);
  // weight, bias: ids of vectors, or kNone.
  void layer_norm(Rows rows, bool barrier, int32_t weight, int32_t bias, float eps, View x, View out);
  void rope_table(Rows rows, bool barrier, std::vector<float> inv_freq, float factor, View out);
  void position_factors(Rows rows, bool barrier, float period, float weight, View out);
  void rotary(Rows rows, bool barrier, View x, View table, int64_t head_dim, View out);
  // sinks: id of a vector, or kNone; op.sinks is null.
  void attention(Rows rows, bool barrier, int32_t sinks, AttentionOp op);
  void gated(Rows rows, bool barrier, Activation activation, View x, View out);
  void activation(Rows rows, bool barrier, Activation activation, View x, View out);
  void add(Rows rows, bool barrier, View a, View b, View out);
  void scale(Rows rows, bool barrier, float factor, View x, View out);
  void soft_cap(Rows rows, bool barrier, float cap, View x, View out);
  void reorder(Rows rows, bool barrier, int32_t order, View x, View out);
  void wanted_rows(Rows rows, bool barrier, View x, View out);
  // correction: id of a vector, or kNone.
  void route(Rows rows, bool barrier, const RouterSpec& spec, int32_t correction, View scores, View out);
  // gate_up, down: matrices of each expert. The rest: see ExpertsOp, whose lists of matrices are empty.
  void experts(Rows rows, bool barrier, const std::vector<int32_t>& gate_up,
               const std::vector<int32_t>& down, ExpertsOp op);
  void head_products(Rows rows, bool barrier, const std::vector<int32_t>& heads, View x, View out);
  void join_heads(Rows rows, bool barrier, JoinHeadsOp op);
  void multiply_rows(Rows rows, bool barrier, View x, View factors, View out);

  // Where the logits of the wanted rows lie after the last operation.
  void set_logits(View logits);

  const Weights& weights() const { return *weights_; }
  const std::vector<Op>& token_ops() const { return token_ops_; }
  const std::vector<Op>& wanted_ops() const { return wanted_ops_; }
  const View& logits() const { return logits_; }
  int64_t arena_floats() const { return arena_floats_; }
  Rounding rounding() const { return rounding_; }
  // Rows that a buffer of a kind holds.
  int64_t capacity(Rows rows) const { return rows == Rows::Tokens ? max_tokens_ : wanted_rows_; }

  // Rows of the smallest table that is looked up by so and so; 0 where there is none.
  int64_t table_rows(EmbedKey key) const;

  // Shape of each attention layer by its index; layers that no operation uses have zero heads.
  const std::vector<KvShape>& kv_shapes() const { return kv_shapes_; }

  // Throws std::invalid_argument unless `view` holds `rows` rows inside the arena.
  void check_view(const View& view, Rows rows) const;

 private:
  void append(Rows rows, bool barrier, OpBody body);
  void append_embed(Rows rows, bool barrier, int32_t table, EmbedKey key, float scale, View out);
  void elementwise(const View& x, const View& out, Rows rows) const;
  bool has_rounded_width(const View& rounded, int64_t cols) const;

  std::shared_ptr<const Weights> weights_;
  int64_t arena_floats_, max_tokens_, wanted_rows_;
  Rounding rounding_;
  std::vector<Op> token_ops_, wanted_ops_;
  View logits_{0, 0, 0};
  std::vector<KvShape> kv_shapes_;
};

}  // namespace octavo
