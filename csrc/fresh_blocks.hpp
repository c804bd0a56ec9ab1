// Blocks of the KV pool that nobody has written yet, and which of them a step makes ready.
//
// The system gives a page when it is first written, which takes many microseconds, and a block of a model
// has hundreds of pages. Rows that decode side by side come to new blocks in the same step, which would
// then take half as long again. So each step touches as much memory as its own tokens will use up, ahead
// of the rows: the cost is the same, and no step bears that of many.
#pragma once

#include <cstdint>
#include <vector>

#include "kv_pool.hpp"

namespace octavo {

class FreshBlocks {
 public:
  // Parts of one block to touch: the lanes [begin, end).
  struct Part {
    int64_t block, begin, end;
  };

  explicit FreshBlocks(const KvPool& kv);

  // For each row of a step: `table` is one of its block tables, and it writes `num_tokens` tokens from
  // position `first` on.
  void add_row(const std::vector<int32_t>& table, int64_t first, int64_t num_tokens);

  // What the step that was told of its rows should touch. At most one block for each of its rows, and
  // those of as many tokens as it has, are ahead of the rows.
  const std::vector<Part>& take();

 private:
  void touch(int64_t block);

  int64_t block_size_;
  int32_t num_lanes_;
  std::vector<int32_t> num_ready_;  // by block: how many of its lanes, from the first on, are ready
  int64_t end_listed_ = 0;          // blocks from here on were in no table yet
  // The step in progress.
  std::vector<int64_t> next_;       // blocks of tables that rows will come to
  int64_t num_rows_ = 0, num_tokens_ = 0;
  int64_t lanes_left_ = 0;
  std::vector<Part> parts_;
};

}  // namespace octavo
