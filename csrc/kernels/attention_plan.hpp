// Who computes what of an attention op.
//
// The work is a list of *units*, the same for every thread: for each row of the batch, for each KV head
// (or part of its query heads), for each tile of consecutive tokens. A unit walks its keys in chunks of
// kChunk at absolute positions. The list is cut into equal parts by estimated cost, one for each thread.
// A cut may lie between two chunks of a unit: such a unit is *split*, each of its chunks leaves a partial
// result in memory, and attention_merge puts them together. Nothing is shared while this is found out;
// all threads walk the same list.
//
// The cuts decide who computes, never what: chunks and the order in which they are merged are fixed.
#pragma once

#include <cstdint>

#include "../simd/vec.hpp"
#include "table.hpp"

namespace octavo {

constexpr int64_t kChunk = 256;        // keys
constexpr int64_t kTileRows = 48;      // most query vectors (tokens x heads) of a unit
constexpr int64_t kTileFloats = kMostHeadDim;  // most floats of a unit's queries
constexpr int64_t kSplitRows = 128;    // most query vectors of all split units, or those of one token

namespace {

OCTAVO_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
OCTAVO_INLINE int64_t greatest(int64_t a, int64_t b) { return a > b ? a : b; }
OCTAVO_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Keys [begin, end), absolute positions.
struct KeyRange {
  int64_t begin, end;
  OCTAVO_INLINE int64_t first_chunk() const { return begin / kChunk; }
  OCTAVO_INLINE int64_t end_chunk() const { return ceil_div(end, kChunk); }
};

OCTAVO_INLINE KeyRange overlap(KeyRange a, KeyRange b) {
  return {greatest(a.begin, b.begin), least(a.end, b.end)};
}

// The keys that the query at `position` of `row` sees.
OCTAVO_INLINE KeyRange visible_keys(const AttentionArgs& args, const BatchRow& row, int64_t position) {
  const int64_t window = args.window;
  if (args.is_chunked) return {position / window * window, position + 1};
  const int64_t begin = window > 0 ? greatest(position - window + 1, 0) : 0;
  if (args.is_causal) return {begin, position + 1};
  const int64_t end = int64_t{row.context_len} + row.num_tokens;
  return {begin, window > 0 ? least(position + window, end) : end};
}

// The part of `keys` in `chunk`, counted from its beginning; may be empty.
OCTAVO_INLINE KeyRange in_chunk(KeyRange keys, int64_t chunk) {
  return {greatest(keys.begin - chunk * kChunk, 0), least(keys.end - chunk * kChunk, kChunk)};
}

// Some query heads of one KV head for some consecutive tokens of one row of the batch.
struct AttentionUnit {
  const BatchRow* row;
  int64_t kv_head;
  int64_t first_head, num_heads;
  int64_t first_token, num_tokens;  // indices into the step's tokens
  int64_t first_position;           // of the first token
  KeyRange keys;                    // of all its tokens together

  OCTAVO_INLINE int64_t num_rows() const { return num_heads * num_tokens; }
  OCTAVO_INLINE int64_t num_chunks() const { return keys.end_chunk() - keys.first_chunk(); }
};

// A unit and the chunks of it that fall to the asking thread.
struct AttentionShare {
  AttentionUnit unit;
  int64_t begin_chunk, end_chunk;  // may be empty
  bool is_split;
  int64_t partials;         // of a split unit: offset of its first partial result
  int64_t first_split_row;  // of a split unit: query vectors of the split units before it
};

OCTAVO_INLINE int64_t most_split_rows(int64_t num_heads) { return greatest(kSplitRows, num_heads); }

// Floats of the partial result of one chunk for one query vector: maximum, sum, output.
OCTAVO_INLINE int64_t partial_row_floats(int64_t head_dim) { return head_dim + 2; }

class AttentionPlan {
 public:
  OCTAVO_INLINE AttentionPlan(const AttentionArgs& args, int thread, int num_threads)
      : args_(args), num_threads_(num_threads) {
    const int64_t group = args.num_heads / args.kv.num_kv_heads;
    const int64_t most_rows = greatest(least(kTileFloats / args.kv.head_dim, kTileRows), 1);
    group_ = group;
    part_heads_ = ceil_div(group, ceil_div(group, most_rows));
    group_parts_ = ceil_div(group, part_heads_);
    tile_tokens_ = greatest(most_rows / part_heads_, 1);
    total_cost_ = 0;
    for (int64_t r = 0; r < args.batch->num_rows; ++r) total_cost_ += row_cost(args.batch->rows[r]);
    own_begin_ = boundary(thread);
    own_end_ = boundary(thread + 1);
  }

  // Calls visit(AttentionShare) for every unit of which this thread has chunks and every split unit.
  template <class Visit>
  OCTAVO_INLINE void each_share(Visit visit) const {
    Walk walk{0, 1, 0, 0};
    for (int64_t r = 0; r < args_.batch->num_rows; ++r) {
      const BatchRow& row = args_.batch->rows[r];
      const int64_t end = walk.cost + row_cost(row);
      pass_boundaries(walk);
      const bool is_cut = walk.next_boundary < num_threads_ && boundary(walk.next_boundary) < end;
      const bool is_own = own_begin_ < end && walk.cost < own_end_;
      if (is_cut || is_own) {
        for (int64_t part = 0; part < args_.kv.num_kv_heads * group_parts_; ++part) {
          for (int64_t tile = 0; tile * tile_tokens_ < row.num_tokens; ++tile) {
            visit_unit(unit_at(row, part, tile), walk, visit);
          }
        }
      }
      walk.cost = end;
    }
  }

