#include "experts.hpp"

#include <algorithm>
#include <cstring>

#include "product.hpp"

namespace octavo {
namespace {

constexpr int64_t kLineFloats = 16;
// Most rows, one for each token and expert, that are gathered at a time. So many tokens are left to each
// of many experts that reading weights again for the next slice costs little.
constexpr int64_t kMostPairs = 4096;
// What unpacking a panel costs, in tokens that it could multiply meanwhile.
constexpr int64_t kPanelCost = 4;

int64_t round_to_line(int64_t floats) { return (floats + kLineFloats - 1) / kLineFloats * kLineFloats; }

int64_t slice_tokens(const ExpertsOp& op, int64_t capacity) {
  return std::min(capacity, std::max<int64_t>(1, kMostPairs / op.num_chosen()));
}

// Where the rows of a slice lie: floats from the beginning of the working memory, and floats of a row.
struct Place {
  int64_t offset, stride;
};
struct Places {
  Place x, x_rounded, hidden, active, active_rounded, y;
  int64_t num_floats;
};

Places places_of(const ExpertsOp& op, Rounding rounding, int64_t num_pairs) {
  Places places{};
  const auto take = [&](bool is_needed, int64_t width) {
    const Place place{places.num_floats, round_to_line(width)};
    if (is_needed) places.num_floats += num_pairs * place.stride;
    return place;
  };
  places.x = take(op.x.has_value(), op.out.width);
  places.x_rounded = take(op.x_rounded.has_value(), op.x_rounded ? op.x_rounded->width : 0);
  places.hidden = take(true, 2 * op.inner_width());
  places.active = take(true, op.inner_width());
  places.active_rounded = take(op.inner_rounded, rounded_row_floats(rounding, op.inner_width()));
  places.y = take(true, op.out.width);
  return places;
}

struct Needs {
  int64_t floats = 0, counts = 0;  // counts: of one thread
};

Needs needs_of(const Program& program) {
  Needs needs;
  for (const std::vector<Op>* ops : {&program.token_ops(), &program.wanted_ops()}) {
    for (const Op& op : *ops) {
      const ExpertsOp* experts = std::get_if<ExpertsOp>(&op.body);
      if (experts == nullptr) continue;
      const int64_t pairs =
          slice_tokens(*experts, program.capacity(op.rows)) * experts->num_chosen();
      needs.floats = std::max(needs.floats, places_of(*experts, program.rounding(), pairs).num_floats);
      const int64_t num_experts = static_cast<int64_t>(experts->gate_up.size());
      needs.counts = std::max(needs.counts, round_to_line(num_experts + 1 + 2 * pairs));
    }
  }
  return needs;
}

}  // namespace

// A pair is a token and one of its experts; pairs are sorted by expert, then by token.
struct ExpertsRun::Slice {
  const ExpertsOp& op;
  float* arena;
  float* memory;
  int64_t begin, num_tokens;
  Places places;
  int32_t* first_pair;  // of each expert, and the end: [num_experts + 1]
  int32_t* token_of;    // of each pair, from `begin` on
  int32_t* pair_of;     // [num_tokens][num_chosen]

