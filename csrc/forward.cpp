#include "forward.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "product.hpp"

namespace octavo {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kLineFloats = 16;  // a cache line, so that threads do not share one

int64_t round_to_line(int64_t floats) {
  return (floats + kLineFloats - 1) / kLineFloats * kLineFloats;
}

void check_positions(const Program& program, const StepLimits& limits) {
  const int64_t rows = program.table_rows(EmbedKey::Position);
  if (rows > 0 && rows < limits.max_len) {
    throw std::invalid_argument("the table of positions is shorter than the longest sequence");
  }
}

// Scratch of one thread: the most that any operation of the program asks for.
int64_t scratch_floats(const Program& program, const KernelTable& kernels) {
  int64_t floats = 0;
  for (const std::vector<Op>* ops : {&program.token_ops(), &program.wanted_ops()}) {
    for (const Op& op : *ops) {
      if (const LinearOp* linear = std::get_if<LinearOp>(&op.body)) {
        floats = std::max(floats, kernels.linear_scratch_floats(linear->matrix->cols));
      } else if (const ExpertsOp* experts = std::get_if<ExpertsOp>(&op.body)) {
        floats = std::max(floats, kernels.linear_scratch_floats(experts->out.width));
        floats = std::max(floats, kernels.linear_scratch_floats(experts->inner_width()));
      } else if (const HeadProductsOp* products = std::get_if<HeadProductsOp>(&op.body)) {
        floats = std::max(floats, kernels.linear_scratch_floats(products->heads.front()->cols));
      } else if (const RouteOp* route = std::get_if<RouteOp>(&op.body)) {
        floats = std::max(floats, 2 * route->spec.num_experts);
      }
    }
  }
  return round_to_line(floats);
}

int64_t partial_floats(const Program& program, const KernelTable& kernels,
                       const StepLimits& limits) {
  int64_t floats = 0;
  for (const Op& op : program.token_ops()) {
    const AttentionOp* attention = std::get_if<AttentionOp>(&op.body);
    if (attention == nullptr) continue;
    floats = std::max(floats, kernels.attention_partial_floats(
                                  program.capacity(Rows::Tokens), limits.max_rows, limits.max_len,
                                  attention->num_heads, attention->head_dim));
  }
  return floats;
}

std::vector<int64_t> group_windows(const Program& program, const KvPool& kv) {
  std::vector<int64_t> windows(static_cast<size_t>(kv.num_groups()), 1);
  for (const Op& op : program.token_ops()) {
    const AttentionOp* attention = std::get_if<AttentionOp>(&op.body);
    if (attention == nullptr) continue;
    int64_t& window = windows[static_cast<size_t>(kv.group_of(attention->layer))];
    const int64_t own = attention->is_causal ? attention->window : 0;
    window = window == 0 || own == 0 ? 0 : std::max(window, own);
  }
  return windows;
}

const int32_t* keys_of(EmbedKey key, const StepBatch& batch) {
  switch (key) {
    case EmbedKey::TokenId: return batch.token_ids;
    case EmbedKey::Position: return batch.positions;
    case EmbedKey::Segment: return batch.segments;
  }
  return nullptr;
}

ElementArgs element_args(const Share& rows, int64_t size) {
  ElementArgs args{};
  args.size = size;
  args.begin = rows.begin;
  args.end = rows.end;
  return args;
}

}  // namespace

Forward::Forward(std::shared_ptr<const Program> program, const KernelTable& kernels,
                 std::shared_ptr<ThreadPool> threads, std::shared_ptr<const KvPool> kv,
                 const StepLimits& limits)
    : program_(std::move(program)),
      kernels_(kernels),
      threads_(std::move(threads)),
      kv_(std::move(kv)),
      scratch_floats_(scratch_floats(*program_, kernels)),
      experts_(*program_, kernels, *threads_) {
  check_positions(*program_, limits);
  const std::vector<KvShape>& needed = program_->kv_shapes();
  for (size_t layer = 0; layer < needed.size(); ++layer) {
    if (needed[layer].num_kv_heads == 0) continue;
    const bool fits = layer < kv_->shapes().size() &&
                      kv_->shapes()[layer].num_kv_heads == needed[layer].num_kv_heads &&
                      kv_->shapes()[layer].head_dim == needed[layer].head_dim;
    if (!fits) throw std::invalid_argument("the layers of the KV pool are not the program's");
  }
  windows_ = group_windows(*program_, *kv_);
  const int64_t float_bytes = sizeof(float);
  arena_ = Memory(program_->arena_floats() * float_bytes);
  scratch_ = Memory(scratch_floats_ * threads_->num_threads() * float_bytes);
  partials_ = Memory(partial_floats(*program_, kernels, limits) * float_bytes);
}

