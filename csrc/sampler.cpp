// Choosing the next token of one row: masks, penalties, filters, the draw, and log-probabilities.
//
// Owns: the order in which a SamplingSpec is applied, and the random numbers. candidates.hpp selects.
// Does not know: models, steps, other rows. Every result depends on this row's logits, tokens and spec
// alone; sums run in a fixed order.
#include "sampler.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "candidates.hpp"

namespace octavo {
namespace {

// Temperatures below this are greedy, as in vLLM.
constexpr float kGreedyTemperature = 1e-5f;

// --- The draw -------------------------------------------------------------------------------------

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

  int32_t run(double share) const {
    if (!has_filters()) return draw_from_all(share);
    const Candidates candidates = filter();
    const int64_t index =
        pick(static_cast<int64_t>(candidates.size()), total_weight(candidates), share,
             [&](int64_t i) { return candidates[static_cast<size_t>(i)].weight; });
    return candidates[static_cast<size_t>(index)].token_id;
  }

 private:
  bool limits_count() const { return spec_.top_k > 0 && spec_.top_k < size_; }
  bool limits_mass() const { return spec_.top_p < 1.0f; }
  bool has_filters() const { return limits_count() || limits_mass() || spec_.min_p > 0.0f; }

  double weight(float logit) const {
    return std::exp((static_cast<double>(logit) - best_) / temperature_);
  }

  void weigh(Candidates& candidates) const {
    for (Candidate& candidate : candidates) candidate.weight = weight(candidate.logit);
  }

  // The candidates in order of ids: min_p, then top_k, then top_p; each sees the probabilities that
  // the one before left.
  Candidates filter() const {
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

  // top_p over the whole vocabulary: look at the tokens near the peak first, farther only if their
  // share of the total weight is too small.
  Candidates nucleus_of_all() const {
    const std::vector<double> spans = span_weights();
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
  int32_t draw_from_all(double share) const {
    const std::vector<double> spans = span_weights();
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
  std::vector<double> span_weights() const {
    const float inverse_temperature = 1.0f / temperature_;
    std::vector<double> spans;
    spans.reserve(static_cast<size_t>((size_ + kSpan - 1) / kSpan));
    std::array<float, kSpan> scaled;
    for (int64_t begin = 0; begin < size_; begin += kSpan) {
      const int64_t count = std::min(kSpan, size_ - begin);
      const float* logits = logits_ + begin;
      for (int64_t i = 0; i < count; ++i) {
        scaled[static_cast<size_t>(i)] = (logits[i] - best_) * inverse_temperature;
      }
      float highest;
      double log_sum;
      kernels_.log_sum_exp(scaled.data(), count, &highest, &log_sum);
      spans.push_back(std::exp(log_sum));
    }
    return spans;
  }

  const KernelTable& kernels_;
  const SamplingSpec& spec_;
  const float* logits_;
  const int64_t size_;
  const float best_;
  const float temperature_;
};

// Masks the tokens whose bit is not set.
void keep_marked(float* logits, int64_t size, const uint8_t* mask) {
  for (int64_t begin = 0; begin < size; begin += 8) {
    const unsigned bits = mask[begin / 8];
    if (bits == 0xff) continue;
    const int64_t count = std::min<int64_t>(8, size - begin);
    for (int64_t i = 0; i < count; ++i) {
      if (((bits >> i) & 1) == 0) logits[begin + i] = -kInfinity;
    }
  }
}

// A bijection of 64-bit words in which every input bit moves about half of the output bits:
// the finaliser of SplitMix64 (Steele, Lea and Flood 2014, with Stafford's constants).
uint64_t mix(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
  return word ^ (word >> 31);
}

}  // namespace

// Each seed owns a SplitMix64 sequence whose start is itself mixed, so neighbouring seeds (choice i of
// a request has seed + i) do not share a sequence shifted by a few positions. `position` is the index
// into the sequence; the upper 53 bits become a double.
double uniform(uint64_t seed, int64_t position) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio, odd
  const uint64_t start = mix(seed + kGolden);
  const uint64_t word = mix(start + kGolden * (static_cast<uint64_t>(position) + 1));
  return static_cast<double>(word >> 11) * 0x1.0p-53;
}

namespace {

// The logarithm of the sum of exponentials. Throws where no probabilities can be made of the logits.
double checked_log_sum(const KernelTable& kernels, const float* logits, int64_t vocab_size) {
  float highest;
  double log_sum;
  kernels.log_sum_exp(logits, vocab_size, &highest, &log_sum);
  if (!std::isfinite(log_sum)) {
    throw std::runtime_error("the model computed logits that are NaN or infinite");
  }
  return log_sum;
}

TokenLogprobs entry_of(const float* logits, int64_t vocab_size, double log_sum,
                       std::vector<int32_t> token_ids) {
  TokenLogprobs result;
  result.token_ids = std::move(token_ids);
  result.logprobs.reserve(result.token_ids.size());
  for (const int32_t id : result.token_ids) {
    result.logprobs.push_back(static_cast<float>(logits[id] - log_sum));
  }
  const float chosen = logits[result.token_ids.front()];
  result.rank = static_cast<int32_t>(1 + count_above(logits, vocab_size, chosen));
  return result;
}

}  // namespace

TokenLogprobs top_logprobs(const KernelTable& kernels, const float* logits, int64_t vocab_size,
                           int32_t token, int32_t count) {
  const double log_sum = checked_log_sum(kernels, logits, vocab_size);
  const size_t best = static_cast<size_t>(std::clamp<int64_t>(count, 0, vocab_size));
  Candidates candidates = best_candidates(logits, vocab_size, best, -kInfinity);
  std::sort(candidates.begin(), candidates.end(), is_better);
  std::vector<int32_t> token_ids{token};
  token_ids.reserve(candidates.size() + 1);
  for (const Candidate& candidate : candidates) token_ids.push_back(candidate.token_id);
  return entry_of(logits, vocab_size, log_sum, std::move(token_ids));
}

TokenLogprobs logprobs_of(const KernelTable& kernels, const float* logits, int64_t vocab_size,
                          int32_t token, const std::vector<int32_t>& others) {
  const double log_sum = checked_log_sum(kernels, logits, vocab_size);
  std::vector<int32_t> token_ids{token};
  token_ids.insert(token_ids.end(), others.begin(), others.end());
  return entry_of(logits, vocab_size, log_sum, std::move(token_ids));
}

// --- State of one row -----------------------------------------------------------------------------

struct RowSampler::State {
  SamplingSpec spec;
  int64_t num_prompt;
  int64_t vocab_size;

