// Choosing the next token of one row. The meaning of every field is SamplingSpec in contracts/step.py.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "allowed.hpp"
#include "kernels/table.hpp"

namespace octavo {

struct Peak;

struct SamplingSpec {
  float temperature = 0.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  uint64_t seed = 0;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::vector<int32_t> bias_token_ids;
  std::vector<float> bias_values;
  std::vector<int32_t> allowed_token_ids;
  std::vector<std::vector<int32_t>> bad_words;
  int32_t min_tokens = 0;
  std::vector<int32_t> stop_token_ids;
  int32_t num_logprobs = -1;
  int32_t num_prompt_logprobs = -1;
  std::vector<int32_t> logprob_token_ids;  // unless empty, these in place of the best ones
};

// Log-probabilities at one position: the actual token first, then the best ones in order, or those that
// were asked for.
struct TokenLogprobs {
  std::vector<int32_t> token_ids;
  std::vector<float> logprobs;
  int32_t rank = 0;
};

// Raw log-probabilities of `token` and the `count` best (ties: lower id first); logits are not changed.
TokenLogprobs top_logprobs(const KernelTable& kernels, const float* logits, int64_t vocab_size,
                           int32_t token, int32_t count);

// The same of `token` and of `others`, in their order.
TokenLogprobs logprobs_of(const KernelTable& kernels, const float* logits, int64_t vocab_size,
                          int32_t token, const std::vector<int32_t>& others);

// Tokens of a row, in somebody's memory.
struct TokenSpan {
  TokenSpan(const int32_t* first, size_t count) : data(first), size(count) {}
  TokenSpan(const std::vector<int32_t>& tokens) : data(tokens.data()), size(tokens.size()) {}  // NOLINT

  const int32_t* data;
  size_t size;
};

// Where a logits processor sees the logits of a row: after the masks and the bias, which decide what may be
// drawn, or after temperature and min_p (rows that are drawn, not greedy ones).
enum class Stage : int32_t { BeforePenalties = 1, AfterTemperature = 2 };

// The logits processors of one row. `run` changes the logits [vocab_size] in place, and may throw.
struct Processing {
  int32_t stages;  // bits of Stage
  std::function<void(Stage stage, float* logits)> run;

  bool has(Stage stage) const { return (stages & static_cast<int32_t>(stage)) != 0; }
};

// The sampling state of one row: how often each token occurred, kept only where a penalty needs it.
class RowSampler {
 public:
  // tokens: the known tokens of the row, the first num_prompt of which are the prompt.
  RowSampler(SamplingSpec spec, const std::vector<int32_t>& tokens, int32_t num_prompt,
             int64_t vocab_size);
  ~RowSampler();
  RowSampler(RowSampler&&) noexcept;
  RowSampler& operator=(RowSampler&&) noexcept;

  const SamplingSpec& spec() const;

  // Whether a draw depends on the tokens that were appended, and not only on those that it is shown.
  bool has_penalties() const;

  // Draw the token after `tokens`; its position is tokens.size. `logits` [vocab_size] is scratch
  // afterwards. Fills `logprobs` when the spec asks. `allowed`, unless null: the tokens that may be drawn; no
  // processor brings another one back. Throws std::runtime_error when no finite logit is left or a logit is
  // NaN, and what `allowed` and `processing` throw.
  int32_t sample(const KernelTable& kernels, float* logits, TokenSpan tokens,
                 TokenLogprobs* logprobs, Allowed* allowed = nullptr,
                 const Processing* processing = nullptr);

  // Note a token that was appended to the row.
  void append(int32_t token);

  // Note that the token appended last, `token`, became `other`.
  void replace(int32_t token, int32_t other);

 private:
  int32_t draw(const KernelTable& kernels, float* logits, TokenSpan tokens, float best,
               const uint8_t* mask, const Processing* processing) const;
  int32_t draw_allowed(const KernelTable& kernels, float* logits, TokenSpan tokens, Peak peak,
                       Allowed& allowed) const;

  struct State;
  std::unique_ptr<State> state_;
};

// Uniform in [0, 1) from (seed, position) and which of the numbers at that position: counter-based, no state.
double uniform(uint64_t seed, int64_t position, int number = 0);

}  // namespace octavo
