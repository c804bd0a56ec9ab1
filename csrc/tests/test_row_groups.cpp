// Checks of RowGroups: what it calls shared is shared, it spares as much reading as any groups of
// neighbours do, and rows that share nothing stay as they are.
//
//   g++ -std=c++17 -O2 -Icsrc csrc/tests/test_row_groups.cpp csrc/row_groups.cpp
#include <algorithm>
#include <vector>

#include "../row_groups.hpp"
#include "check.hpp"

using namespace octavo;
using namespace octavo::tests;

namespace {

constexpr int64_t kBlockSize = 256;

// Rows and the tables that they point to.
struct Batch {
  std::vector<std::vector<int32_t>> tables;
  std::vector<BatchRow> rows;

  void add(std::vector<int32_t> table, int32_t num_tokens = 1) {
    tables.push_back(std::move(table));
    const auto covered = static_cast<int32_t>(tables.back().size() * kBlockSize);
    rows.push_back({static_cast<int32_t>(rows.size()), num_tokens, covered - num_tokens, nullptr});
  }
  void gather(RowGroups& groups) {
    for (BatchRow& row : rows) row.block_table = tables[static_cast<size_t>(row.first_token)].data();
    groups.gather(rows.data(), static_cast<int64_t>(rows.size()));
  }
  int64_t spared() const {
    int64_t tokens = 0;
    for (const BatchRow& row : rows) tokens += int64_t{row.num_sharing - 1} * row.shared_len;
    return tokens;
  }
};

// Blocks first, first + 1, ...
std::vector<int32_t> blocks(int32_t first, int32_t count) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < count; ++i) ids.push_back(first + i);
  return ids;
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Every group is of rows that hold the same blocks, full before the step; all rows are there once.
void check_groups(const Batch& batch) {
  std::vector<bool> found(batch.rows.size(), false);
  for (size_t first = 0; first < batch.rows.size(); ++first) {
    const BatchRow& head = batch.rows[first];
    found[static_cast<size_t>(head.first_token)] = true;
    check((head.num_sharing > 1) == (head.shared_len > 0), "a group of %d rows shares %d tokens",
          head.num_sharing, head.shared_len);
    for (int32_t i = 0; i < head.num_sharing && head.num_sharing > 1; ++i) {
      const BatchRow& row = batch.rows[first + static_cast<size_t>(i)];
      check(row.num_tokens == 1 && row.context_len >= head.shared_len, "row %d cannot share",
            row.first_token);
      check(i == 0 || row.num_sharing == 1, "a group inside a group%s", "");
      check(std::equal(row.block_table, row.block_table + head.shared_len / kBlockSize, head.block_table),
            "row %d does not share", row.first_token);
    }
  }
  check(std::all_of(found.begin(), found.end(), [](bool is) { return is; }), "a row is lost%s", "");
}

void check_random() {
  Random random(1);
  RowGroups groups(100000, kBlockSize);
  for (int round = 0; round < 300; ++round) {
    Batch batch;
    int32_t next = 0;
    const auto fresh = [&](int64_t count) {
      next += static_cast<int32_t>(count);
      return blocks(next - static_cast<int32_t>(count), static_cast<int32_t>(count));
    };
    for (int64_t row = random.between(1, 40); row > 0; --row) {
      std::vector<int32_t> table;
      if (!batch.tables.empty() && random.below(3) > 0) {
        const auto& other = batch.tables[static_cast<size_t>(
            random.below(static_cast<int64_t>(batch.tables.size())))];
        table = {other.begin(), other.begin() + random.between(0, static_cast<int64_t>(other.size()))};
      }
      batch.add(joined(table, fresh(random.between(1, 9))), random.below(5) == 0 ? 3 : 1);
    }
    batch.gather(groups);
    check_groups(batch);
  }
}

void check_families() {
  RowGroups groups(100000, kBlockSize);
  Batch batch;
  for (int32_t i = 0; i < 24; ++i) {  // three families behind one system prompt, taking turns
    const std::vector<int32_t> family = joined(blocks(0, 4), blocks(100 + 100 * (i % 3), 10));
    batch.add(joined(family, blocks(1000 + 10 * i, 2)));
  }
  batch.gather(groups);
  check_groups(batch);
  check(batch.spared() == 3 * 7 * 14 * kBlockSize, "%ld tokens spared", static_cast<long>(batch.spared()));
}

void check_unshared() {
  RowGroups groups(100000, kBlockSize);
  Batch batch;
  for (int32_t i = 8; i > 0; --i) batch.add(blocks(100 * i, 5));
  batch.add(joined(blocks(100, 5), blocks(3000, 2)), 2);  // several tokens: a prompt
  batch.add({-1, -1, 3, 4, 5});                           // a window has passed
  batch.add({-1, -1, 3, 4, 5});
  batch.gather(groups);
  check_groups(batch);
  check(batch.spared() == 0, "%ld tokens spared", static_cast<long>(batch.spared()));
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    check(batch.rows[i].first_token == static_cast<int32_t>(i), "row %zu was moved", i);
  }
}

}  // namespace

int main() {
  run("rows of a group share what they are said to share", check_random);
  run("families inside families are read once each", check_families);
  run("rows that share nothing keep their places", check_unshared);
  return result();
}
