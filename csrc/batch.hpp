// One step as the kernels see it: plain arrays that live for the duration of the step.
#pragma once

#include <cstdint>

namespace octavo {

// The consecutive tokens that one sequence computes in this step.
struct BatchRow {
  int32_t first_token;        // index into the step's tokens
  int32_t num_tokens;
  int32_t context_len;        // tokens of this sequence computed before this step
  const int32_t* block_table; // covers context_len + num_tokens; -1 where no token looks any more
  // On the first of several rows of one token each that have the same blocks at the beginning: how many
  // rows, which follow each other, and how many tokens those blocks hold, all computed before this step.
  int32_t num_sharing = 1;
  int32_t shared_len = 0;
};

struct StepBatch {
  int32_t num_tokens;
  const int32_t* token_ids;   // [num_tokens]
  const int32_t* positions;   // [num_tokens]
  const int32_t* segments;    // [num_tokens] 0 or 1: which of two texts
  int32_t num_rows;
  // [num_rows], for each KV group in turn; kernels get those of one group. In any order.
  const BatchRow* rows;
  int32_t num_wanted;
  const int32_t* wanted;      // [num_wanted] token indices whose logits are wanted
  // [num_wanted] wanted row i is the mean over the tokens wanted_first[i] .. wanted[i] of one sequence;
  // null: each is one token
  const int32_t* wanted_first;
};

}  // namespace octavo
