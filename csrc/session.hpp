// Steps of one engine: a plan comes in, the forward pass runs, tokens come out.
//
// Owns the rows and the order of things within a step. Knows nothing of queues or budgets: whatever a
// plan says is checked and then done. A plan that contradicts the state of the rows throws
// std::invalid_argument before anything is computed; it never leads to memory being misread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "batch.hpp"
#include "forward.hpp"
#include "rows.hpp"
#include "sampler.hpp"

namespace octavo {

// The lists of StepPlan in contracts/step.py.
struct StepInput {
  std::vector<int32_t> freed_rows;
  std::vector<NewRow> new_rows;
  std::vector<int32_t> appended_rows, appended_block_ids;
  std::vector<int32_t> copy_from, copy_to;
  std::vector<int32_t> rows, num_tokens;
  std::vector<bool> samples;
};

struct RowLogprobs {
  int32_t row;
  TokenLogprobs entry;
};

struct RowError {
  int32_t row;
  std::string what;
};

struct StepOutput {
  std::vector<int32_t> sampled;              // one for each row that samples, in plan order
  std::vector<RowLogprobs> logprobs;         // of sampled tokens, for rows that asked
  std::vector<RowLogprobs> prompt_logprobs;  // in order of rows and positions
  std::vector<RowError> errors;              // such a row has a meaningless token in `sampled`
  double seconds = 0.0;                      // from entry to return
};

class Session {
 public:
  // max_rows sequences of at most max_len tokens; the step's tokens and the vocabulary are limited by
  // the program.
  Session(std::shared_ptr<Forward> forward, int64_t max_rows, int64_t max_len);

  // Not to be called by two threads at once (throws std::logic_error).
  StepOutput step(StepInput input);

 private:
  // What is computed from the logits of one wanted row.
  struct Wanted {
    int32_t row;
    int32_t position;     // of the token whose logits these are
    bool samples;         // draw the next token, or score the known one at position + 1
    // Results.
    int32_t token_id = 0;
    bool has_logprobs = false;
    TokenLogprobs logprobs;
    std::string error;
  };

  void update_rows(StepInput& input);
  void check_copies(const StepInput& input) const;
  void add_to_batch(int32_t row, int32_t num_tokens, bool samples);
  void want(int32_t row, int32_t first_position, int32_t num_tokens, bool samples);
  void compute(const StepInput& input);
  void copy_blocks(const StepInput& input, int thread);
  void judge_slice(const Share& slice);
  void judge(Wanted& wanted, float* logits);
  StepOutput collect();

  std::shared_ptr<Forward> forward_;
  RowTable rows_;
  std::mutex stepping_;

  // The step in progress.
  std::vector<int32_t> token_ids_, positions_;
  std::vector<BatchRow> batch_rows_;
  std::vector<int32_t> wanted_tokens_;  // parallel to wanted_
  std::vector<Wanted> wanted_;
  std::vector<bool> in_step_;           // by row
};

}  // namespace octavo