int64_t Forward::workspace_bytes(const Program& program, const KernelTable& kernels,
                                 int num_threads, const StepLimits& limits) {
  const int64_t floats = program.arena_floats() + scratch_floats(program, kernels) * num_threads +
                         partial_floats(program, kernels, limits);
  return floats * static_cast<int64_t>(sizeof(float)) + ExpertsRun::workspace_bytes(program, num_threads);
}

void Forward::run_tokens(const StepBatch& batch, int thread) {
  run(program_->token_ops(), {batch, batch.num_tokens, nullptr, thread});
}

void Forward::run_wanted(const StepBatch& batch, const Share& slice, int thread) {
  run(program_->wanted_ops(),
      {batch, slice.end - slice.begin, batch.wanted + slice.begin, thread,
       batch.wanted_first == nullptr ? nullptr : batch.wanted_first + slice.begin});
}

void Forward::run(const std::vector<Op>& ops, const Context& context) {
  for (const Op& op : ops) {
    if (op.barrier) threads_->barrier();
    std::visit([&](const auto& body) { execute(body, context); }, op.body);
  }
}

void Forward::execute(const EmbedOp& op, const Context& context) {
  const MatrixPart& part = op.table->parts.front();
  const Share rows = own_rows(context);
  EmbedArgs args{};
  args.type = part.type;
  args.panels = program_->weights().panels(part);
  args.panel_bytes = part.panel_bytes;
  args.rows = part.rows;
  args.cols = op.table->cols;
  args.ids = keys_of(op.key, context.batch);
  args.scale = op.scale;
  args.out = at(op.out);
  args.out_stride = op.out.stride;
  args.begin = rows.begin;
  args.end = rows.end;
  kernels_.embed(args);
}

void Forward::execute(const RoundOp& op, const Context& context) {
  const Share rows = own_rows(context);
  RoundArgs args{};
  args.x = at(op.x);
  args.x_stride = op.x.stride;
  args.cols = op.x.width;
  args.out = bytes_at(op.out);
  args.out_stride = op.out.stride * kFloatBytes;
  args.begin = rows.begin;
  args.end = rows.end;
  round_rows(kernels_, program_->rounding(), args);
}

// A thread's share is a run of panels, counted over all parts of the matrix. Handing out smaller pieces
// as threads get done was measured: no faster on a busy machine, 2 % slower on a quiet one.
void Forward::execute(const LinearOp& op, const Context& context) {
  if (context.num_rows == 0) return;
  const Matrix& matrix = *op.matrix;
  ProductInput input{};
  if (op.x) {
    input.x = at(*op.x);
    input.x_stride = op.x->stride;
  }
  if (op.x_rounded) {
    input.x_rounded = bytes_at(*op.x_rounded);
    input.x_rounded_stride = op.x_rounded->stride * kFloatBytes;
    input.rounding = program_->rounding();
  }
  input.num_tokens = context.num_rows;
  multiply(kernels_, program_->weights(), matrix, input, at(op.out), op.out.stride,
           share_of(matrix.num_panels(), context.thread, threads_->num_threads()),
           own_scratch(context));
}

void Forward::execute(const NormOp& op, const Context& context) {
  const Share rows = own_rows(context);
  NormArgs args{};
  args.x = at(op.x);
  args.x_stride = op.x.stride;
  args.out = at(op.out);
  args.out_stride = op.out.stride;
  args.weight = op.weight->data();
  args.size = static_cast<int64_t>(op.weight->size());
  args.groups = op.x.width / args.size;
  args.eps = op.eps;
  args.begin = rows.begin;
  args.end = rows.end;
  kernels_.norm(args);
}

void Forward::execute(const RopeTableOp& op, const Context& context) {
  const Share rows = own_rows(context);
  RopeTableArgs args{};
  args.positions = context.batch.positions;
  args.inv_freq = op.inv_freq.data();
  args.rotary_dim = op.out.width;
  args.factor = op.factor;
  args.cos_sin = at(op.out);
  args.begin = rows.begin;
  args.end = rows.end;
  kernels_.rope_table(args);
}

