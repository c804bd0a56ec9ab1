#include "router.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace octavo {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();
constexpr float kLeastSum = 1e-20f;  // so that weights of zero stay zero

// probabilities = softmax of [0, count); may be in place.
void softmax(const float* scores, int64_t count, float* probabilities) {
  float largest = scores[0], sum = 0.0f;
  for (int64_t i = 1; i < count; ++i) largest = std::max(largest, scores[i]);
  for (int64_t i = 0; i < count; ++i) {
    probabilities[i] = std::exp(scores[i] - largest);
    sum += probabilities[i];
  }
  for (int64_t i = 0; i < count; ++i) probabilities[i] /= sum;
}

// The number of the largest of [begin, end), the first one of several. NaNs lead to some number as well.
int64_t best_of(const float* values, int64_t begin, int64_t end) {
  int64_t best = begin;
  for (int64_t i = begin + 1; i < end; ++i) {
    if (values[i] > values[best]) best = i;
  }
  return best;
}

// The sum of the `count` largest of [begin, end).
float sum_of_best(const float* values, int64_t begin, int64_t end, int64_t count) {
  float sum = 0.0f, limit = std::numeric_limits<float>::infinity();
  int64_t left = count;
  while (left > 0) {  // each round takes all that equal the next largest value
    float next = kExcluded;
    int64_t equals = 0;
    for (int64_t i = begin; i < end; ++i) {
      if (!(values[i] < limit) || values[i] < next) continue;
      equals = values[i] == next ? equals + 1 : 1;
      next = values[i];
    }
    if (equals == 0) return sum;
    const int64_t taken = std::min(left, equals);
    sum += static_cast<float>(taken) * next;
    left -= taken;
    limit = next;
  }
  return sum;
}

// Exclude the experts of all groups but the best ones.
void keep_best_groups(const RouterSpec& spec, float* selection) {
  const int64_t size = spec.num_experts / spec.num_groups;
  std::vector<float> scores(static_cast<size_t>(spec.num_groups));
  for (int64_t group = 0; group < spec.num_groups; ++group) {
    scores[static_cast<size_t>(group)] =
        sum_of_best(selection, group * size, (group + 1) * size, spec.group_best);
  }
  std::vector<bool> kept(scores.size(), false);
  for (int64_t i = 0; i < spec.num_chosen_groups; ++i) {
    size_t best = kept.size();
    for (size_t group = 0; group < kept.size(); ++group) {
      if (!kept[group] && (best == kept.size() || scores[group] > scores[best])) best = group;
    }
    kept[best] = true;
  }
  for (int64_t expert = 0; expert < spec.num_experts; ++expert) {
    if (!kept[static_cast<size_t>(expert / size)]) selection[expert] = kExcluded;
  }
}

// The best of `selection` that is not among the `num_taken` first of `taken`.
int64_t next_best(const float* selection, int64_t num_experts, const float* taken, int64_t num_taken) {
  int64_t best = -1;
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    if (best >= 0 && !(selection[expert] > selection[best])) continue;
    bool is_free = true;
    for (int64_t i = 0; i < num_taken; ++i) is_free &= taken[i] != static_cast<float>(expert);
    if (is_free) best = expert;
  }
  return best;
}

// Each expert in turn is the best one left; its weight is its share of the softmax over those left that
// are close to it.
void mix_sparsely(const RouterSpec& spec, const float* scores, float* routing, float* left) {
  std::copy_n(scores, spec.num_experts, left);
  for (int64_t slot = 0; slot < spec.num_chosen; ++slot) {
    const int64_t best = best_of(left, 0, spec.num_experts);
    const float largest = left[best];
    float sum = 0.0f;
    for (int64_t expert = 0; expert < spec.num_experts; ++expert) {
      // Distances are measured on the scores themselves, those of experts chosen before included.
      const float reach = std::max(std::fabs(scores[expert]), largest);
      const bool is_close = !((largest - scores[expert]) / reach > spec.tolerance);
      if (is_close && left[expert] != kExcluded) sum += std::exp(left[expert] - largest);
    }
    routing[slot] = static_cast<float>(best);
    routing[spec.num_chosen + slot] = 1.0f / sum;
    left[best] = kExcluded;
  }
}

}  // namespace

bool is_sound(const RouterSpec& spec) {
  return spec.num_experts >= 1 && spec.num_experts < (int64_t{1} << 24) && spec.num_chosen >= 1 &&
         spec.num_groups >= 1 && spec.num_experts % spec.num_groups == 0 &&
         spec.num_chosen_groups >= 1 && spec.num_chosen_groups <= spec.num_groups &&
         spec.num_chosen <= spec.num_experts / spec.num_groups * spec.num_chosen_groups &&
         spec.group_best >= 1 && spec.group_best <= spec.num_experts / spec.num_groups;
}

void route(const RouterSpec& spec, const float* scores, const float* correction, float* routing,
           float* scratch) {
  if (spec.scoring == Scoring::SparseMixer) return mix_sparsely(spec, scores, routing, scratch);
  float* values = scratch;  // what weights are made of
  float* selection = scratch + spec.num_experts;
  if (spec.scoring == Scoring::Softmax) {
    softmax(scores, spec.num_experts, values);
  } else {
    const bool is_sigmoid = spec.scoring == Scoring::Sigmoid;
    for (int64_t i = 0; i < spec.num_experts; ++i) {
      values[i] = is_sigmoid ? 1.0f / (1.0f + std::exp(-scores[i])) : scores[i];
    }
  }
  for (int64_t i = 0; i < spec.num_experts; ++i) {
    selection[i] = values[i] + (correction == nullptr ? 0.0f : correction[i]);
  }
  if (spec.num_chosen_groups < spec.num_groups) keep_best_groups(spec, selection);

  float* weights = routing + spec.num_chosen;
  for (int64_t slot = 0; slot < spec.num_chosen; ++slot) {
    const int64_t expert = next_best(selection, spec.num_experts, routing, slot);
    routing[slot] = static_cast<float>(expert);
    weights[slot] = values[expert];
  }
  if (spec.scoring == Scoring::SoftmaxChosen) softmax(weights, spec.num_chosen, weights);
  float sum = kLeastSum;
  for (int64_t slot = 0; slot < spec.num_chosen; ++slot) sum += weights[slot];
  for (int64_t slot = 0; slot < spec.num_chosen; ++slot) {
    weights[slot] = (spec.normalises ? weights[slot] / sum : weights[slot]) * spec.scale;
  }
}

}  // namespace octavo
