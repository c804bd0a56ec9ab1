#include "fresh_blocks.hpp"

#include <algorithm>

namespace octavo {
namespace {

int64_t blocks_of(int64_t num_tokens, int64_t block_size) {
  return (num_tokens + block_size - 1) / block_size;
}

}  // namespace

FreshBlocks::FreshBlocks(const KvPool& kv)
    : block_size_(kv.block_size()),
      num_lanes_(static_cast<int32_t>(kv.num_lanes())),
      num_ready_(static_cast<size_t>(kv.num_blocks())) {}

void FreshBlocks::add_row(const std::vector<int32_t>& table, int64_t first, int64_t num_tokens) {
  const int64_t end_written = blocks_of(first + num_tokens, block_size_);
  const int64_t end_next = end_written + blocks_of(num_tokens, block_size_);
  for (size_t place = static_cast<size_t>(first / block_size_); place < table.size(); ++place) {
    const int64_t block = table[place];
    end_listed_ = std::max(end_listed_, block + 1);
    if (static_cast<int64_t>(place) < end_written) num_ready_[static_cast<size_t>(block)] = num_lanes_;
    else if (static_cast<int64_t>(place) < end_next) next_.push_back(block);
  }
  ++num_rows_;
  num_tokens_ += num_tokens;
}

const std::vector<FreshBlocks::Part>& FreshBlocks::take() {
  parts_.clear();
  lanes_left_ = blocks_of(num_tokens_ * num_lanes_, block_size_);
  for (const int64_t block : next_) touch(block);
  // The cache gives out blocks that were in no table by their numbers.
  const int64_t end_ahead = std::min(end_listed_ + num_rows_, static_cast<int64_t>(num_ready_.size()));
  for (int64_t block = end_listed_; block < end_ahead; ++block) touch(block);
  next_.clear();
  num_rows_ = num_tokens_ = 0;
  return parts_;
}

void FreshBlocks::touch(int64_t block) {
  int32_t& num_ready = num_ready_[static_cast<size_t>(block)];
  const int64_t num_now = std::min<int64_t>(num_lanes_ - num_ready, lanes_left_);
  if (num_now == 0) return;
  parts_.push_back({block, num_ready, num_ready + num_now});
  num_ready += static_cast<int32_t>(num_now);
  lanes_left_ -= num_now;
}

}  // namespace octavo