  int64_t num_experts() const { return static_cast<int64_t>(op.gate_up.size()); }
  int64_t num_pairs() const { return num_tokens * op.num_chosen(); }
  int64_t count(int64_t expert) const { return first_pair[expert + 1] - first_pair[expert]; }
  float* row(const Place& place, int64_t index) const {
    return memory + place.offset + index * place.stride;
  }
  uint8_t* bytes(const Place& place, int64_t index) const {
    return reinterpret_cast<uint8_t*>(row(place, index));
  }
  const float* routing(int64_t token) const {
    return arena + op.routing.offset + (begin + token) * op.routing.stride;
  }
  // The expert that a router named, or some other one where it named none.
  int64_t expert(int64_t token, int64_t slot) const {
    const float named = routing(token)[slot];
    return named >= 0.0f && named < static_cast<float>(num_experts()) ? static_cast<int64_t>(named) : 0;
  }
};

ExpertsRun::ExpertsRun(const Program& program, const KernelTable& kernels, ThreadPool& threads)
    : weights_(program.weights()), rounding_(program.rounding()), kernels_(kernels), threads_(threads) {
  const Needs needs = needs_of(program);
  counts_stride_ = needs.counts;
  floats_ = Memory(needs.floats * static_cast<int64_t>(sizeof(float)));
  counts_ = Memory(needs.counts * threads.num_threads() * static_cast<int64_t>(sizeof(int32_t)));
}

int64_t ExpertsRun::workspace_bytes(const Program& program, int num_threads) {
  const Needs needs = needs_of(program);
  return (needs.floats + needs.counts * num_threads) * static_cast<int64_t>(sizeof(float));
}

void ExpertsRun::run(const ExpertsOp& op, int64_t num_rows, float* arena, float* scratch, int thread) {
  const int64_t most = slice_tokens(op, num_rows);
  for (int64_t begin = 0; begin < num_rows; begin += most) {
    // What the slice before left in y is read before any thread comes to the second barrier of this one.
    const int64_t end = std::min(num_rows, begin + most);
    Slice slice = slice_of(op, arena, begin, end, thread);
    group(slice);
    gather(slice, thread);
    multiply_in(slice, scratch, thread);
    threads_.barrier();
    activate(slice, thread);
    threads_.barrier();
    multiply_out(slice, scratch, thread);
    threads_.barrier();
    const Share own = share_of(num_rows, thread, threads_.num_threads());
    combine(slice, {std::max(own.begin, begin), std::min(own.end, end)});
  }
}

ExpertsRun::Slice ExpertsRun::slice_of(const ExpertsOp& op, float* arena, int64_t begin, int64_t end,
                                       int thread) {
  int32_t* counts = reinterpret_cast<int32_t*>(counts_.data()) + thread * counts_stride_;
  const int64_t num_experts = static_cast<int64_t>(op.gate_up.size());
  const int64_t num_pairs = (end - begin) * op.num_chosen();
  return {op,
          arena,
          floats_.floats(),
          begin,
          end - begin,
          places_of(op, rounding_, num_pairs),
          counts,
          counts + num_experts + 1,
          counts + num_experts + 1 + num_pairs};
}

// Every thread for itself: that is cheaper than meeting.
void ExpertsRun::group(Slice& slice) const {
  std::fill_n(slice.first_pair, slice.num_experts() + 1, 0);
  const int64_t num_chosen = slice.op.num_chosen();
  for (int64_t token = 0; token < slice.num_tokens; ++token) {
    for (int64_t slot = 0; slot < num_chosen; ++slot) ++slice.first_pair[slice.expert(token, slot) + 1];
  }
  for (int64_t expert = 0; expert < slice.num_experts(); ++expert) {
    slice.first_pair[expert + 1] += slice.first_pair[expert];
  }
  // first_pair serves as the next free place meanwhile, and ends up one expert ahead.
  for (int64_t token = 0; token < slice.num_tokens; ++token) {
    for (int64_t slot = 0; slot < num_chosen; ++slot) {
      const int32_t pair = slice.first_pair[slice.expert(token, slot)]++;
      slice.token_of[pair] = static_cast<int32_t>(token);
      slice.pair_of[token * num_chosen + slot] = pair;
    }
  }
  for (int64_t expert = slice.num_experts(); expert > 0; --expert) {
    slice.first_pair[expert] = slice.first_pair[expert - 1];
  }
  slice.first_pair[0] = 0;
}

// Bring the tokens of an expert together. One alone is read where it lies.
void ExpertsRun::gather(const Slice& slice, int thread) {
  bool is_needed = false;
  const Share own = share_of(slice.num_pairs(), thread, threads_.num_threads());
  for (int64_t expert = 0; expert < slice.num_experts(); ++expert) {
    if (slice.count(expert) < 2) continue;
    is_needed = true;
    const int64_t begin = std::max<int64_t>(own.begin, slice.first_pair[expert]);
    const int64_t end = std::min<int64_t>(own.end, slice.first_pair[expert + 1]);
    for (int64_t pair = begin; pair < end; ++pair) {
      const int64_t token = slice.begin + slice.token_of[pair];
      const auto copy = [&](const std::optional<View>& from, const Place& to) {
        if (!from) return;
        std::memcpy(slice.row(to, pair), slice.arena + from->offset + token * from->stride,
                    static_cast<size_t>(from->width) * sizeof(float));
      };
      copy(slice.op.x, slice.places.x);
      copy(slice.op.x_rounded, slice.places.x_rounded);
    }
  }
  if (is_needed) threads_.barrier();  // all threads see the same counts
}

// visit(expert, panels) for the part of the products that this thread does: consecutive panels of
// consecutive experts, of about equal cost for every thread.
template <class Visit>
void ExpertsRun::each_share(const Slice& slice, const std::vector<const Matrix*>& matrices, int thread,
                            const Visit& visit) const {
  const auto cost = [&](int64_t expert) { return slice.count(expert) + kPanelCost; };
  int64_t total = 0;
  for (int64_t expert = 0; expert < slice.num_experts(); ++expert) {
    if (slice.count(expert) == 0) continue;
    total += matrices[static_cast<size_t>(expert)]->num_panels() * cost(expert);
  }
  const Share own = share_of(total, thread, threads_.num_threads());
  int64_t start = 0;
  for (int64_t expert = 0; expert < slice.num_experts(); ++expert) {
    if (slice.count(expert) == 0) continue;
    const int64_t num_panels = matrices[static_cast<size_t>(expert)]->num_panels();
    // The panels that begin within the thread's share of the cost.
    const auto panel_at = [&](int64_t place) {
      const int64_t panel = (place - start + cost(expert) - 1) / cost(expert);
      return place <= start ? 0 : std::min(panel, num_panels);
    };
    const Share panels{panel_at(own.begin), panel_at(own.end)};
    if (panels.begin < panels.end) visit(expert, panels);
    start += num_panels * cost(expert);
  }
}

void ExpertsRun::multiply_in(const Slice& slice, float* scratch, int thread) {
  const ExpertsOp& op = slice.op;
  each_share(slice, op.gate_up, thread, [&](int64_t expert, const Share& panels) {
    const int64_t first = slice.first_pair[expert];
    ProductInput input{nullptr, slice.places.x.stride, nullptr, slice.places.x_rounded.stride * 4,
                       slice.count(expert), rounding_};
    const int64_t token = slice.begin + slice.token_of[first];
    const auto row = [&](const View& view) { return slice.arena + view.offset + token * view.stride; };
    if (input.num_tokens == 1) {
      if (op.x) input.x = row(*op.x);
      if (op.x_rounded) input.x_rounded = reinterpret_cast<const uint8_t*>(row(*op.x_rounded));
    } else {
      if (op.x) input.x = slice.row(slice.places.x, first);
      if (op.x_rounded) input.x_rounded = slice.bytes(slice.places.x_rounded, first);
    }
    multiply(kernels_, weights_, *op.gate_up[static_cast<size_t>(expert)], input,
             slice.row(slice.places.hidden, first), slice.places.hidden.stride, panels, scratch);
  });
}

void ExpertsRun::activate(const Slice& slice, int thread) {
  const Places& places = slice.places;
  const Share own = share_of(slice.num_pairs(), thread, threads_.num_threads());
  GatedArgs gated{};
  gated.x = slice.row(places.hidden, 0);
  gated.x_stride = places.hidden.stride;
  gated.out = slice.row(places.active, 0);
  gated.out_stride = places.active.stride;
  gated.size = slice.op.inner_width();
  gated.activation = slice.op.activation;
  gated.begin = own.begin;
  gated.end = own.end;
  kernels_.gated(gated);
  if (!slice.op.inner_rounded) return;
  RoundArgs round{};
  round.x = gated.out;
  round.x_stride = gated.out_stride;
  round.cols = gated.size;
  round.out = slice.bytes(places.active_rounded, 0);
  round.out_stride = places.active_rounded.stride * 4;
  round.begin = own.begin;
  round.end = own.end;
  round_rows(kernels_, rounding_, round);
}

void ExpertsRun::multiply_out(const Slice& slice, float* scratch, int thread) {
  const Places& places = slice.places;
  each_share(slice, slice.op.down, thread, [&](int64_t expert, const Share& panels) {
    const int64_t first = slice.first_pair[expert];
    const ProductInput input{slice.row(places.active, first), places.active.stride,
                             slice.op.inner_rounded ? slice.bytes(places.active_rounded, first) : nullptr,
                             places.active_rounded.stride * 4, slice.count(expert), rounding_};
    multiply(kernels_, weights_, *slice.op.down[static_cast<size_t>(expert)], input,
             slice.row(places.y, first), places.y.stride, panels, scratch);
  });
}

// rows: of the step.
void ExpertsRun::combine(const Slice& slice, const Share& rows) const {
  const View& out = slice.op.out;
  const int64_t num_chosen = slice.op.num_chosen();
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t token = row - slice.begin;
    const float* weights = slice.routing(token) + num_chosen;
    float* sum = slice.arena + out.offset + row * out.stride;
    std::fill_n(sum, out.width, 0.0f);
    for (int64_t slot = 0; slot < num_chosen; ++slot) {
      const float* y = slice.row(slice.places.y, slice.pair_of[token * num_chosen + slot]);
      const float weight = slice.op.is_weighted ? weights[slot] : 1.0f;
      for (int64_t i = 0; i < out.width; ++i) sum[i] += weight * y[i];
    }
  }
}

}  // namespace octavo
