// Steps of one engine: a plan comes in, the forward pass runs, tokens come out.
//
// Owns the rows and the order of things within a step. Knows nothing of queues or budgets: whatever a
// plan says is checked and then done. A plan that contradicts the state of the rows throws
// std::invalid_argument before anything is computed; it never leads to memory being misread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "batch.hpp"
#include "forward.hpp"
#include "fresh_blocks.hpp"
#include "host_pool.hpp"
#include "mask_filler.hpp"
#include "row_groups.hpp"
#include "rows.hpp"
#include "sampler.hpp"

namespace octavo {

// The tokens that a row may draw: bits that belong to the caller, or, where those are null, a source that
// knows them.
struct TokenMask {
  const uint8_t* bits = nullptr;
  int64_t num_bytes = 0;
  MaskSource* source = nullptr;
};

// The lists of StepPlan in contracts/step.py.
struct StepInput {
  std::vector<int32_t> freed_rows;
  std::vector<NewRow> new_rows;
  std::vector<int32_t> table_rows, table_groups, table_places, table_block_ids;
  std::vector<int32_t> replaced_rows, replaced_token_ids;
  std::vector<int32_t> swap_out_from, swap_out_to, swap_in_from, swap_in_to;
  std::vector<int32_t> copy_from, copy_to;
  std::vector<int32_t> rows, num_tokens;
  std::vector<bool> samples;
  std::vector<int32_t> mask_rows;
  std::vector<TokenMask> masks;
  std::vector<int32_t> draft_rows;
  std::vector<std::vector<int32_t>> draft_token_ids;
  // Rows that sample under logits processors, with the bits of their stages, and what runs these: it is
  // called by the thread that called `step`, and what it throws ends its row alone.
  std::vector<int32_t> processed_rows, processed_stages;
  std::function<void(int32_t row, Stage stage, float* logits)> process;
};

struct RowLogprobs {
  int32_t row;
  TokenLogprobs entry;
};

// Vectors of a row that is pooled, one after the other, each as wide as the program's result.
struct RowVectors {
  int32_t row;
  std::vector<float> values;
};

struct RowError {
  int32_t row;
  std::string what;
};

struct StepOutput {
  std::vector<int32_t> sampled;              // one for each row that samples, and accepted drafts
  std::vector<int32_t> accepted;             // how many, for each row with drafts
  std::vector<RowLogprobs> logprobs;         // of sampled tokens, for rows that asked
  std::vector<RowLogprobs> prompt_logprobs;  // in order of rows and positions
  std::vector<RowVectors> pooled;            // of rows that are pooled and computed to their end
  std::vector<RowError> errors;              // such a row has a meaningless token in `sampled`
  double seconds = 0.0;                      // from entry to return
  double swap_seconds = 0.0;                 // of them, for swaps
  double sample_seconds = 0.0;               // of them, for sampling and logprobs
};

class Session {
 public:
  // max_rows sequences of at most max_len tokens; the step's tokens and the vocabulary are limited by
  // the program. `host` is where blocks are swapped to; null: nowhere. Throws std::invalid_argument when
  // a block does not fit a slot. `has_idle_core` says that the machine has more cores than threads compute.
  Session(std::shared_ptr<Forward> forward, std::shared_ptr<HostPool> host, int64_t max_rows,
          int64_t max_len, bool has_idle_core);

  // Not to be called by two threads at once (throws std::logic_error).
  StepOutput step(StepInput input);

  int64_t vocab_size() const { return rows_.limits().vocab_size; }

 private:
  // What is computed from the logits of one wanted row.
  struct Wanted {
    int32_t row;
    int32_t position;     // of the token whose logits these are
    bool samples;         // draw the next token, or score the known one at position + 1
    bool pools;           // neither: keep what the program makes of it
    const uint8_t* mask = nullptr;
    int32_t place = 0;    // of a row that samples several tokens: which of them
    int32_t source = -1;  // number of the mask that has a source; -1: `mask` says it
    int32_t stages = 0;   // at which logits processors see it
    // Results.
    int32_t token_id = 0;
    bool has_logprobs = false;
    TokenLogprobs logprobs;
    std::vector<float> values;
    std::string error;
  };

  // A row with drafts: they are tokens of this step only.
  struct Drafted {
    int32_t row;
    int32_t num_drafts;
    std::vector<int32_t> token_ids;  // all known tokens, then the drafts
  };

  void update_rows(StepInput& input);
  void check_moves(const StepInput& input) const;
  void make_batch(const StepInput& input);
  void take_drafts(const StepInput& input);
  void add_to_batch(int32_t row, int32_t num_tokens, bool samples);
  void add_fork(int32_t row, int32_t num_tokens, bool samples);
  void want(int32_t row, int32_t first_position, int32_t num_tokens, bool samples);
  void want_drafts(const Drafted& drafted);
  Wanted& wanted_sample(int32_t row, const char* what);
  void set_masks(const StepInput& input);
  void set_processed(const StepInput& input);
  void want_pooled(int32_t row, int32_t first_position, int32_t num_tokens);
  void add_wanted(int32_t row, int32_t position, int32_t token, bool samples);
  StepBatch batch() const;
  void compute(const StepInput& input, StepOutput& output);
  Share own_part_of_blocks(int thread) const;
  void swap_blocks(const StepInput& input, const Share& part) const;
  void copy_blocks(const StepInput& input, const Share& part) const;
  void touch_blocks(const std::vector<FreshBlocks::Part>& parts, int thread) const;
  const std::vector<int32_t>& tokens_of(int32_t row);
  bool is_kept(const Wanted& wanted, const Wanted* before) const;
  void judge_slice(const StepInput& input, const Share& slice, int thread);
  void judge(const StepInput& input, Wanted& wanted, float* logits);
  void sample(const StepInput& input, Wanted& wanted, RowState& state, float* logits);
  void collect(StepOutput& output);

  std::shared_ptr<Forward> forward_;
  std::shared_ptr<HostPool> host_;
  RowTable rows_;
  FreshBlocks fresh_;
  RowGroups row_groups_;
  MaskFiller filler_;
  std::mutex stepping_;

  // The step in progress.
  std::vector<int32_t> token_ids_, positions_, segments_;
  std::vector<std::vector<BatchRow>> group_rows_;  // of each KV group
  std::vector<BatchRow> batch_rows_;    // all of them, group after group
  std::vector<int32_t> wanted_tokens_, wanted_first_;  // parallel to wanted_
  std::vector<Wanted> wanted_;
  std::vector<MaskSource*> mask_sources_;
  std::atomic<int64_t> num_judged_{0};  // rows of a slice
  std::vector<bool> in_step_;           // by row
  std::vector<int32_t> sampled_tokens_; // by row that samples: its last token, an index; others: -1
  std::vector<Drafted> drafted_;        // in plan order
  std::vector<int32_t> drafted_of_;     // by row: index into drafted_, or -1
};

}  // namespace octavo