 private:
  // What is known of the units before the current one.
  struct Walk {
    int64_t cost;
    int next_boundary;  // the first thread whose part begins after `cost`
    int64_t partials;   // floats taken by split units
    int64_t split_rows;
  };

  // Where the part of `thread` begins, in units of cost.
  OCTAVO_INLINE int64_t boundary(int64_t thread) const { return total_cost_ * thread / num_threads_; }

  OCTAVO_INLINE int64_t num_parts() const { return args_.kv.num_kv_heads * group_parts_; }

  OCTAVO_INLINE AttentionUnit unit_at(const BatchRow& row, int64_t part, int64_t tile) const {
    AttentionUnit unit;
    const int64_t head_in_group = part % group_parts_ * part_heads_;
    const int64_t token = tile * tile_tokens_;
    unit.row = &row;
    unit.kv_head = part / group_parts_;
    unit.first_head = unit.kv_head * group_ + head_in_group;
    unit.num_heads = least(part_heads_, group_ - head_in_group);
    unit.first_token = row.first_token + token;
    unit.num_tokens = least(tile_tokens_, row.num_tokens - token);
    unit.first_position = row.context_len + token;
    const int64_t last_position = unit.first_position + unit.num_tokens - 1;
    unit.keys.begin = visible_keys(args_, row, unit.first_position).begin;
    unit.keys.end = visible_keys(args_, row, last_position).end;
    return unit;
  }

  // Time of one key in units of the time of one query vector: bringing a key from memory costs about as
  // much as multiplying it with six queries.
  OCTAVO_INLINE static int64_t cost_per_key(const AttentionUnit& unit) { return unit.num_rows() + 6; }

  OCTAVO_INLINE static int64_t cost(const AttentionUnit& unit) {
    return (unit.keys.end - unit.keys.begin) * cost_per_key(unit);
  }

  OCTAVO_INLINE int64_t row_cost(const BatchRow& row) const {
    int64_t sum = 0;
    for (int64_t part = 0; part < group_parts_; ++part) {
      for (int64_t tile = 0; tile * tile_tokens_ < row.num_tokens; ++tile) {
        sum += cost(unit_at(row, part, tile));
      }
    }
    return sum * args_.kv.num_kv_heads;
  }

  OCTAVO_INLINE void pass_boundaries(Walk& walk) const {
    while (walk.next_boundary < num_threads_ && boundary(walk.next_boundary) <= walk.cost) {
      ++walk.next_boundary;
    }
  }

  // The chunk of `unit` before which the cut at cost `target` is made; `begin` is the cost before the
  // unit. A unit that may not be split goes to one side whole.
  OCTAVO_INLINE static int64_t cut(const AttentionUnit& unit, int64_t begin, int64_t target,
                                   bool may_split) {
    const int64_t offset = target - begin;
    if (offset <= 0) return unit.keys.first_chunk();
    if (offset >= cost(unit)) return unit.keys.end_chunk();
    if (!may_split) return 2 * offset < cost(unit) ? unit.keys.first_chunk() : unit.keys.end_chunk();
    const int64_t key = unit.keys.begin + offset / cost_per_key(unit);
    const int64_t chunk = key / kChunk;
    const int64_t before = greatest(chunk * kChunk, unit.keys.begin);
    const int64_t after = least((chunk + 1) * kChunk, unit.keys.end);
    return key - before < after - key ? chunk : chunk + 1;
  }

  template <class Visit>
  OCTAVO_INLINE void visit_unit(const AttentionUnit& unit, Walk& walk, Visit visit) const {
    const int64_t end = walk.cost + cost(unit);
    const bool may_split =
        walk.split_rows + unit.num_rows() <= most_split_rows(args_.num_heads);
    pass_boundaries(walk);
    bool is_split = false;
    for (int t = walk.next_boundary; t < num_threads_ && boundary(t) < end; ++t) {
      const int64_t chunk = cut(unit, walk.cost, boundary(t), may_split);
      is_split |= unit.keys.first_chunk() < chunk && chunk < unit.keys.end_chunk();
    }
    const AttentionShare share{unit,
                               cut(unit, walk.cost, own_begin_, may_split),
                               cut(unit, walk.cost, own_end_, may_split),
                               is_split,
                               walk.partials,
                               walk.split_rows};
    if (is_split || share.begin_chunk < share.end_chunk) visit(share);
    if (is_split) {
      walk.split_rows += unit.num_rows();
      walk.partials += unit.num_rows() * unit.num_chunks() * partial_row_floats(args_.kv.head_dim);
    }
    walk.cost = end;
  }

  const AttentionArgs& args_;
  const int num_threads_;
  int64_t group_;        // query heads of a KV head
  int64_t group_parts_;  // parts into which a group is cut, 1 unless it is very large
  int64_t part_heads_;
  int64_t tile_tokens_;
  int64_t total_cost_;
  int64_t own_begin_, own_end_;
};

}  // namespace
}  // namespace octavo