  // Distinct tokens of the row in order of appearance, how often each is in the output, and whether it
  // is in the prompt. Empty unless a penalty needs them. A token that was replaced may be in neither.
  std::vector<int32_t> seen;
  std::vector<int32_t> output_counts;
  std::vector<bool> in_prompt;
  std::unordered_map<int32_t, size_t> seen_index;

  bool in_vocab(int32_t token_id) const { return token_id >= 0 && token_id < vocab_size; }

  bool has_penalties() const {
    return spec.repetition_penalty != 1.0f || spec.presence_penalty != 0.0f ||
           spec.frequency_penalty != 0.0f;
  }

  bool holds_back_stop(TokenSpan tokens) const {
    return static_cast<int64_t>(tokens.size) - num_prompt < spec.min_tokens;
  }

  bool edits_logits(TokenSpan tokens) const {
    return !spec.allowed_token_ids.empty() || !spec.bad_words.empty() ||
           !spec.bias_token_ids.empty() || has_penalties() || holds_back_stop(tokens);
  }

  void note(int32_t token_id, bool is_output) {
    if (!in_vocab(token_id)) return;
    const auto [entry, is_new] = seen_index.try_emplace(token_id, seen.size());
    if (is_new) {
      seen.push_back(token_id);
      output_counts.push_back(0);
      in_prompt.push_back(false);
    }
    if (is_output) {
      ++output_counts[entry->second];
    } else {
      in_prompt[entry->second] = true;
    }
  }

  void edit(float* logits, TokenSpan tokens, const Processing* processing) const {
    if (!spec.allowed_token_ids.empty()) keep_allowed(logits);
    mask_bad_words(logits, tokens);
    if (holds_back_stop(tokens)) mask(logits, spec.stop_token_ids);
    add_bias(logits);
    if (processing != nullptr && processing->has(Stage::BeforePenalties)) {
      processing->run(Stage::BeforePenalties, logits);
    }
    if (has_penalties()) penalise(logits);
  }

  // Temperature and min_p as numbers in the logits, for a processor that is to see them.
  void scale(float* logits, float best) const {
    const float floor =
        spec.min_p > 0.0f ? best / spec.temperature + std::log(std::min(spec.min_p, 1.0f)) : -kInfinity;
    for (int64_t i = 0; i < vocab_size; ++i) {
      logits[i] /= spec.temperature;
      if (logits[i] < floor) logits[i] = -kInfinity;
    }
  }

  void mask(float* logits, const std::vector<int32_t>& token_ids) const {
    for (const int32_t token_id : token_ids) {
      if (in_vocab(token_id)) logits[token_id] = -kInfinity;
    }
  }

  void keep_allowed(float* logits) const {
    std::vector<std::pair<int32_t, float>> kept;
    kept.reserve(spec.allowed_token_ids.size());
    for (const int32_t token_id : spec.allowed_token_ids) {
      if (in_vocab(token_id)) kept.emplace_back(token_id, logits[token_id]);
    }
    std::fill_n(logits, vocab_size, -kInfinity);
    for (const auto& [token_id, logit] : kept) logits[token_id] = logit;
  }

