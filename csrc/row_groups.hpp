// Which rows of a step share a prefix, so that attention reads it once for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "batch.hpp"

namespace octavo {

class RowGroups {
 public:
  RowGroups(int64_t num_blocks, int64_t block_size)
      : block_size_(block_size), seen_(static_cast<size_t>(num_blocks), 0) {}

  // Puts rows of one token whose block tables begin with the same blocks side by side, and notes on the
  // first of each group how many rows and tokens they share. The groups are those that spare the most
  // reading; other rows keep their order behind them. The rows belong to one KV group, and sharing is
  // noted on none of them. Takes a look at each row where none share.
  void gather(BatchRow* rows, int64_t count);

 private:
  // Blocks of a row that were full before this step and may be shared.
  int64_t num_full(const BatchRow& row) const;
  bool any_share(const BatchRow* rows, int64_t count);
  int64_t num_common(const BatchRow& a, const BatchRow& b) const;
  void choose(const BatchRow* rows, int64_t count);

  const int64_t block_size_;
  std::vector<uint32_t> seen_;    // by block: the call that last saw a row begin with it
  uint32_t call_ = 0;
  std::vector<int64_t> common_;   // blocks that a row shares with the row before it
  std::vector<int64_t> spared_;   // blocks that the best groups of the first rows spare
  std::vector<int64_t> first_;    // of the last of those groups
};

}  // namespace octavo
