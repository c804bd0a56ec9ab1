// A batch that somebody wrote down by hand, for eager runs and tests: checked, then run without a session.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "forward.hpp"

namespace octavo {

// (first_token, num_tokens, context_len, block_ids)
using HandRow = std::tuple<int32_t, int32_t, int32_t, std::vector<int32_t>>;

// The arrays of StepBatch. `segments` and `wanted_first` may be empty.
struct HandBatch {
  std::vector<int32_t> token_ids, positions;
  std::vector<HandRow> rows;
  std::vector<int32_t> wanted, segments, wanted_first;
};

// All operations of the program over the batch; nothing is sampled. Throws std::invalid_argument when
// the batch contradicts itself or does not fit the program.
void run_by_hand(Forward& forward, const HandBatch& hand);

}  // namespace octavo
