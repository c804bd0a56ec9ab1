#include "rows.hpp"

#include <algorithm>
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

void RowTable::check_token(int32_t row, int32_t token_id) const {
  if (token_id < 0 || token_id >= limits_.vocab_size) {
    refuse(row, "token " + std::to_string(token_id) + " is outside the vocabulary of " +
                    std::to_string(limits_.vocab_size));
  }
}

// What may stand in a block table: -1 is where a window has passed.
void RowTable::check_entry(size_t group, int32_t block_id) const {
  if (block_id != -1 || limits_.windows[group] == 0) check_block(block_id);
}

void RowTable::check_new(const NewRow& entry) const {
  const int32_t row = entry.row;
  const int64_t num_known = static_cast<int64_t>(entry.token_ids.size());
  if (num_known < 1 || num_known > limits_.max_len) {
    refuse(row, std::to_string(num_known) + " tokens do not fit a context of " +
                    std::to_string(limits_.max_len));
  }
  if (entry.num_prompt_tokens < 1 || entry.num_prompt_tokens > num_known) {
    refuse(row, "the prompt must have between one and all of the known tokens");
  }
  if (entry.twin_row >= 0 && entry.num_computed_tokens != num_known) {
    refuse(row, "a fork that has a twin has all its known tokens computed");
  }
  if (entry.twin_row < 0 &&
      (entry.num_computed_tokens < 0 || entry.num_computed_tokens >= num_known)) {
    refuse(row, "at least one known token must be left to compute");
  }
  for (const int32_t token_id : entry.token_ids) check_token(row, token_id);
  if (entry.block_ids.size() != limits_.windows.size()) {
    refuse(row, std::to_string(entry.block_ids.size()) + " block tables for " +
                    std::to_string(limits_.windows.size()) + " KV groups");
  }
  for (size_t group = 0; group < entry.block_ids.size(); ++group) {
    for (const int32_t block_id : entry.block_ids[group]) check_entry(group, block_id);
  }
  if (entry.second_segment >= 0 && limits_.num_segments < 2) {
    refuse(row, "the model has one segment only");
  }
  if (entry.pooling != Pooling::None && (entry.twin_row >= 0 || entry.num_prompt_tokens != num_known)) {
    refuse(row, "a row that is pooled is a prompt alone");
  }
  if (entry.sampling.bias_token_ids.size() != entry.sampling.bias_values.size()) {
    refuse(row, "bias_token_ids and bias_values must be equally long");
  }
}

void RowTable::fill(NewRow entry) {
  const int32_t row = entry.row;
  check_row(row);
  std::optional<RowState>& state = rows_[static_cast<size_t>(row)];
  if (state) refuse(row, "holds a request already");
  check_new(entry);
  RowSampler sampler(std::move(entry.sampling), entry.token_ids, entry.num_prompt_tokens,
                     limits_.vocab_size);
  state.emplace(RowState{std::move(entry.token_ids), entry.num_prompt_tokens,
                         entry.num_computed_tokens, std::move(entry.block_ids), entry.twin_row,
                         std::move(sampler), entry.pooling, entry.second_segment});
}

void RowTable::set_block(int32_t row, int32_t group, int32_t place, int32_t block_id) {
  RowState& state = live(row);
  if (group < 0 || group >= static_cast<int32_t>(state.block_tables.size())) {
    refuse(row, "group " + std::to_string(group) + ": there are " +
                    std::to_string(state.block_tables.size()) + " KV groups");
  }
  check_entry(static_cast<size_t>(group), block_id);
  std::vector<int32_t>& table = state.block_tables[static_cast<size_t>(group)];
  const int32_t size = static_cast<int32_t>(table.size());
  if (place < 0 || place > size) {
    refuse(row, "place " + std::to_string(place) + " of a block table of " + std::to_string(size));
  }
  if (place < size) {
    table[static_cast<size_t>(place)] = block_id;
    return;
  }
  if (size >= most_blocks()) {
    refuse(row, "a context of " + std::to_string(limits_.max_len) + " tokens needs no more than " +
                    std::to_string(most_blocks()) + " blocks");
  }
  table.push_back(block_id);
}

void RowTable::check_tables(int32_t row, int32_t first, int32_t end) {
  const RowState& state = live(row);
  for (size_t group = 0; group < state.block_tables.size(); ++group) {
    const std::vector<int32_t>& table = state.block_tables[group];
    const int64_t window = limits_.windows[group];
    if (end > static_cast<int64_t>(table.size()) * limits_.block_size) {
      refuse(row, "its block table is too short");
    }
    if (window == 0) continue;  // no entry of such a table is -1
    const int64_t begin = std::max<int64_t>(0, first + 1 - window) / limits_.block_size;
    for (int64_t place = begin; place * limits_.block_size < end; ++place) {
      if (table[static_cast<size_t>(place)] >= 0) continue;
      refuse(row, "token " + std::to_string(first) + " sees place " + std::to_string(place) +
                      " of the block table of group " + std::to_string(group) +
                      ", where no block is");
    }
  }
}

void RowTable::append_token(int32_t row, int32_t token_id) {
  RowState& state = live(row);
  state.token_ids.push_back(token_id);
  state.sampler.append(token_id);
}

void RowTable::replace_newest(int32_t row, int32_t token_id) {
  RowState& state = live(row);
  check_token(row, token_id);
  if (state.num_known() <= state.num_prompt || state.num_computed == state.num_known()) {
    refuse(row, "its newest token was not sampled in its last step and cannot be replaced");
  }
  state.sampler.replace(state.token_ids.back(), token_id);
  state.token_ids.back() = token_id;
}

}  // namespace octavo
