#include "hand_batch.hpp"

#include <stdexcept>

#include "row_groups.hpp"

namespace octavo {
namespace {

void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

void check_row(const Forward& forward, const HandRow& row, size_t num_tokens) {
  const auto& [first, count, context, blocks] = row;
  require(first >= 0 && count >= 1 && context >= 0, "a row has a negative size");
  require(static_cast<size_t>(first) + static_cast<size_t>(count) <= num_tokens,
          "a row has tokens outside the batch");
  const int64_t covered = static_cast<int64_t>(blocks.size()) * forward.kv().block_size();
  require(int64_t{context} + count <= covered, "a row's block table is too short");
  for (const int32_t block : blocks) {
    require(block >= 0 && block < forward.kv().num_blocks(), "a row has a block outside the pool");
  }
}

void check_wanted(const HandBatch& hand) {
  require(hand.wanted_first.empty() || hand.wanted_first.size() == hand.wanted.size(),
          "wanted and wanted_first must be equally long");
  for (size_t i = 0; i < hand.wanted.size(); ++i) {
    const int32_t last = hand.wanted[i];
    require(last >= 0 && static_cast<size_t>(last) < hand.token_ids.size(),
            "a wanted token is outside the batch");
    const int32_t first = hand.wanted_first.empty() ? last : hand.wanted_first[i];
    require(first >= 0 && first <= last, "a wanted row stands for no token");
  }
}

void check(const Forward& forward, const HandBatch& hand) {
  const Program& program = forward.program();
  const size_t num_tokens = hand.token_ids.size();
  require(forward.kv().num_groups() == 1, "a batch by hand has one block table to a row");
  require(hand.positions.size() == num_tokens, "token_ids and positions must be equally long");
  require(static_cast<int64_t>(num_tokens) <= program.capacity(Rows::Tokens) &&
              static_cast<int64_t>(hand.wanted.size()) <= program.capacity(Rows::Wanted),
          "the batch is larger than the program");
  for (const HandRow& row : hand.rows) check_row(forward, row, num_tokens);
  check_wanted(hand);
  require(hand.segments.empty() || hand.segments.size() == num_tokens,
          "token_ids and segments must be equally long");
  for (const int32_t segment : hand.segments) {
    require(segment >= 0 && segment < program.table_rows(EmbedKey::Segment), "there is no such segment");
  }
}

}  // namespace

void run_by_hand(Forward& forward, const HandBatch& hand) {
  check(forward, hand);
  std::vector<BatchRow> batch_rows;
  for (const auto& [first, count, context, blocks] : hand.rows) {
    batch_rows.push_back({first, count, context, blocks.data()});
  }
  RowGroups(forward.kv().num_blocks(), forward.kv().block_size())
      .gather(batch_rows.data(), static_cast<int64_t>(batch_rows.size()));
  const std::vector<int32_t> first_segments(hand.token_ids.size(), 0);
  StepBatch batch{};
  batch.num_tokens = static_cast<int32_t>(hand.token_ids.size());
  batch.token_ids = hand.token_ids.data();
  batch.positions = hand.positions.data();
  batch.segments = hand.segments.empty() ? first_segments.data() : hand.segments.data();
  batch.num_rows = static_cast<int32_t>(batch_rows.size());
  batch.rows = batch_rows.data();
  batch.num_wanted = static_cast<int32_t>(hand.wanted.size());
  batch.wanted = hand.wanted.data();
  batch.wanted_first = hand.wanted_first.empty() ? nullptr : hand.wanted_first.data();
  const Share slice{0, batch.num_wanted};
  forward.threads().run([&](int thread) {
    forward.run_tokens(batch, thread);
    forward.threads().barrier();
    forward.run_wanted(batch, slice, thread);
  });
}

}  // namespace octavo
