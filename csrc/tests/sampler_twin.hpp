// The sampler's slow, obvious twin: probabilities by sorting everything, and whether draws follow them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include "../kernels/reduce.hpp"
#include "../sampler.hpp"
#ifdef __AVX2__
#include "../simd/avx2.hpp"
using Policy = octavo::Avx2;
#else
#include "../simd/scalar.hpp"
using Policy = octavo::Scalar;
#endif
#include "check.hpp"

namespace octavo::tests {

using Tokens = std::vector<int32_t>;
using Logits = std::vector<float>;

inline KernelTable kernels() {
  KernelTable table{};
  table.log_sum_exp = log_sum_exp<Policy>;
  return table;
}

inline SamplingSpec random_spec(float temperature = 1.0f) {
  SamplingSpec spec;
  spec.temperature = temperature;
  return spec;
}

inline std::vector<double> softmax(const Logits& logits, double temperature) {
  const double best = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights;
  for (const float logit : logits) weights.push_back(std::exp((logit - best) / temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= total;
  return weights;
}

inline void normalise(std::vector<double>& probabilities) {
  const double total = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (double& probability : probabilities) probability /= total;
}

// Token ids, best first, ties by id.
inline std::vector<size_t> ranking(const Logits& logits) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  return order;
}

inline std::vector<double> filtered(const SamplingSpec& spec, const Logits& logits) {
  std::vector<double> probabilities = softmax(logits, spec.temperature);
  const double best = *std::max_element(probabilities.begin(), probabilities.end());
  for (double& probability : probabilities) {
    if (probability < spec.min_p * best) probability = 0.0;
  }
  const std::vector<size_t> order = ranking(logits);
  for (size_t i = 0; spec.top_k > 0 && i < order.size(); ++i) {
    if (i >= static_cast<size_t>(spec.top_k)) probabilities[order[i]] = 0.0;
  }
  normalise(probabilities);
  if (spec.top_p < 1.0f) {
    double before = 0.0;
    for (size_t i = 0; i < order.size(); ++i) {
      const double probability = probabilities[order[i]];
      if (i > 0 && before >= spec.top_p) probabilities[order[i]] = 0.0;
      before += probability;
    }
    normalise(probabilities);
  }
  return probabilities;
}

// 5 standard deviations above the expected value of chi-square.
inline void check_frequencies(const char* what, const std::vector<double>& expected,
                       const std::map<int32_t, int64_t>& counts, int64_t draws) {
  double chi_square = 0.0;
  int64_t cells = 0;
  double rare_expected = 0.0;
  int64_t rare_count = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto found = counts.find(static_cast<int32_t>(i));
    const int64_t count = found == counts.end() ? 0 : found->second;
    check(expected[i] > 0.0 || count == 0, "%s: token %zu has probability 0", what, i);
    const double mean = expected[i] * static_cast<double>(draws);
    if (mean < 10.0) {
      rare_expected += mean;
      rare_count += count;
      continue;
    }
    const double difference = static_cast<double>(count) - mean;
    chi_square += difference * difference / mean;
    ++cells;
  }
  if (rare_expected >= 10.0) {
    const double difference = static_cast<double>(rare_count) - rare_expected;
    chi_square += difference * difference / rare_expected;
    ++cells;
  }
  const double freedom = static_cast<double>(std::max<int64_t>(cells - 1, 1));
  check(chi_square < freedom + 5.0 * std::sqrt(2.0 * freedom),
        "%s: chi-square %.1f with %.0f degrees of freedom", what, chi_square, freedom);
}

}  // namespace octavo::tests
