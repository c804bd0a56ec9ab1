#include "session.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

namespace octavo {
namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::invalid_argument(what);
}

std::string row_name(int32_t row) { return "row " + std::to_string(row) + ": "; }

}  // namespace

Session::Session(std::shared_ptr<Forward> forward, int64_t max_rows, int64_t max_len)
    : forward_(std::move(forward)),
      rows_({max_rows, max_len, forward_->program().logits().width, forward_->kv().num_blocks(),
             forward_->kv().block_size()}) {
  in_step_.resize(static_cast<size_t>(max_rows));
}

StepOutput Session::step(StepInput input) {
  const auto start = std::chrono::steady_clock::now();
  const std::unique_lock<std::mutex> only(stepping_, std::try_to_lock);
  if (!only.owns_lock()) throw std::logic_error("a step of this session is running already");
  update_rows(input);
  check_copies(input);
  require(input.rows.size() == input.num_tokens.size() &&
              input.rows.size() == input.samples.size(),
          "rows, num_tokens and samples must be equally long");
  token_ids_.clear();
  positions_.clear();
  batch_rows_.clear();
  wanted_tokens_.clear();
  wanted_.clear();
  std::fill(in_step_.begin(), in_step_.end(), false);
  for (size_t i = 0; i < input.rows.size(); ++i) {
    add_to_batch(input.rows[i], input.num_tokens[i], input.samples[i]);
  }
  compute(input);
  for (size_t i = 0; i < input.rows.size(); ++i) {
    rows_.live(input.rows[i]).num_computed += input.num_tokens[i];
  }
  StepOutput output = collect();
  output.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return output;
}

void Session::update_rows(StepInput& input) {
  for (const int32_t row : input.freed_rows) rows_.free(row);
  for (NewRow& entry : input.new_rows) rows_.fill(std::move(entry));
  require(input.appended_rows.size() == input.appended_block_ids.size(),
          "appended_rows and appended_block_ids must be equally long");
  for (size_t i = 0; i < input.appended_rows.size(); ++i) {
    rows_.append_block(input.appended_rows[i], input.appended_block_ids[i]);
  }
}

void Session::check_copies(const StepInput& input) const {
  require(input.copy_from.size() == input.copy_to.size(),
          "copy_from and copy_to must be equally long");
  for (const std::vector<int32_t>* blocks : {&input.copy_from, &input.copy_to}) {
    for (const int32_t block_id : *blocks) rows_.check_block(block_id);
  }
}

void Session::add_to_batch(int32_t row, int32_t num_tokens, bool samples) {
  const RowState& state = rows_.live(row);
  require(!in_step_[static_cast<size_t>(row)], row_name(row) + "is listed twice");
  in_step_[static_cast<size_t>(row)] = true;
  const int32_t first = state.num_computed;
  require(num_tokens >= 1 && num_tokens <= state.num_known() - first,
          row_name(row) + std::to_string(num_tokens) + " tokens to compute, but " +
              std::to_string(state.num_known() - first) + " are known and not computed");
  require(samples == (first + num_tokens == state.num_known()),
          row_name(row) + "samples exactly when all its known tokens are computed");
  const int64_t capacity =
      static_cast<int64_t>(state.block_table.size()) * rows_.limits().block_size;
  require(first + num_tokens <= capacity, row_name(row) + "its block table is too short");
  const int64_t total = static_cast<int64_t>(token_ids_.size()) + num_tokens;
  require(total <= forward_->program().capacity(Rows::Tokens),
          "the step has more than " + std::to_string(forward_->program().capacity(Rows::Tokens)) + " tokens");

  batch_rows_.push_back({static_cast<int32_t>(token_ids_.size()), num_tokens, first,
                         state.block_table.data()});
  want(row, first, num_tokens, samples);
  for (int32_t position = first; position < first + num_tokens; ++position) {
    token_ids_.push_back(state.token_ids[static_cast<size_t>(position)]);
    positions_.push_back(position);
  }
}

