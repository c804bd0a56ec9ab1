// Choosing the next token of one row: masks, penalties, filters, the draw, and log-probabilities.
//
// Owns: the order in which a SamplingSpec is applied, and the random numbers. candidates.hpp selects.
// Does not know: models, steps, other rows. Every result depends on this row's logits, tokens and spec
// alone; sums run in a fixed order.
#include "sampler.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "allowed_draw.hpp"
#include "candidates.hpp"
#include "draw.hpp"

namespace octavo {
namespace {

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
// into the sequence; the upper 53 bits become a double. Further numbers at a position come from the sequences
// of seeds that lie far away.
double uniform(uint64_t seed, int64_t position, int number) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio, odd
  constexpr uint64_t kFar = 0xd1342543de82ef95ULL;     // odd, and no small multiple of it is small
  const uint64_t start = mix(seed + kFar * static_cast<uint64_t>(number) + kGolden);
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

int32_t RowSampler::draw_allowed(const KernelTable& kernels, float* logits, TokenSpan tokens, Peak peak,
                                 Allowed& allowed) const {
  const int32_t only = allowed.only();
  if (only >= 0) {
    if (logits[only] == -kInfinity) throw_nothing_left();
    return only;
  }
  return AllowedDraw(kernels, state_->spec, logits, state_->vocab_size,
                     static_cast<int64_t>(tokens.size), allowed)
      .run(peak);
}

int32_t RowSampler::sample(const KernelTable& kernels, float* logits, TokenSpan tokens,
                           TokenLogprobs* logprobs, Allowed* allowed, const Processing* processing) {
  const SamplingSpec& spec = state_->spec;
  const int64_t size = state_->vocab_size;
  const bool wants_logprobs = logprobs != nullptr && spec.num_logprobs >= 0;
  const bool is_processed = processing != nullptr;
  const bool edits = is_processed || state_->edits_logits(tokens);
  // Processors see what may be drawn, so it must be known before.
  const uint8_t* mask = allowed != nullptr && is_processed ? allowed->bits() : nullptr;

  Peak peak = find_peak(logits, size);  // before any mask could hide a NaN
  std::vector<float> raw;
  if (wants_logprobs && (edits || allowed != nullptr)) raw.assign(logits, logits + size);
  if (edits) {
    if (mask != nullptr) keep_marked(logits, size, mask);
    state_->edit(logits, tokens, processing);
    if (mask != nullptr) keep_marked(logits, size, mask);
    peak = find_peak(logits, size);
  }

  int32_t token_id = peak.token_id;
  if (allowed != nullptr && !is_processed) {
    token_id = draw_allowed(kernels, logits, tokens, peak, *allowed);
  } else if (!is_greedy(spec)) {
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