void Forward::execute(const RotaryOp& op, const Context& context) {
  const Share rows = own_rows(context);
  RotaryArgs args{};
  args.x = at(op.x);
  args.x_stride = op.x.stride;
  args.out = at(op.out);
  args.out_stride = op.out.stride;
  args.cos_sin = at(op.table);
  args.heads = op.x.width / op.head_dim;
  args.head_dim = op.head_dim;
  args.rotary_dim = op.table.width;
  args.begin = rows.begin;
  args.end = rows.end;
  kernels_.rotary(args);
}

// Keys and values are written row by row; attention reads those of other threads and splits its own
// work by sequence and head, so the threads meet after the writes and between its two phases.
void Forward::execute(const AttentionOp& op, const Context& context) {
  const Share rows = own_rows(context);
  const KvLayer layer = kv_->layer(op.layer);
  StepBatch batch = context.batch;  // with the block tables of the layer's group
  batch.rows += kv_->group_of(op.layer) * batch.num_rows;
  KvWriteArgs write{};
  write.kv = layer;
  write.batch = &batch;
  write.k = at(op.k);
  write.k_stride = op.k.stride;
  write.v = at(op.v);
  write.v_stride = op.v.stride;
  write.begin = rows.begin;
  write.end = rows.end;
  kernels_.kv_write(write);
  threads_->barrier();

  AttentionArgs args{};
  args.kv = layer;
  args.batch = &batch;
  args.q = at(op.q);
  args.q_stride = op.q.stride;
  args.out = at(op.out);
  args.out_stride = op.out.stride;
  args.num_heads = op.num_heads;
  args.scale = op.scale;
  args.window = op.window;
  args.soft_cap = op.soft_cap;
  args.partials = partials_.floats();
  args.is_causal = op.is_causal;
  args.is_chunked = op.is_chunked;
  args.sinks = op.sinks == nullptr ? nullptr : op.sinks->data();
  args.slopes = op.slopes.empty() ? nullptr : op.slopes.data();
  kernels_.attention(args, context.thread, threads_->num_threads());
  threads_->barrier();
  kernels_.attention_merge(args, context.thread, threads_->num_threads());
}

void Forward::execute(const GatedOp& op, const Context& context) {
  const Share rows = own_rows(context);
  GatedArgs args{};
  args.x = at(op.x);
  args.x_stride = op.x.stride;
  args.out = at(op.out);
  args.out_stride = op.out.stride;
  args.size = op.out.width;
  args.activation = op.activation;
  args.begin = rows.begin;
  args.end = rows.end;
  kernels_.gated(args);
}

void Forward::execute(const ActivationOp& op, const Context& context) {
  ElementArgs args = element_args(own_rows(context), op.out.width);
  args.a = at(op.x);
  args.a_stride = op.x.stride;
  args.out = at(op.out);
  args.out_stride = op.out.stride;
  args.activation = op.activation;
  kernels_.activation(args);
}

void Forward::execute(const AddOp& op, const Context& context) {
  ElementArgs args = element_args(own_rows(context), op.out.width);
  args.a = at(op.a);
  args.a_stride = op.a.stride;
  args.b = at(op.b);
  args.b_stride = op.b.stride;
  args.out = at(op.out);
  args.out_stride = op.out.stride;
  kernels_.add(args);
}

void Forward::execute(const ScaleOp& op, const Context& context) {
  ElementArgs args = element_args(own_rows(context), op.out.width);
  args.a = at(op.x);
  args.a_stride = op.x.stride;
  args.out = at(op.out);
  args.out_stride = op.out.stride;
  args.factor = op.factor;
  kernels_.scale(args);
}

void Forward::execute(const SoftCapOp& op, const Context& context) {
  ElementArgs args = element_args(own_rows(context), op.out.width);
  args.a = at(op.x);
  args.a_stride = op.x.stride;
  args.out = at(op.out);
  args.out_stride = op.out.stride;
  args.factor = op.cap;
  kernels_.soft_cap(args);
}

void Forward::execute(const ReorderOp& op, const Context& context) {
  const Share rows = own_rows(context);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* x = at(op.x) + row * op.x.stride;
    float* out = at(op.out) + row * op.out.stride;
    for (const int32_t column : *op.order) *out++ = x[column];
  }
}