// Logits are wanted where a token is drawn, and where a known prompt token is to be scored: those of
// position p score the token at p + 1, also when that one is computed in a later step.
void Session::want(int32_t row, int32_t first_position, int32_t num_tokens, bool samples) {
  const RowState& state = rows_.live(row);
  const int32_t first_token = static_cast<int32_t>(token_ids_.size());
  const int32_t end = first_position + num_tokens;
  const auto add = [&](int32_t position, bool draws) {
    Wanted wanted;
    wanted.row = row;
    wanted.position = position;
    wanted.samples = draws;
    wanted_tokens_.push_back(first_token + position - first_position);
    wanted_.push_back(std::move(wanted));
  };
  if (state.sampler.spec().num_prompt_logprobs >= 0) {
    const int32_t end_scored = std::min(end, state.num_prompt - 1);
    for (int32_t position = first_position; position < end_scored; ++position) {
      add(position, false);
    }
  }
  if (samples) add(end - 1, true);
}

void Session::compute(const StepInput& input) {
  StepBatch batch{};
  batch.num_tokens = static_cast<int32_t>(token_ids_.size());
  batch.token_ids = token_ids_.data();
  batch.positions = positions_.data();
  batch.num_rows = static_cast<int32_t>(batch_rows_.size());
  batch.rows = batch_rows_.data();
  batch.num_wanted = static_cast<int32_t>(wanted_tokens_.size());
  batch.wanted = wanted_tokens_.data();
  if (batch.num_tokens == 0 && input.copy_from.empty()) return;

  const int64_t num_wanted = batch.num_wanted;
  const int64_t slice_rows = forward_->program().capacity(Rows::Wanted);
  ThreadPool& threads = forward_->threads();
  threads.run([&](int thread) {
    if (!input.copy_from.empty()) {
      copy_blocks(input, thread);
      threads.barrier();
    }
    if (batch.num_tokens == 0) return;
    forward_->run_tokens(batch, thread);
    for (int64_t begin = 0; begin < num_wanted; begin += slice_rows) {
      const Share slice{begin, std::min(begin + slice_rows, num_wanted)};
      threads.barrier();  // the buffers of the slice before are free
      forward_->run_wanted(batch, slice, thread);
      threads.barrier();
      judge_slice(slice);
    }
  });
}

// Copies follow one another in plan order (one may read what another wrote), so threads share layers.
void Session::copy_blocks(const StepInput& input, int thread) {
  const KvPool& kv = forward_->kv();
  const Share layers = share_of(static_cast<int64_t>(kv.shapes().size()), thread,
                                forward_->threads().num_threads());
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    for (size_t i = 0; i < input.copy_from.size(); ++i) {
      kv.copy_block(layer, input.copy_from[i], input.copy_to[i]);
    }
  }
}

// Rows cost very different amounts of work, so a thread takes the next one whenever it is free.
void Session::judge_slice(const Share& slice) {
  ThreadPool& threads = forward_->threads();
  for (int64_t i = threads.take(); slice.begin + i < slice.end; i = threads.take()) {
    judge(wanted_[static_cast<size_t>(slice.begin + i)], forward_->logits(i));
  }
}

// A fault here belongs to one row and must not end the step of the others.
void Session::judge(Wanted& wanted, float* logits) {
  RowState& state = rows_.live(wanted.row);
  const KernelTable& kernels = forward_->kernels();
  try {
    const SamplingSpec& spec = state.sampler.spec();
    if (wanted.samples) {
      wanted.has_logprobs = spec.num_logprobs >= 0;
      wanted.token_id = state.sampler.sample(kernels, logits, state.token_ids, &wanted.logprobs);
      return;
    }
    wanted.has_logprobs = true;
    const int32_t next_token = state.token_ids[static_cast<size_t>(wanted.position) + 1];
    wanted.logprobs = top_logprobs(kernels, logits, rows_.limits().vocab_size, next_token,
                                   spec.num_prompt_logprobs);
  } catch (const std::exception& error) {
    wanted.has_logprobs = false;
    wanted.error = error.what();
  }
}

StepOutput Session::collect() {
  StepOutput output;
  for (Wanted& wanted : wanted_) {
    if (!wanted.error.empty()) {
      const bool known = !output.errors.empty() && output.errors.back().row == wanted.row;
      if (!known) output.errors.push_back({wanted.row, std::move(wanted.error)});
    } else if (wanted.samples) {
      rows_.append_token(wanted.row, wanted.token_id);
    }
    if (wanted.samples) output.sampled.push_back(wanted.token_id);
    if (!wanted.has_logprobs) continue;
    std::vector<RowLogprobs>& list = wanted.samples ? output.logprobs : output.prompt_logprobs;
    list.push_back({wanted.row, std::move(wanted.logprobs)});
  }
  return output;
}

}  // namespace octavo