  // The last id of a word is masked where the ids before it are the tail of the row.
  void mask_bad_words(float* logits, TokenSpan tokens) const {
    for (const std::vector<int32_t>& word : spec.bad_words) {
      if (word.empty() || word.size() > tokens.size + 1 || !in_vocab(word.back())) continue;
      const int32_t* tail = tokens.data + (tokens.size - (word.size() - 1));
      if (std::equal(word.begin(), word.end() - 1, tail)) {
        logits[word.back()] = -kInfinity;
      }
    }
  }

  void add_bias(float* logits) const {
    const size_t count = std::min(spec.bias_token_ids.size(), spec.bias_values.size());
    for (size_t i = 0; i < count; ++i) {
      if (in_vocab(spec.bias_token_ids[i])) logits[spec.bias_token_ids[i]] += spec.bias_values[i];
    }
  }

  // Repetition (Keskar et al. 2019) for prompt and output, the other two for the output.
  void penalise(float* logits) const {
    for (size_t i = 0; i < seen.size(); ++i) {
      if (output_counts[i] == 0 && !in_prompt[i]) continue;
      float& logit = logits[seen[i]];
      logit = logit > 0.0f ? logit / spec.repetition_penalty : logit * spec.repetition_penalty;
      if (output_counts[i] == 0) continue;
      logit -= spec.frequency_penalty * static_cast<float>(output_counts[i]);
      logit -= spec.presence_penalty;
    }
  }
};

RowSampler::RowSampler(SamplingSpec spec, const std::vector<int32_t>& tokens, int32_t num_prompt,
                       int64_t vocab_size)
    : state_(new State{std::move(spec), num_prompt, vocab_size, {}, {}, {}, {}}) {
  if (!state_->has_penalties()) return;
  for (size_t i = 0; i < tokens.size(); ++i) {
    state_->note(tokens[i], static_cast<int64_t>(i) >= num_prompt);
  }
}

RowSampler::~RowSampler() = default;
RowSampler::RowSampler(RowSampler&&) noexcept = default;
RowSampler& RowSampler::operator=(RowSampler&&) noexcept = default;

const SamplingSpec& RowSampler::spec() const { return state_->spec; }

bool RowSampler::has_penalties() const { return state_->has_penalties(); }

void RowSampler::append(int32_t token) {
  if (state_->has_penalties()) state_->note(token, true);
}

void RowSampler::replace(int32_t token, int32_t other) {
  if (!state_->has_penalties()) return;
  const auto entry = state_->seen_index.find(token);
  if (entry != state_->seen_index.end()) --state_->output_counts[entry->second];
  state_->note(other, true);
}

int32_t RowSampler::draw(const KernelTable& kernels, float* logits, TokenSpan tokens,
                         float best, const uint8_t* mask, const Processing* processing) const {
  const SamplingSpec& spec = state_->spec;
  const int64_t size = state_->vocab_size;
  const double share = uniform(spec.seed, static_cast<int64_t>(tokens.size));
  if (processing == nullptr || !processing->has(Stage::AfterTemperature)) {
    return Draw(kernels, spec, logits, size, best).run(share);
  }
  state_->scale(logits, best);
  processing->run(Stage::AfterTemperature, logits);
  if (mask != nullptr) keep_marked(logits, size, mask);
  SamplingSpec rest;
  rest.temperature = 1.0f;
  rest.top_k = spec.top_k;
  rest.top_p = spec.top_p;
  return Draw(kernels, rest, logits, size, find_peak(logits, size).logit).run(share);
}

int32_t RowSampler::sample(const KernelTable& kernels, float* logits, TokenSpan tokens,
                           TokenLogprobs* logprobs, const uint8_t* mask,
                           const Processing* processing) {
  const SamplingSpec& spec = state_->spec;
  const int64_t size = state_->vocab_size;
  const bool wants_logprobs = logprobs != nullptr && spec.num_logprobs >= 0;

  Peak peak = find_peak(logits, size);  // before any mask could hide a NaN
  std::vector<float> raw;
  const bool is_processed = processing != nullptr;
  if (mask != nullptr || is_processed || state_->edits_logits(tokens)) {
    if (wants_logprobs) raw.assign(logits, logits + size);
    if (mask != nullptr) keep_marked(logits, size, mask);
    state_->edit(logits, tokens, processing);
    if (mask != nullptr && is_processed) keep_marked(logits, size, mask);
    peak = find_peak(logits, size);
  }

  int32_t token_id = peak.token_id;
  if (spec.temperature >= kGreedyTemperature) {
    token_id = draw(kernels, logits, tokens, peak.logit, mask, processing);
  }
  if (wants_logprobs) {
    const float* unedited = raw.empty() ? logits : raw.data();
    *logprobs = spec.logprob_token_ids.empty()
                    ? top_logprobs(kernels, unedited, size, token_id, spec.num_logprobs)
                    : logprobs_of(kernels, unedited, size, token_id, spec.logprob_token_ids);
  }
  return token_id;
}

}  // namespace octavo
