// The sampler's view of a row of logits: passes over the whole vocabulary, and small sets of candidates.
//
// Owns: selection (best, k best, at least a threshold, nucleus), ties to the lower id, what counts as a
// row of logits. Does not know: specs, random numbers, state of rows. Used by: sampler.cpp only.
//
// The vocabulary is large (49 thousand to 262 thousand tokens) and the candidates are few, so nothing
// here sorts the vocabulary: passes over all logits are plain comparisons that compilers vectorise.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

namespace octavo {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowestFinite = std::numeric_limits<float>::lowest();
// Logits that are handled together: 4 KiB, a small part of the first-level cache.
constexpr int64_t kSpan = 1024;

struct Peak {
  float logit;
  int32_t token_id;
};

// Four lanes by the compilers' vector extension: the loop below is not vectorised from plain floats,
// because a maximum in the presence of NaN may not be reordered unless it is written lane by lane.
using FourFloats = float __attribute__((vector_size(16)));
using FourFlags = int32_t __attribute__((vector_size(16)));

// The maximum of `size` logits, NaN when one of them is NaN.
inline float maximum(const float* logits, int64_t size) {
  constexpr int64_t kChains = 4;  // hide the latency of max
  const FourFloats lowest = {-kInfinity, -kInfinity, -kInfinity, -kInfinity};
  FourFloats highest[kChains] = {lowest, lowest, lowest, lowest};
  FourFlags unordered[kChains] = {};
  int64_t i = 0;
  for (; i + 4 * kChains <= size; i += 4 * kChains) {
    for (int64_t chain = 0; chain < kChains; ++chain) {
      FourFloats part;
      std::memcpy(&part, logits + i + 4 * chain, sizeof part);
      highest[chain] = part > highest[chain] ? part : highest[chain];
      unordered[chain] |= part != part;
    }
  }
  float best = -kInfinity;
  bool has_nan = false;
  for (; i < size; ++i) {
    best = std::max(best, logits[i]);
    has_nan |= std::isnan(logits[i]);
  }
  for (int64_t chain = 0; chain < kChains; ++chain) {
    for (int lane = 0; lane < 4; ++lane) {
      best = std::max(best, highest[chain][lane]);
      has_nan |= unordered[chain][lane] != 0;
    }
  }
  return has_nan ? std::numeric_limits<float>::quiet_NaN() : best;
}

[[noreturn]] inline void throw_nothing_left() {
  throw std::runtime_error(
      "no token is left to sample: constraints on the answer (its form, allowed_token_ids, bad_words, "
      "logit_bias, logits processors) exclude all tokens together");
}

// The best token, ties to the lowest id. Throws when there is none or the row is not a row of logits.
inline Peak find_peak(const float* logits, int64_t size) {
  float best = -kInfinity;
  int64_t best_begin = 0;
  for (int64_t begin = 0; begin < size; begin += kSpan) {
    const float highest = maximum(logits + begin, std::min(kSpan, size - begin));
    if (std::isnan(highest)) throw std::runtime_error("the model computed logits that are NaN");
    if (highest > best) {
      best = highest;
      best_begin = begin;
    }
  }
  if (best == -kInfinity) throw_nothing_left();
  if (std::isinf(best)) throw std::runtime_error("the model computed a logit that is +infinity");
  const float* found = std::find(logits + best_begin, logits + size, best);
  return {best, static_cast<int32_t>(found - logits)};
}

// Masks the tokens whose bit is not set: token i is bit i % 8 of byte i / 8. Most words of a mask are all ones
// or all zeros.
inline void keep_marked(float* logits, int64_t size, const uint8_t* mask) {
  constexpr int64_t kWord = 64;
  for (int64_t begin = 0; begin < size; begin += kWord) {
    const int64_t count = std::min(kWord, size - begin);
    uint64_t bits = 0;
    std::memcpy(&bits, mask + begin / 8, static_cast<size_t>((count + 7) / 8));
    if (bits == ~uint64_t{0}) continue;
    if (bits == 0) {
      std::fill_n(logits + begin, count, -kInfinity);
      continue;
    }
    for (int64_t i = 0; i < count; ++i) {
      if ((bits >> i & 1) == 0) logits[begin + i] = -kInfinity;
    }
  }
}

// Calls visit(token_id) for each logit >= threshold, in order of ids. visit may raise the threshold.
template <class Visit>
void visit_at_least(const float* logits, int64_t size, const float& threshold, Visit visit) {
  constexpr int64_t kGlance = 64;  // mostly empty, so look at many before looking at each
  for (int64_t begin = 0; begin < size; begin += kGlance) {
    const int64_t end = std::min(begin + kGlance, size);
    if (end - begin == kGlance) {
      const float bar = threshold;
      int32_t any = 0;
      for (int64_t i = 0; i < kGlance; ++i) any |= logits[begin + i] >= bar;
      if (any == 0) continue;
    }
    for (int64_t i = begin; i < end; ++i) {
      if (logits[i] >= threshold) visit(static_cast<int32_t>(i));
    }
  }
}

inline int64_t count_above(const float* logits, int64_t size, float threshold) {
  int64_t total = 0;
  for (int64_t begin = 0; begin < size; begin += kSpan) {
    const int64_t end = std::min(begin + kSpan, size);
    int32_t count = 0;
    for (int64_t i = begin; i < end; ++i) count += logits[i] > threshold;
    total += count;
  }
  return total;
}

struct Candidate {
  double weight;  // exp((logit - best) / temperature): its probability but for a common factor
  float logit;
  int32_t token_id;
};
using Candidates = std::vector<Candidate>;

inline bool is_better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token_id < b.token_id);
}

