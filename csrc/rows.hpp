// What the runner remembers of each live request: its tokens, its block table, its sampler.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sampler.hpp"

namespace octavo {

// What a row is computed for: tokens to draw, or vectors of its prompt.
enum class Pooling : int32_t { None = 0, First = 1, Last = 2, Mean = 3, All = 4 };

// A request that enters a row; the meaning of every field is NewRow in contracts/step.py.
struct NewRow {
  int32_t row;
  std::vector<int32_t> token_ids;
  int32_t num_prompt_tokens;
  int32_t num_computed_tokens;
  std::vector<std::vector<int32_t>> block_ids;
  SamplingSpec sampling;
  int32_t twin_row;
  Pooling pooling = Pooling::None;
  int32_t second_segment = -1;  // the first token of the second text, -1: there is none
};

struct RowState {
  std::vector<int32_t> token_ids;  // all known tokens
  int32_t num_prompt;              // how many of them are the prompt
  int32_t num_computed;            // how many have their KV entries
  std::vector<std::vector<int32_t>> block_tables;  // of each KV group
  int32_t twin_row;                // whose logits it takes in its first step; -1 from then on, or ever
  RowSampler sampler;
  Pooling pooling;
  int32_t second_segment;

  int32_t num_known() const { return static_cast<int32_t>(token_ids.size()); }
};

// What a row may hold.
struct RowLimits {
  int64_t max_rows;
  int64_t max_len;  // tokens of one row
  int64_t vocab_size;
  int64_t num_segments;  // texts that the model can tell apart
  int64_t num_blocks, block_size;
  std::vector<int64_t> windows;  // of each KV group, 0: none
};

// A fixed number of places. Every method throws std::invalid_argument for a row, token or block that
// cannot be meant, and then has changed nothing.
class RowTable {
 public:
  explicit RowTable(const RowLimits& limits);

  const RowLimits& limits() const { return limits_; }

  void free(int32_t row);  // may hold nothing
  void fill(NewRow entry);
  // Entry `place` of a block table; one just past the end makes the table longer.
  void set_block(int32_t row, int32_t group, int32_t place, int32_t block_id);
  void append_token(int32_t row, int32_t token_id);
  // The newest token, which is an output token and not computed, is another one.
  void replace_newest(int32_t row, int32_t token_id);

  RowState& live(int32_t row);
  void check_block(int32_t block_id) const;
  void check_token(int32_t row, int32_t token_id) const;
  // Throws unless the blocks of all tokens that the tokens [first, end) of a row see are there.
  void check_tables(int32_t row, int32_t first, int32_t end);

 private:
  void check_row(int32_t row) const;
  void check_entry(size_t group, int32_t block_id) const;
  void check_new(const NewRow& entry) const;
  int64_t most_blocks() const {
    return (limits_.max_len + limits_.block_size - 1) / limits_.block_size;
  }

  RowLimits limits_;
  std::vector<std::optional<RowState>> rows_;
};

}  // namespace octavo
