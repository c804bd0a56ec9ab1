// The blocks that a step moves before it computes: between pool and host slots, and within the pool.

#include <algorithm>
#include <stdexcept>
#include <string>

#include "session.hpp"

namespace octavo {
namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::invalid_argument(what);
}

}  // namespace

void Session::check_moves(const StepInput& input) const {
  require(input.swap_out_from.size() == input.swap_out_to.size(),
          "swap_out_from and swap_out_to must be equally long");
  require(input.swap_in_from.size() == input.swap_in_to.size(),
          "swap_in_from and swap_in_to must be equally long");
  require(input.copy_from.size() == input.copy_to.size(),
          "copy_from and copy_to must be equally long");
  for (const std::vector<int32_t>* blocks :
       {&input.swap_out_from, &input.swap_in_to, &input.copy_from, &input.copy_to}) {
    for (const int32_t block_id : *blocks) rows_.check_block(block_id);
  }
  const int64_t num_slots = host_ == nullptr ? 0 : host_->num_slots();
  for (const std::vector<int32_t>* slots : {&input.swap_out_to, &input.swap_in_from}) {
    for (const int32_t slot : *slots) {
      require(slot >= 0 && slot < num_slots, "host slot " + std::to_string(slot) + ": there are " +
                                                 std::to_string(num_slots) + " slots");
    }
  }
}

// A move may read what an earlier one wrote, so every thread makes all moves in plan order, each thread
// for bytes of its own: the same ones of every block.
Share Session::own_part_of_blocks(int thread) const {
  constexpr int64_t kLine = 64;
  const int64_t bytes = forward_->kv().block_bytes();
  const Share lines =
      share_of((bytes + kLine - 1) / kLine, thread, forward_->threads().num_threads());
  return {lines.begin * kLine, std::min(lines.end * kLine, bytes)};
}

void Session::swap_blocks(const StepInput& input, const Share& part) const {
  const KvPool& kv = forward_->kv();
  for (size_t i = 0; i < input.swap_out_from.size(); ++i) {
    kv.read_block(input.swap_out_from[i], part, host_->slot(input.swap_out_to[i]));
  }
  for (size_t i = 0; i < input.swap_in_from.size(); ++i) {
    kv.write_block(input.swap_in_to[i], part, host_->slot(input.swap_in_from[i]));
  }
}

void Session::copy_blocks(const StepInput& input, const Share& part) const {
  for (size_t i = 0; i < input.copy_from.size(); ++i) {
    forward_->kv().copy_block(input.copy_from[i], input.copy_to[i], part);
  }
}

// Lanes of every part in turns: parts are few, and most are whole blocks.
void Session::touch_blocks(const std::vector<FreshBlocks::Part>& parts, int thread) const {
  const KvPool& kv = forward_->kv();
  const int num_threads = forward_->threads().num_threads();
  for (const FreshBlocks::Part& part : parts) {
    for (int64_t lane = part.begin + thread; lane < part.end; lane += num_threads) {
      kv.touch(part.block, lane);
    }
  }
}

}  // namespace octavo