inline bool has_lower_id(const Candidate& a, const Candidate& b) { return a.token_id < b.token_id; }

// All finite logits >= threshold in order of ids, not weighed.
inline Candidates candidates_at_least(const float* logits, int64_t size, float threshold) {
  Candidates candidates;
  const float bar = std::max(threshold, kLowestFinite);
  visit_at_least(logits, size, bar, [&](int32_t token_id) {
    candidates.push_back({0.0, logits[token_id], token_id});
  });
  return candidates;
}

inline void keep_best(Candidates& candidates, size_t count) {
  if (candidates.size() <= count) return;
  std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count) - 1,
                   candidates.end(), is_better);
  candidates.resize(count);
}

// The `count` best finite logits >= threshold, in no particular order, not weighed.
inline Candidates best_candidates(const float* logits, int64_t size, size_t count, float threshold) {
  Candidates candidates;
  if (count == 0) return candidates;
  const size_t limit = count + std::max<size_t>(count, 256);
  candidates.reserve(std::min(limit, static_cast<size_t>(size)));
  float bar = std::max(threshold, kLowestFinite);
  visit_at_least(logits, size, bar, [&](int32_t token_id) {
    candidates.push_back({0.0, logits[token_id], token_id});
    if (candidates.size() < limit) return;
    keep_best(candidates, count);
    // An equal logit with a higher id loses, so later ones must be above the last that is kept.
    bar = std::nextafter(candidates[count - 1].logit, kInfinity);
  });
  keep_best(candidates, count);
  return candidates;
}

inline double total_weight(const Candidates& candidates) {
  double total = 0.0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

// Keep the fewest best candidates whose weights add up to `limit`, in order of ids as they came.
inline void keep_nucleus(Candidates& candidates, double limit) {
  if (candidates.empty()) return;
  // Bisection by rank: the better half of what is open either contains the last member or belongs to
  // the nucleus whole. That takes linear time, where sorting a flat distribution would not.
  Candidates ranked = candidates;
  auto begin = ranked.begin();
  auto end = ranked.end();
  double before = 0.0;
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, is_better);
    double sum = before;
    for (auto candidate = begin; candidate != middle; ++candidate) sum += candidate->weight;
    if (sum >= limit) {
      end = middle;
    } else {
      before = sum;
      begin = middle;
    }
  }
  const Candidate last = *begin;
  const auto is_outside = [&](const Candidate& candidate) { return is_better(last, candidate); };
  candidates.erase(std::remove_if(candidates.begin(), candidates.end(), is_outside),
                   candidates.end());
}

// The smallest float32 that is not below `value`, so that comparing float32 logits with it is exact.
inline float float_at_least(double value) {
  const float rounded = static_cast<float>(value);
  if (static_cast<double>(rounded) >= value) return rounded;
  return std::nextafter(rounded, kInfinity);
}

}  // namespace octavo
