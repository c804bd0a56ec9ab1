#include "row_groups.hpp"

#include <algorithm>
#include <limits>

namespace octavo {
namespace {

constexpr int64_t kMostSharing = 16;     // rows of a group: as many as one tile of attention may hold
constexpr int64_t kLeastShared = 512;    // tokens; fewer are read as fast row by row

}  // namespace

int64_t RowGroups::num_full(const BatchRow& row) const {
  if (row.num_tokens != 1 || row.context_len < std::max(kLeastShared, block_size_)) return 0;
  return row.block_table[0] < 0 ? 0 : row.context_len / block_size_;
}

bool RowGroups::any_share(const BatchRow* rows, int64_t count) {
  if (++call_ == 0) {
    std::fill(seen_.begin(), seen_.end(), 0);
    call_ = 1;
  }
  for (const BatchRow* row = rows; row < rows + count; ++row) {
    if (num_full(*row) == 0) continue;
    uint32_t& seen = seen_[static_cast<size_t>(row->block_table[0])];
    if (seen == call_) return true;
    seen = call_;
  }
  return false;
}

int64_t RowGroups::num_common(const BatchRow& a, const BatchRow& b) const {
  const int64_t most = std::min(num_full(a), num_full(b));
  const int32_t* differs = std::mismatch(a.block_table, a.block_table + most, b.block_table).first;
  const int64_t count = differs - a.block_table;
  return count * block_size_ < kLeastShared ? 0 : count;
}

void RowGroups::gather(BatchRow* rows, int64_t count) {
  if (!any_share(rows, count)) return;
  BatchRow* end = std::stable_partition(rows, rows + count,
                                        [&](const BatchRow& row) { return num_full(row) > 0; });
  std::stable_sort(rows, end, [&](const BatchRow& a, const BatchRow& b) {
    return std::lexicographical_compare(a.block_table, a.block_table + num_full(a), b.block_table,
                                        b.block_table + num_full(b));
  });
  const int64_t num_candidates = end - rows;
  choose(rows, num_candidates);
  for (int64_t last = num_candidates; last > 0; last = first_[static_cast<size_t>(last)]) {
    const int64_t first = first_[static_cast<size_t>(last)];
    if (first + 1 == last) continue;
    rows[first].num_sharing = static_cast<int32_t>(last - first);
    const auto least = std::min_element(common_.begin() + first + 1, common_.begin() + last);
    rows[first].shared_len = static_cast<int32_t>(*least * block_size_);
  }
}

// Groups are neighbours in the order of their tables. The best groups of the first rows end with some
// group, before which lie the best groups of fewer rows.
void RowGroups::choose(const BatchRow* rows, int64_t count) {
  common_.assign(static_cast<size_t>(count), 0);
  spared_.assign(static_cast<size_t>(count) + 1, 0);
  first_.assign(static_cast<size_t>(count) + 1, 0);
  for (int64_t i = 1; i < count; ++i) {
    common_[static_cast<size_t>(i)] = num_common(rows[i - 1], rows[i]);
  }
  for (int64_t end = 1; end <= count; ++end) {
    int64_t& best = spared_[static_cast<size_t>(end)];
    best = spared_[static_cast<size_t>(end) - 1];
    first_[static_cast<size_t>(end)] = end - 1;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int64_t first = end - 2; first >= std::max<int64_t>(0, end - kMostSharing); --first) {
      least = std::min(least, common_[static_cast<size_t>(first) + 1]);
      if (least == 0) break;
      const int64_t spared = spared_[static_cast<size_t>(first)] + (end - first - 1) * least;
      if (spared <= best) continue;
      best = spared;
      first_[static_cast<size_t>(end)] = first;
    }
  }
}

}  // namespace octavo
