#include "session.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace octavo {
namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::invalid_argument(what);
}

std::string row_name(int32_t row) { return "row " + std::to_string(row) + ": "; }

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <class Action>
class AtEnd {
 public:
  explicit AtEnd(Action action) : action_(std::move(action)) {}
  ~AtEnd() { action_(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  Action action_;
};

// Tokens that rows may hold: those of the table, for the result may be no logits.
int64_t vocabulary_of(const Program& program) {
  const int64_t rows = program.table_rows(EmbedKey::TokenId);
  return rows > 0 ? rows : program.logits().width;
}

}  // namespace

Session::Session(std::shared_ptr<Forward> forward, std::shared_ptr<HostPool> host,
                 int64_t max_rows, int64_t max_len, bool has_idle_core)
    : forward_(std::move(forward)),
      host_(std::move(host)),
      rows_({max_rows, max_len, vocabulary_of(forward_->program()),
             forward_->program().table_rows(EmbedKey::Segment), forward_->kv().num_blocks(),
             forward_->kv().block_size(), forward_->windows()}),
      fresh_(forward_->kv()),
      row_groups_(forward_->kv().num_blocks(), forward_->kv().block_size()),
      filler_(has_idle_core) {
  require(host_ == nullptr || host_->slot_bytes() >= forward_->kv().block_bytes(),
          "a KV block does not fit a host slot");
  in_step_.resize(static_cast<size_t>(max_rows));
  sampled_tokens_.resize(static_cast<size_t>(max_rows));
  drafted_of_.resize(static_cast<size_t>(max_rows));
  group_rows_.resize(forward_->windows().size());
}

StepOutput Session::step(StepInput input) {
  const Clock::time_point start = Clock::now();
  const std::unique_lock<std::mutex> only(stepping_, std::try_to_lock);
  if (!only.owns_lock()) throw std::logic_error("a step of this session is running already");
  update_rows(input);
  check_moves(input);
  make_batch(input);
  filler_.start(mask_sources_);
  const AtEnd finish([this] { filler_.finish(); });
  StepOutput output;
  compute(input, output);
  for (size_t i = 0; i < input.rows.size(); ++i) {
    RowState& state = rows_.live(input.rows[i]);
    state.num_computed += input.num_tokens[i];
    state.twin_row = -1;
  }
  collect(output);
  output.seconds = seconds_since(start);
  return output;
}

void Session::update_rows(StepInput& input) {
  for (const int32_t row : input.freed_rows) rows_.free(row);
  for (NewRow& entry : input.new_rows) rows_.fill(std::move(entry));
  require(input.table_rows.size() == input.table_groups.size() &&
              input.table_rows.size() == input.table_places.size() &&
              input.table_rows.size() == input.table_block_ids.size(),
          "table_rows, table_groups, table_places and table_block_ids must be equally long");
  for (size_t i = 0; i < input.table_rows.size(); ++i) {
    rows_.set_block(input.table_rows[i], input.table_groups[i], input.table_places[i],
                    input.table_block_ids[i]);
  }
  require(input.replaced_rows.size() == input.replaced_token_ids.size(),
          "replaced_rows and replaced_token_ids must be equally long");
  for (size_t i = 0; i < input.replaced_rows.size(); ++i) {
    rows_.replace_newest(input.replaced_rows[i], input.replaced_token_ids[i]);
  }
}

void Session::make_batch(const StepInput& input) {
  require(input.rows.size() == input.num_tokens.size() &&
              input.rows.size() == input.samples.size(),
          "rows, num_tokens and samples must be equally long");
  token_ids_.clear();
  positions_.clear();
  segments_.clear();
  for (std::vector<BatchRow>& rows : group_rows_) rows.clear();
  batch_rows_.clear();
  wanted_tokens_.clear();
  wanted_first_.clear();
  wanted_.clear();
  mask_sources_.clear();
  std::fill(in_step_.begin(), in_step_.end(), false);
  std::fill(sampled_tokens_.begin(), sampled_tokens_.end(), -1);
  take_drafts(input);
  int32_t num_drafted = 0;
  for (size_t i = 0; i < input.rows.size(); ++i) {
    const int32_t row = input.rows[i];
    const bool is_fork = rows_.live(row).twin_row >= 0;
    require(!in_step_[static_cast<size_t>(row)], row_name(row) + "is listed twice");
    in_step_[static_cast<size_t>(row)] = true;
    if (drafted_of_[static_cast<size_t>(row)] >= 0) {
      require(drafted_of_[static_cast<size_t>(row)] == num_drafted++ && !is_fork && input.samples[i],
              row_name(row) + "has drafts: it samples, is no fork and is listed in the order of rows");
    }
    if (is_fork) {
      add_fork(row, input.num_tokens[i], input.samples[i]);
    } else {
      add_to_batch(row, input.num_tokens[i], input.samples[i]);
    }
  }
  require(static_cast<size_t>(num_drafted) == drafted_.size(),
          "a row with drafts takes no part in the step");
  for (const NewRow& entry : input.new_rows) {
    require(entry.twin_row < 0 || in_step_[static_cast<size_t>(entry.row)],
            row_name(entry.row) + "a fork takes part in its first step");
  }
  set_masks(input);
  set_processed(input);
  for (std::vector<BatchRow>& rows : group_rows_) {
    row_groups_.gather(rows.data(), static_cast<int64_t>(rows.size()));
    batch_rows_.insert(batch_rows_.end(), rows.begin(), rows.end());
  }
}

void Session::take_drafts(const StepInput& input) {
  require(input.draft_rows.size() == input.draft_token_ids.size(),
          "draft_rows and draft_token_ids must be equally long");
  drafted_.clear();
  std::fill(drafted_of_.begin(), drafted_of_.end(), -1);
  for (size_t i = 0; i < input.draft_rows.size(); ++i) {
    const int32_t row = input.draft_rows[i];
    const std::vector<int32_t>& drafts = input.draft_token_ids[i];
    const RowState& state = rows_.live(row);
    require(!drafts.empty(), row_name(row) + "its list of drafts is empty");
    require(!state.sampler.has_penalties(),
            row_name(row) + "has penalties, which count tokens, and drafts, which are guesses");
    for (const int32_t token_id : drafts) rows_.check_token(row, token_id);
    drafted_of_[static_cast<size_t>(row)] = static_cast<int32_t>(i);
    drafted_.push_back({row, static_cast<int32_t>(drafts.size()), state.token_ids});
    std::vector<int32_t>& tokens = drafted_.back().token_ids;
    tokens.insert(tokens.end(), drafts.begin(), drafts.end());
  }
}

Session::Wanted& Session::wanted_sample(int32_t row, const char* what) {
  const auto wanted = std::find_if(wanted_.begin(), wanted_.end(), [&](const Wanted& entry) {
    return entry.samples && entry.row == row;
  });
  require(wanted != wanted_.end(), row_name(row) + "has " + what + " and does not sample");
  return *wanted;
}

void Session::set_processed(const StepInput& input) {
  require(input.processed_rows.size() == input.processed_stages.size(),
          "processed_rows and processed_stages must be equally long");
  require(input.processed_rows.empty() || input.process != nullptr,
          "processed_rows need what processes them");
  for (size_t i = 0; i < input.processed_rows.size(); ++i) {
    const int32_t row = input.processed_rows[i];
    wanted_sample(row, "a logits processor").stages = input.processed_stages[i];
    require(drafted_of_[static_cast<size_t>(row)] < 0,
            row_name(row) + "has a logits processor and drafts");
  }
}

void Session::set_masks(const StepInput& input) {
  require(input.mask_rows.size() == input.masks.size(),
          "mask_rows and masks must be equally long");
  for (size_t i = 0; i < input.masks.size(); ++i) {
    const int32_t row = input.mask_rows[i];
    Wanted& wanted = wanted_sample(row, "a mask");
    require(drafted_of_[static_cast<size_t>(row)] < 0, row_name(row) + "has a mask and drafts");
    require(input.masks[i].num_bytes * 8 >= rows_.limits().vocab_size,
            row_name(row) + "its mask is shorter than the vocabulary");
    const TokenMask& mask = input.masks[i];
    require(mask.source == nullptr || mask.source->only < rows_.limits().vocab_size,
            row_name(row) + "the only token of its mask is none of the vocabulary");
    wanted.mask = mask.bits;
    if (mask.bits != nullptr) continue;
    wanted.source = static_cast<int32_t>(mask_sources_.size());
    mask_sources_.push_back(mask.source);
  }
}

void Session::add_to_batch(int32_t row, int32_t num_tokens, bool samples) {
  const RowState& state = rows_.live(row);
  const int32_t first = state.num_computed;
  const int32_t place = drafted_of_[static_cast<size_t>(row)];
  const Drafted* drafted = place < 0 ? nullptr : &drafted_[static_cast<size_t>(place)];
  const int32_t num_new = num_tokens - (drafted == nullptr ? 0 : drafted->num_drafts);
  require(num_new >= 1 && num_new <= state.num_known() - first,
          row_name(row) + std::to_string(num_new) + " tokens to compute, but " +
              std::to_string(state.num_known() - first) + " are known and not computed");
  require(first + num_tokens <= rows_.limits().max_len,
          row_name(row) + "computes tokens beyond a context of " +
              std::to_string(rows_.limits().max_len));
  const bool is_pooled = state.pooling != Pooling::None;
  const bool is_complete = first + num_new == state.num_known();
  require(samples == (is_complete && !is_pooled),
          row_name(row) + "samples exactly when all its known tokens are computed");
  require(is_pooled || forward_->program().logits().width == rows_.limits().vocab_size,
          row_name(row) + "the model makes no logits, so its rows must be pooled");
  rows_.check_tables(row, first, first + num_tokens);
  const int64_t total = static_cast<int64_t>(token_ids_.size()) + num_tokens;
  require(total <= forward_->program().capacity(Rows::Tokens),
          "the step has more than " + std::to_string(forward_->program().capacity(Rows::Tokens)) + " tokens");

  const int32_t first_token = static_cast<int32_t>(token_ids_.size());
  for (size_t group = 0; group < group_rows_.size(); ++group) {
    const std::vector<int32_t>& table = state.block_tables[group];
    group_rows_[group].push_back({first_token, num_tokens, first, table.data()});
    fresh_.add_row(table, first, num_tokens);
  }
  if (is_pooled) want_pooled(row, first, num_tokens);
  else want(row, first, num_new, samples);
  if (drafted != nullptr) want_drafts(*drafted);
  const std::vector<int32_t>& tokens = tokens_of(row);
  for (int32_t position = first; position < first + num_tokens; ++position) {
    token_ids_.push_back(tokens[static_cast<size_t>(position)]);
    positions_.push_back(position);
    segments_.push_back(state.second_segment >= 0 && position >= state.second_segment);
  }
  if (samples) sampled_tokens_[static_cast<size_t>(row)] = first_token + num_new - 1;
}

// A fork in its first step computes nothing: the logits of its twin's last token are made once more.
void Session::add_fork(int32_t row, int32_t num_tokens, bool samples) {
  const RowState& state = rows_.live(row);
  const RowState& twin = rows_.live(state.twin_row);
  const int32_t token = sampled_tokens_[static_cast<size_t>(state.twin_row)];
  require(num_tokens == 0 && samples, row_name(row) + "a fork computes nothing and samples");
  require(token >= 0, row_name(row) + "its twin does not sample in this step, or comes later");
  require(twin.token_ids == state.token_ids, row_name(row) + "its tokens are not its twin's");
  add_wanted(row, state.num_known() - 1, token, true);
}

// Logits are wanted where a token is drawn, and where a known prompt token is to be scored: those of
// position p score the token at p + 1, also when that one is computed in a later step.
void Session::want(int32_t row, int32_t first_position, int32_t num_tokens, bool samples) {
  const RowState& state = rows_.live(row);
  const int32_t first_token = static_cast<int32_t>(token_ids_.size());
  const int32_t end = first_position + num_tokens;
  if (state.sampler.spec().num_prompt_logprobs >= 0) {
    const int32_t end_scored = std::min(end, state.num_prompt - 1);
    for (int32_t position = first_position; position < end_scored; ++position) {
      add_wanted(row, position, first_token + position - first_position, false);
    }
  }
  if (samples) add_wanted(row, end - 1, first_token + num_tokens - 1, true);
}

// Behind the last known token, whose logits are wanted already, a token is sampled at each draft.
void Session::want_drafts(const Drafted& drafted) {
  for (int32_t place = 1; place <= drafted.num_drafts; ++place) {
    add_wanted(drafted.row, wanted_.back().position + 1, wanted_tokens_.back() + 1, true);
    wanted_.back().place = place;
  }
}

// Only the last token can be pooled of a prompt that is computed in pieces.
void Session::want_pooled(int32_t row, int32_t first_position, int32_t num_tokens) {
  const RowState& state = rows_.live(row);
  const Pooling pooling = state.pooling;
  const int32_t first_token = static_cast<int32_t>(token_ids_.size());
  const int32_t last_token = first_token + num_tokens - 1;
  const bool is_complete = first_position + num_tokens == state.num_known();
  require(pooling == Pooling::Last || (first_position == 0 && is_complete),
          row_name(row) + "its prompt must be computed in one step");
  if (!is_complete) return;
  const int32_t begin = pooling == Pooling::Last ? last_token : first_token;
  const int32_t end = pooling == Pooling::First ? first_token : last_token;
  for (int32_t token = begin; token <= end; ++token) {
    if (pooling == Pooling::Mean) token = end;
    add_wanted(row, first_position + token - first_token, token, false);
    wanted_.back().pools = true;
    if (pooling == Pooling::Mean) wanted_first_.back() = begin;
  }
}

void Session::add_wanted(int32_t row, int32_t position, int32_t token, bool samples) {
  Wanted wanted;
  wanted.row = row;
  wanted.position = position;
  wanted.samples = samples;
  wanted.pools = false;
  wanted_tokens_.push_back(token);
  wanted_first_.push_back(token);
  wanted_.push_back(std::move(wanted));
}

StepBatch Session::batch() const {
  StepBatch batch{};
  batch.num_tokens = static_cast<int32_t>(token_ids_.size());
  batch.token_ids = token_ids_.data();
  batch.positions = positions_.data();
  batch.segments = segments_.data();
  batch.num_rows = static_cast<int32_t>(group_rows_.empty() ? 0 : group_rows_.front().size());
  batch.rows = batch_rows_.data();
  batch.num_wanted = static_cast<int32_t>(wanted_tokens_.size());
  batch.wanted = wanted_tokens_.data();
  batch.wanted_first = wanted_first_.data();
  return batch;
}

// Fills the seconds of swaps and of sampling.
void Session::compute(const StepInput& input, StepOutput& output) {
  const StepBatch batch = this->batch();
  const bool swaps = !input.swap_out_from.empty() || !input.swap_in_from.empty();
  const bool copies = !input.copy_from.empty();
  if (batch.num_tokens == 0 && !swaps && !copies) return;

  const int64_t num_wanted = batch.num_wanted;
  const int64_t slice_rows = forward_->program().capacity(Rows::Wanted);
  ThreadPool& threads = forward_->threads();
  const Clock::time_point start = Clock::now();
  Clock::time_point judging_since = start;  // written by thread 0
  const std::vector<FreshBlocks::Part>& fresh = fresh_.take();
  threads.run([&](int thread) {
    const Share part = own_part_of_blocks(thread);
    if (swaps) {
      swap_blocks(input, part);
      threads.barrier();
      if (thread == 0) output.swap_seconds = seconds_since(start);
    }
    if (copies) {
      copy_blocks(input, part);
      threads.barrier();
    }
    if (batch.num_tokens == 0) return;
    forward_->run_tokens(batch, thread);
    for (int64_t begin = 0; begin < num_wanted; begin += slice_rows) {
      const Share slice{begin, std::min(begin + slice_rows, num_wanted)};
      threads.barrier();  // the buffers of the slice before are free
      if (thread == 0 && begin > 0) output.sample_seconds += seconds_since(judging_since);
      if (thread == 0) num_judged_.store(0, std::memory_order_relaxed);
      forward_->run_wanted(batch, slice, thread);
      threads.barrier();
      if (thread == 0) judging_since = Clock::now();
      judge_slice(input, slice, thread);
    }
    touch_blocks(fresh, thread);
  });
  if (num_wanted > 0) output.sample_seconds += seconds_since(judging_since);
}

// Rows cost very different amounts of work, so a thread takes the next one whenever it is free. Those with
// logits processors are left to the thread that called `step`.
void Session::judge_slice(const StepInput& input, const Share& slice, int thread) {
  if (thread == 0 && !input.processed_rows.empty()) {
    for (int64_t i = 0; slice.begin + i < slice.end; ++i) {
      Wanted& wanted = wanted_[static_cast<size_t>(slice.begin + i)];
      if (wanted.stages != 0) judge(input, wanted, forward_->logits(i));
    }
  }
  ThreadPool& threads = forward_->threads();
  for (int64_t i = threads.take(); slice.begin + i < slice.end; i = threads.take()) {
    Wanted& wanted = wanted_[static_cast<size_t>(slice.begin + i)];
    if (wanted.stages == 0) judge(input, wanted, forward_->logits(i));
    if (num_judged_.fetch_add(1, std::memory_order_acq_rel) + 1 == slice.end - slice.begin) filler_.end_help();
  }
  filler_.help(thread, num_judged_, slice.end - slice.begin);
}

void Session::sample(const StepInput& input, Wanted& wanted, RowState& state, float* logits) {
  wanted.has_logprobs = state.sampler.spec().num_logprobs >= 0;
  const TokenSpan before(tokens_of(wanted.row).data(), static_cast<size_t>(wanted.position) + 1);
  AllowedBits known(wanted.mask);
  PendingMask pending(filler_, static_cast<size_t>(wanted.source));
  Allowed* allowed = nullptr;
  if (wanted.mask != nullptr) allowed = &known;
  if (wanted.source >= 0) allowed = &pending;
  const Processing processing{wanted.stages, [&](Stage stage, float* row_logits) {
                                input.process(wanted.row, stage, row_logits);
                              }};
  wanted.token_id = state.sampler.sample(forward_->kernels(), logits, before, &wanted.logprobs, allowed,
                                         wanted.stages == 0 ? nullptr : &processing);
}

// A fault here belongs to one row and must not end the step of the others.
void Session::judge(const StepInput& input, Wanted& wanted, float* logits) {
  RowState& state = rows_.live(wanted.row);
  try {
    if (wanted.pools) {
      wanted.values.assign(logits, logits + forward_->program().logits().width);
      for (const float value : wanted.values) {
        if (!std::isfinite(value)) throw std::runtime_error("the model made a vector that is not finite");
      }
      return;
    }
    if (wanted.samples) {
      sample(input, wanted, state, logits);
      if (wanted.source >= 0) filler_.tell(static_cast<size_t>(wanted.source), wanted.token_id);
      return;
    }
    wanted.has_logprobs = true;
    const int32_t next_token = state.token_ids[static_cast<size_t>(wanted.position) + 1];
    wanted.logprobs = top_logprobs(forward_->kernels(), logits, rows_.limits().vocab_size, next_token,
                                   state.sampler.spec().num_prompt_logprobs);
  } catch (const std::exception& error) {
    wanted.has_logprobs = false;
    wanted.error = error.what();
  }
}

// All known tokens of a row, and its drafts behind them.
const std::vector<int32_t>& Session::tokens_of(int32_t row) {
  const int32_t place = drafted_of_[static_cast<size_t>(row)];
  return place < 0 ? rows_.live(row).token_ids : drafted_[static_cast<size_t>(place)].token_ids;
}

// Whether a token that was sampled at a draft is one of the row's: the token `before` it must be that
// draft, and be kept itself.
bool Session::is_kept(const Wanted& wanted, const Wanted* before) const {
  if (wanted.place == 0) return true;
  if (before == nullptr || before->row != wanted.row || before->place + 1 != wanted.place) return false;
  const int32_t place = drafted_of_[static_cast<size_t>(wanted.row)];
  const std::vector<int32_t>& tokens = drafted_[static_cast<size_t>(place)].token_ids;
  return before->error.empty() && before->token_id == tokens[static_cast<size_t>(wanted.position)];
}

void Session::collect(StepOutput& output) {
  output.accepted.assign(drafted_.size(), 0);
  const Wanted* before = nullptr;  // the token sampled last that is kept
  for (Wanted& wanted : wanted_) {
    if (!is_kept(wanted, before)) continue;
    if (wanted.samples) before = &wanted;
    if (wanted.place > 0) {
      ++output.accepted[static_cast<size_t>(drafted_of_[static_cast<size_t>(wanted.row)])];
    }
    if (!wanted.error.empty()) {
      const bool known = !output.errors.empty() && output.errors.back().row == wanted.row;
      if (!known) output.errors.push_back({wanted.row, wanted.error});
    } else if (wanted.samples) {
      rows_.append_token(wanted.row, wanted.token_id);
    } else if (wanted.pools) {
      if (output.pooled.empty() || output.pooled.back().row != wanted.row) {
        output.pooled.push_back({wanted.row, {}});
      }
      std::vector<float>& values = output.pooled.back().values;
      values.insert(values.end(), wanted.values.begin(), wanted.values.end());
    }
    if (wanted.samples) output.sampled.push_back(wanted.token_id);
    if (!wanted.has_logprobs) continue;
    std::vector<RowLogprobs>& list = wanted.samples ? output.logprobs : output.prompt_logprobs;
    list.push_back({wanted.row, std::move(wanted.logprobs)});
  }
  for (size_t i = 0; i < drafted_.size(); ++i) {
    rows_.live(drafted_[i].row).num_computed -= drafted_[i].num_drafts - output.accepted[i];
  }
}

}  // namespace octavo
