// Draws from softmax(logits / temperature), after the filters of a SamplingSpec or without any.
//
// Owns: the order of filters, and how a number in [0, 1) becomes a token. Used by: the sampler only.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "candidates.hpp"
#include "kernels/table.hpp"
#include "sampler.hpp"

namespace octavo {

// Temperatures below this are greedy, as in vLLM.
constexpr float kGreedyTemperature = 1e-5f;

inline bool is_greedy(const SamplingSpec& spec) { return spec.temperature < kGreedyTemperature; }

// The index at which the running sum of weights first exceeds share * total, share in [0, 1).
// Rounding cannot lead past the end: the last index with a positive weight is the last answer.
template <class WeightOf>
int64_t pick(int64_t size, double total, double share, WeightOf weight_of) {
  const double target = share * total;
  double sum = 0.0;
  int64_t last = 0;
  for (int64_t i = 0; i < size; ++i) {
    const double weight = weight_of(i);
    if (!(weight > 0.0)) continue;
    sum += weight;
    last = i;
    if (sum > target) break;
  }
  return last;
}

inline size_t pick(const Candidates& candidates, double total, double share) {
  return static_cast<size_t>(pick(static_cast<int64_t>(candidates.size()), total, share, [&](int64_t i) {
    return candidates[static_cast<size_t>(i)].weight;
  }));
}

// One draw from softmax(logits / temperature) after the filters.
class Draw {
 public:
  Draw(const KernelTable& kernels, const SamplingSpec& spec, const float* logits, int64_t size,
       float best)
      : kernels_(kernels),
        spec_(spec),
        logits_(logits),
        size_(size),
        best_(best),
        temperature_(spec.temperature) {}

  int32_t run(double share) {
    if (!has_filters()) return draw_from_all(share);
    const Candidates candidates = filter();
    return candidates[pick(candidates, total_weight(candidates), share)].token_id;
  }

  bool has_filters() const { return limits_count() || limits_mass() || spec_.min_p > 0.0f; }
  bool limits_mass() const { return spec_.top_p < 1.0f; }

  // Without filters: the next draw sees that the logit of a token, not the best one, has been changed.
  void note_change(int32_t token) {
    if (!spans_.empty()) spans_[static_cast<size_t>(token / kSpan)] = span_weight(token / kSpan);
  }

  // The candidates, weighed, in order of ids: min_p, then top_k, then top_p; each sees the probabilities that
  // the one before left.
  Candidates filter() {
    float floor = kLowestFinite;
    if (spec_.min_p > 0.0f) {
      const double min_p = std::min(static_cast<double>(spec_.min_p), 1.0);
      floor = float_at_least(best_ + temperature_ * std::log(min_p));
    }
    if (!limits_count() && spec_.min_p <= 0.0f) return nucleus_of_all();
    Candidates candidates =
        limits_count()
            ? best_candidates(logits_, size_, static_cast<size_t>(spec_.top_k), floor)
            : candidates_at_least(logits_, size_, floor);
    std::sort(candidates.begin(), candidates.end(), has_lower_id);
    weigh(candidates);
    if (limits_mass()) keep_nucleus(candidates, spec_.top_p * total_weight(candidates));
    return candidates;
  }

 private:
  bool limits_count() const { return spec_.top_k > 0 && spec_.top_k < size_; }

  double weight(float logit) const {
    return std::exp((static_cast<double>(logit) - best_) / temperature_);
  }

  void weigh(Candidates& candidates) const {
    for (Candidate& candidate : candidates) candidate.weight = weight(candidate.logit);
  }

  // top_p over the whole vocabulary: look at the tokens near the peak first, farther only if their
  // share of the total weight is too small.
  Candidates nucleus_of_all() {
    const std::vector<double>& spans = span_weights();
    double total = 0.0;
    for (const double span : spans) total += span;
    for (const double depth : {4.0, 8.0, 16.0}) {
      const float floor = float_at_least(best_ - depth * temperature_);
      Candidates candidates = candidates_at_least(logits_, size_, floor);
      weigh(candidates);
      if (total_weight(candidates) < spec_.top_p * total) continue;
      keep_nucleus(candidates, spec_.top_p * total);
      return candidates;
    }
    Candidates candidates = candidates_at_least(logits_, size_, kLowestFinite);
    weigh(candidates);
    keep_nucleus(candidates, spec_.top_p * total_weight(candidates));
    return candidates;
  }

  // Without filters: a span of the vocabulary by its weight, then a token of the span. The result is
  // the inverse of the same running sum, but exponentials of all tokens come from the fast kernel.
  int32_t draw_from_all(double share) {
    const std::vector<double>& spans = span_weights();
    double total = 0.0;
    for (const double span : spans) total += span;
    const int64_t chosen = pick(static_cast<int64_t>(spans.size()), total, share,
                                [&](int64_t i) { return spans[static_cast<size_t>(i)]; });
    double before = 0.0;
    for (int64_t i = 0; i < chosen; ++i) before += spans[static_cast<size_t>(i)];
    const double span = spans[static_cast<size_t>(chosen)];
    const double rest = std::min(std::max((share * total - before) / span, 0.0), 1.0);

    const int64_t begin = chosen * kSpan;
    const int64_t count = std::min(kSpan, size_ - begin);
    std::array<double, kSpan> weights;
    double sum = 0.0;
    for (int64_t i = 0; i < count; ++i) {
      weights[static_cast<size_t>(i)] = weight(logits_[begin + i]);
      sum += weights[static_cast<size_t>(i)];
    }
    const int64_t index =
        pick(count, sum, rest, [&](int64_t i) { return weights[static_cast<size_t>(i)]; });
    return static_cast<int32_t>(begin + index);
  }

  // The sum of weights of every kSpan tokens.
  const std::vector<double>& span_weights() {
    if (!spans_.empty()) return spans_;
    const int64_t count = (size_ + kSpan - 1) / kSpan;
    spans_.reserve(static_cast<size_t>(count));
    for (int64_t span = 0; span < count; ++span) spans_.push_back(span_weight(span));
    return spans_;
  }

  double span_weight(int64_t span) const {
    const float inverse_temperature = 1.0f / temperature_;
    const int64_t count = std::min(kSpan, size_ - span * kSpan);
    const float* logits = logits_ + span * kSpan;
    std::array<float, kSpan> scaled;
    for (int64_t i = 0; i < count; ++i) {
      scaled[static_cast<size_t>(i)] = (logits[i] - best_) * inverse_temperature;
    }
    float highest;
    double log_sum;
    kernels_.log_sum_exp(scaled.data(), count, &highest, &log_sum);
    return std::exp(log_sum);
  }

  const KernelTable& kernels_;
  const SamplingSpec& spec_;
  const float* logits_;
  const int64_t size_;
  const float best_;
  const float temperature_;
  std::vector<double> spans_;  // once they are known
};

}  // namespace octavo
