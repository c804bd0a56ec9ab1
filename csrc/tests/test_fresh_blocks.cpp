// Checks of which blocks a step makes ready, outside Python:
//
//   g++ -std=c++17 -O2 csrc/tests/test_fresh_blocks.cpp csrc/fresh_blocks.cpp csrc/kv_pool.cpp \
//     csrc/memory.cpp -o test_fresh_blocks && ./test_fresh_blocks
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "../fresh_blocks.hpp"
#include "check.hpp"

namespace octavo::tests {
namespace {

constexpr int64_t kBlockSize = 16;
constexpr int64_t kLanes = 4;
constexpr int64_t kRows = 8;
constexpr int64_t kBlocks = 64;

KvPool new_pool() {
  return KvPool(KvType::F32, kBlocks, kBlockSize, std::vector<KvShape>(kLanes, {1, 8}), {});
}

int64_t lanes_of(const std::vector<FreshBlocks::Part>& parts) {
  return std::accumulate(parts.begin(), parts.end(), int64_t{0}, [](int64_t sum, const auto& part) {
    return sum + part.end - part.begin;
  });
}

// Rows that have prompts of one block, decode, and come to new blocks all at once.
struct Decoders {
  std::vector<std::vector<int32_t>> tables = std::vector<std::vector<int32_t>>(kRows);
  int64_t position = 0;
  int32_t next_block = 0;

  void step(FreshBlocks& fresh, int64_t num_tokens) {
    for (std::vector<int32_t>& table : tables) {
      const int64_t end = (position + num_tokens + kBlockSize - 1) / kBlockSize;
      while (static_cast<int64_t>(table.size()) < end) table.push_back(next_block++);
      fresh.add_row(table, position, num_tokens);
    }
    position += num_tokens;
  }
};

void blocks_are_ready_before_rows_come_to_them() {
  const KvPool pool = new_pool();
  FreshBlocks fresh(pool);
  Decoders rows;
  rows.step(fresh, kBlockSize);
  std::vector<int64_t> num_ready(kBlocks);
  for (int64_t step = 0; step < 3 * kBlockSize; ++step) {
    for (const FreshBlocks::Part& part : fresh.take()) {
      check(part.begin == num_ready[static_cast<size_t>(part.block)], "block %ld: a lane twice, or left out",
            static_cast<long>(part.block));
      num_ready[static_cast<size_t>(part.block)] = part.end;
    }
    const int32_t known = rows.next_block;
    rows.step(fresh, 1);
    for (int32_t block = known; block < rows.next_block; ++block) {
      check(num_ready[static_cast<size_t>(block)] == kLanes, "step %ld: block %d is not ready",
            static_cast<long>(step), block);
    }
  }
}

void no_step_takes_more_than_its_tokens_will_use() {
  const KvPool pool = new_pool();
  FreshBlocks fresh(pool);
  Decoders rows;
  rows.step(fresh, kBlockSize);
  fresh.take();
  for (int64_t step = 0; step < 3 * kBlockSize; ++step) {
    rows.step(fresh, 1);
    check(lanes_of(fresh.take()) <= kRows * kLanes / kBlockSize, "step %ld", static_cast<long>(step));
  }
}

void no_more_than_a_block_for_each_row_is_ahead() {
  const KvPool pool = new_pool();
  FreshBlocks fresh(pool);
  const std::vector<int32_t> table = {0, 1};
  int64_t num_lanes = 0;
  for (int64_t step = 0; step < 10 * kBlockSize; ++step) {
    fresh.add_row(table, kBlockSize, 1);
    num_lanes += lanes_of(fresh.take());
  }
  check(num_lanes == kLanes, "%ld lanes", static_cast<long>(num_lanes));
}

void blocks_of_a_prompt_that_it_will_come_to_are_made_ready_first() {
  const KvPool pool = new_pool();
  FreshBlocks fresh(pool);
  std::vector<int32_t> table(10);
  std::iota(table.begin(), table.end(), 20);
  fresh.add_row(table, 0, kBlockSize);
  const std::vector<FreshBlocks::Part> parts = fresh.take();
  check(parts.size() == 1 && parts[0].block == 21 && parts[0].end == kLanes, "%zu parts", parts.size());
}

void the_end_of_the_pool_is_the_end() {
  const KvPool pool = new_pool();
  FreshBlocks fresh(pool);
  fresh.add_row({kBlocks - 1}, 0, kBlockSize);
  check(fresh.take().empty(), "a block behind the last one");
}

void touching_a_block_changes_nothing_in_it() {
  const KvPool pool = new_pool();
  std::vector<uint8_t> written(static_cast<size_t>(pool.block_bytes()));
  std::iota(written.begin(), written.end(), uint8_t{1});
  pool.write_block(3, {0, pool.block_bytes()}, written.data());
  for (int64_t lane = 0; lane < pool.num_lanes(); ++lane) pool.touch(3, lane);
  std::vector<uint8_t> read(written.size());
  pool.read_block(3, {0, pool.block_bytes()}, read.data());
  check(read == written, "the block is another one");
}

}  // namespace
}  // namespace octavo::tests

int main() {
  using namespace octavo::tests;
  run("blocks are ready before rows come to them", blocks_are_ready_before_rows_come_to_them);
  run("no step takes more than its tokens will use", no_step_takes_more_than_its_tokens_will_use);
  run("no more than a block for each row is ahead", no_more_than_a_block_for_each_row_is_ahead);
  run("blocks of a prompt that it will come to are made ready first",
      blocks_of_a_prompt_that_it_will_come_to_are_made_ready_first);
  run("the end of the pool is the end", the_end_of_the_pool_is_the_end);
  run("touching a block changes nothing in it", touching_a_block_changes_nothing_in_it);
  return result();
}