void Forward::execute(const WantedRowsOp& op, const Context& context) {
  const Share rows = own_rows(context);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t last = context.wanted[row];
    const int64_t first = context.wanted_first == nullptr ? last : context.wanted_first[row];
    const float* from = at(op.x) + first * op.x.stride;
    float* out = at(op.out) + row * op.out.stride;
    std::memcpy(out, from, static_cast<size_t>(op.out.width) * sizeof(float));
    if (first == last) continue;
    for (int64_t token = first + 1; token <= last; ++token) {
      from += op.x.stride;
      for (int64_t i = 0; i < op.out.width; ++i) out[i] += from[i];
    }
    const float count = static_cast<float>(last - first + 1);
    for (int64_t i = 0; i < op.out.width; ++i) out[i] /= count;
  }
}

void Forward::execute(const LayerNormOp& op, const Context& context) {
  const Share rows = own_rows(context);
  LayerNormArgs args{};
  args.x = at(op.x);
  args.x_stride = op.x.stride;
  args.out = at(op.out);
  args.out_stride = op.out.stride;
  args.weight = op.weight ? op.weight->data() : nullptr;
  args.bias = op.bias ? op.bias->data() : nullptr;
  args.size = op.x.width;
  args.eps = op.eps;
  args.begin = rows.begin;
  args.end = rows.end;
  kernels_.layer_norm(args);
}

void Forward::execute(const RouteOp& op, const Context& context) {
  const Share rows = own_rows(context);
  const float* correction = op.correction == nullptr ? nullptr : op.correction->data();
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    route(op.spec, at(op.scores) + row * op.scores.stride, correction,
          at(op.out) + row * op.out.stride, own_scratch(context));
  }
}

void Forward::execute(const ExpertsOp& op, const Context& context) {
  experts_.run(op, context.num_rows, arena_.floats(), own_scratch(context), context.thread);
}

void Forward::execute(const MultiplyRowsOp& op, const Context& context) {
  const Share rows = own_rows(context);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* x = at(op.x) + row * op.x.stride;
    float* out = at(op.out) + row * op.out.stride;
    const float factor = at(op.factors)[row * op.factors.stride];
    for (int64_t i = 0; i < op.out.width; ++i) out[i] = x[i] * factor;
  }
}

// As one product whose panels are counted over all heads.
void Forward::execute(const HeadProductsOp& op, const Context& context) {
  if (context.num_rows == 0) return;
  const int64_t panels_of_head = op.heads.front()->num_panels();
  const int64_t num_heads = static_cast<int64_t>(op.heads.size());
  const Share own =
      share_of(panels_of_head * num_heads, context.thread, threads_->num_threads());
  for (int64_t head = own.begin / panels_of_head; head * panels_of_head < own.end; ++head) {
    const Matrix& matrix = *op.heads[static_cast<size_t>(head)];
    const int64_t first = head * panels_of_head;
    const Share panels{std::max<int64_t>(own.begin - first, 0),
                       std::min(own.end - first, panels_of_head)};
    ProductInput input{};
    input.x = at(op.x) + head * op.head_stride();
    input.x_stride = op.x.stride;
    input.num_tokens = context.num_rows;
    multiply(kernels_, program_->weights(), matrix, input, at(op.out) + head * matrix.rows,
             op.out.stride, panels, own_scratch(context));
  }
}

void Forward::execute(const JoinHeadsOp& op, const Context& context) {
  const Share rows = own_rows(context);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    float* out = at(op.out) + row * op.out.stride;
    for (int64_t head = 0; head < op.num_heads; ++head) {
      for (const JoinHeadsOp::Piece& piece : op.pieces) {
        const int64_t stored = piece.from.width / piece.heads;
        const float* from = at(piece.from) + row * piece.from.stride + (piece.heads == 1 ? 0 : head * stored);
        const int64_t copied = std::min(stored, piece.width);
        std::copy_n(from, copied, out);
        std::fill_n(out + copied, piece.width - copied, 0.0f);
        out += piece.width;
      }
    }
  }
}

void Forward::execute(const PositionFactorsOp& op, const Context& context) {
  const Share rows = own_rows(context);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float place = static_cast<float>(context.batch.positions[row]) + 1.0f;
    at(op.out)[row * op.out.stride] = std::log1p(std::floor(place / op.period)) * op.weight + 1.0f;
  }
}

}  // namespace octavo
