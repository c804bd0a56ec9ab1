#include "rows.hpp"

#include <stdexcept>
#include <string>
#include <utility>

namespace octavo {
namespace {

[[noreturn]] void refuse(int32_t row, const std::string& what) {
  throw std::invalid_argument("row " + std::to_string(row) + ": " + what);
}

}  // namespace

RowTable::RowTable(const RowLimits& limits) : limits_(limits) {
  if (limits.max_rows < 1 || limits.max_len < 1 || limits.vocab_size < 1) {
    throw std::invalid_argument("a row table needs at least one row, token and vocabulary entry");
  }
  rows_.resize(static_cast<size_t>(limits.max_rows));
}

void RowTable::check_row(int32_t row) const {
  if (row < 0 || row >= limits_.max_rows) {
    refuse(row, "there are " + std::to_string(limits_.max_rows) + " rows");
  }
}

RowState& RowTable::live(int32_t row) {
  check_row(row);
  std::optional<RowState>& state = rows_[static_cast<size_t>(row)];
  if (!state) refuse(row, "holds no request");
  return *state;
}

void RowTable::check_block(int32_t block_id) const {
  if (block_id < 0 || block_id >= limits_.num_blocks) {
    throw std::invalid_argument("block " + std::to_string(block_id) + ": the pool has " +
                                std::to_string(limits_.num_blocks) + " blocks");
  }
}

void RowTable::free(int32_t row) {
  check_row(row);  // it may hold nothing: a step that failed is freed again
  rows_[static_cast<size_t>(row)].reset();
}

void RowTable::fill(NewRow entry) {
  const int32_t row = entry.row;
  check_row(row);
  std::optional<RowState>& state = rows_[static_cast<size_t>(row)];
  if (state) refuse(row, "holds a request already");
  const int64_t num_known = static_cast<int64_t>(entry.token_ids.size());
  if (num_known < 1 || num_known > limits_.max_len) {
    refuse(row, std::to_string(num_known) + " tokens do not fit a context of " +
                    std::to_string(limits_.max_len));
  }
  if (entry.num_prompt_tokens < 1 || entry.num_prompt_tokens > num_known) {
    refuse(row, "the prompt must have between one and all of the known tokens");
  }
  if (entry.num_computed_tokens < 0 || entry.num_computed_tokens >= num_known) {
    refuse(row, "at least one known token must be left to compute");
  }
  for (const int32_t token_id : entry.token_ids) {
    if (token_id < 0 || token_id >= limits_.vocab_size) {
      refuse(row, "token " + std::to_string(token_id) + " is outside the vocabulary of " +
                      std::to_string(limits_.vocab_size));
    }
  }
  for (const int32_t block_id : entry.block_ids) check_block(block_id);
  if (entry.sampling.bias_token_ids.size() != entry.sampling.bias_values.size()) {
    refuse(row, "bias_token_ids and bias_values must be equally long");
  }
  RowSampler sampler(std::move(entry.sampling), entry.token_ids, entry.num_prompt_tokens,
                     limits_.vocab_size);
  state.emplace(RowState{std::move(entry.token_ids), entry.num_prompt_tokens,
                         entry.num_computed_tokens, std::move(entry.block_ids),
                         std::move(sampler)});
}

void RowTable::append_block(int32_t row, int32_t block_id) {
  RowState& state = live(row);
  check_block(block_id);
  const int64_t most = (limits_.max_len + limits_.block_size - 1) / limits_.block_size;
  if (static_cast<int64_t>(state.block_table.size()) >= most) {
    refuse(row, "a context of " + std::to_string(limits_.max_len) + " tokens needs no more than " +
                    std::to_string(most) + " blocks");
  }
  state.block_table.push_back(block_id);
}

void RowTable::append_token(int32_t row, int32_t token_id) {
  RowState& state = live(row);
  state.token_ids.push_back(token_id);
  state.sampler.append(token_id);
}

}  // namespace octavo
