// Who computes what of an attention op.
//
// The work is a list of *units*, the same for every thread: for each row of the batch, for each KV head
// (or part of its query heads), for each tile of consecutive tokens. A unit walks its keys in chunks of
// kChunk at absolute positions. Rows that share a prefix are one unit, whose tokens are theirs: first the
// chunks in which they share keys, for all of them together, then those that are left, row by row. What is
// computed together is a *task*. The list is cut into equal parts by estimated cost, one for each thread.
// A cut may lie between two tasks of a unit: such a unit is *split*, each chunk of each of its tokens
// leaves a partial result in memory, and attention_merge puts them together. Nothing is shared while this
// is found out; all threads walk the same list.
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

// Some tokens of a unit over one chunk.
struct AttentionTask {
  int64_t chunk;
  int64_t first_token, end_token;
  OCTAVO_INLINE int64_t num_tokens() const { return end_token - first_token; }
};

// Some query heads of one KV head for some tokens: consecutive ones of one row of the batch, or the only
// ones of several rows that share their first keys.
struct AttentionUnit {
  const BatchRow* rows;
  int64_t kv_head;
  int64_t first_head, num_heads;
  int64_t tile_token;  // the first token, counted from that of the row
  int64_t num_tokens;
  KeyRange keys;       // of all its tokens together
  int64_t shared_len;  // keys that several rows share; 0: there is one row

  OCTAVO_INLINE bool is_shared() const { return shared_len > 0; }
  OCTAVO_INLINE int64_t num_rows() const { return num_heads * num_tokens; }
  OCTAVO_INLINE int64_t num_chunks() const { return keys.end_chunk() - keys.first_chunk(); }

  OCTAVO_INLINE const BatchRow& row_of(int64_t token) const { return is_shared() ? rows[token] : *rows; }
  // Its index into the step's tokens.
  OCTAVO_INLINE int64_t index_of(int64_t token) const {
    return is_shared() ? rows[token].first_token : rows->first_token + tile_token + token;
  }
  OCTAVO_INLINE int64_t position_of(int64_t token) const {
    return is_shared() ? rows[token].context_len : rows->context_len + tile_token + token;
  }

  // Chunks that all tokens take together; the last of them may hold keys that are not shared.
  OCTAVO_INLINE int64_t num_joint() const {
    return is_shared() ? ceil_div(shared_len, kChunk) : num_chunks();
  }
  // Of rows that share keys: the chunks that are left to one of them.
  OCTAVO_INLINE int64_t num_own(int64_t token) const {
    return position_of(token) / kChunk + 1 - num_joint();
  }
  OCTAVO_INLINE int64_t num_tasks() const {
    int64_t count = num_joint();
    for (int64_t token = 0; is_shared() && token < num_tokens; ++token) count += num_own(token);
    return count;
  }
  OCTAVO_INLINE AttentionTask task(int64_t index) const {
    const int64_t joint = num_joint();
    if (index < joint) return {keys.first_chunk() + index, 0, num_tokens};
    int64_t token = 0;
    for (index -= joint; index >= num_own(token); ++token) index -= num_own(token);
    return {joint + index, token, token + 1};
  }
};

// A unit and the tasks of it that fall to the asking thread.
struct AttentionShare {
  AttentionUnit unit;
  int64_t begin, end;  // may be empty
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
    each_group([&](const BatchRow& first, int64_t num_rows) {
      total_cost_ += group_cost(first, num_rows);
    });
    own_begin_ = boundary(thread);
    own_end_ = boundary(thread + 1);
  }

  // Calls visit(AttentionShare) for every unit of which this thread has chunks and every split unit.
  template <class Visit>
  OCTAVO_INLINE void each_share(Visit visit) const {
    Walk walk{0, 1, 0, 0};
    each_group([&](const BatchRow& first, int64_t num_rows) {
      const int64_t end = walk.cost + group_cost(first, num_rows);
      pass_boundaries(walk);
      const bool is_cut = walk.next_boundary < num_threads_ && boundary(walk.next_boundary) < end;
      const bool is_own = own_begin_ < end && walk.cost < own_end_;
      if (is_cut || is_own) {
        for (int64_t part = 0; part < num_parts(); ++part) {
          each_unit(first, num_rows, part, [&](const AttentionUnit& unit) {
            visit_unit(unit, walk, visit);
          });
        }
      }
      walk.cost = end;
    });
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

  // Calls visit(first, num_rows) for each row, or for rows that share keys which they all see.
  template <class Visit>
  OCTAVO_INLINE void each_group(Visit visit) const {
    const BatchRow* row = args_.batch->rows;
    const BatchRow* end = row + args_.batch->num_rows;
    while (row < end) {
      const int64_t num_rows = sees_shared(row) ? row->num_sharing : 1;
      visit(*row, num_rows);
      row += num_rows;
    }
  }

  // Whether all rows that share with `first` see what they share: no window has passed it.
  OCTAVO_INLINE bool sees_shared(const BatchRow* first) const {
    if (first->num_sharing == 1 || tile_tokens_ == 1) return false;
    for (const BatchRow* row = first; row < first + first->num_sharing; ++row) {
      if (visible_keys(args_, *row, row->context_len).begin > 0) return false;
    }
    return true;
  }

  // Calls visit(unit) for the tiles of one part of the heads.
  template <class Visit>
  OCTAVO_INLINE void each_unit(const BatchRow& first, int64_t num_rows, int64_t part, Visit visit) const {
    const int64_t num_tokens = num_rows > 1 ? num_rows : first.num_tokens;
    const int64_t step = num_rows > 1 ? tile_rows(first, num_rows) : tile_tokens_;
    AttentionUnit unit;
    const int64_t head_in_group = part % group_parts_ * part_heads_;
    unit.kv_head = part / group_parts_;
    unit.first_head = unit.kv_head * group_ + head_in_group;
    unit.num_heads = least(part_heads_, group_ - head_in_group);
    for (int64_t token = 0; token < num_tokens; token += step) {
      unit.rows = num_rows > 1 ? &first + token : &first;
      unit.tile_token = num_rows > 1 ? 0 : token;
      unit.num_tokens = least(step, num_tokens - token);
      unit.shared_len = num_rows > 1 ? first.shared_len : 0;
      set_keys(unit);
      visit(unit);
    }
  }

  // Rows of a unit of rows that share keys: the same for all units, and so few that there are enough tasks
  // for the threads that such a part of the step's rows would occupy.
  OCTAVO_INLINE int64_t tile_rows(const BatchRow& first, int64_t num_rows) const {
    const int64_t tasks_of_tile = num_parts() * ceil_div(first.shared_len, kChunk);
    const int64_t wanted = ceil_div(num_threads_ * num_rows, args_.batch->num_rows * tasks_of_tile);
    const int64_t num_tiles = greatest(ceil_div(num_rows, tile_tokens_), wanted);
    return ceil_div(num_rows, least(num_tiles, num_rows));
  }

  OCTAVO_INLINE void set_keys(AttentionUnit& unit) const {
    const int64_t last = unit.num_tokens - 1;
    unit.keys.begin = visible_keys(args_, *unit.rows, unit.position_of(0)).begin;
    unit.keys.end = visible_keys(args_, *unit.rows, unit.position_of(last)).end;
    for (int64_t token = 0; unit.is_shared() && token < last; ++token) {
      unit.keys.end = greatest(unit.keys.end, unit.position_of(token) + 1);
    }
  }

  // Time of one key in units of the time of one query vector: bringing a key from memory costs about as
  // much as multiplying it with six queries.
  OCTAVO_INLINE static int64_t cost_per_key(const AttentionUnit& unit) { return unit.num_rows() + 6; }

  // Of one key for one token alone.
  OCTAVO_INLINE static int64_t own_cost_per_key(const AttentionUnit& unit) { return unit.num_heads + 6; }

  // Of the tasks that all tokens take together.
  OCTAVO_INLINE static int64_t joint_cost(const AttentionUnit& unit) {
    if (!unit.is_shared()) return (unit.keys.end - unit.keys.begin) * cost_per_key(unit);
    int64_t own_keys = 0;
    for (int64_t token = 0; token < unit.num_tokens; ++token) {
      own_keys += least(unit.position_of(token) + 1, unit.num_joint() * kChunk) - unit.shared_len;
    }
    return unit.shared_len * cost_per_key(unit) + own_keys * own_cost_per_key(unit);
  }

  // Of the tasks that are left to one of several rows.
  OCTAVO_INLINE static int64_t own_cost(const AttentionUnit& unit, int64_t token) {
    const int64_t keys = unit.position_of(token) + 1 - unit.num_joint() * kChunk;
    return greatest(keys, 0) * own_cost_per_key(unit);
  }

  OCTAVO_INLINE static int64_t cost(const AttentionUnit& unit) {
    int64_t sum = joint_cost(unit);
    for (int64_t token = 0; unit.is_shared() && token < unit.num_tokens; ++token) {
      sum += own_cost(unit, token);
    }
    return sum;
  }

  OCTAVO_INLINE int64_t group_cost(const BatchRow& first, int64_t num_rows) const {
    int64_t sum = 0;
    for (int64_t part = 0; part < group_parts_; ++part) {
      each_unit(first, num_rows, part, [&](const AttentionUnit& unit) { sum += cost(unit); });
    }
    return sum * args_.kv.num_kv_heads;
  }

  OCTAVO_INLINE void pass_boundaries(Walk& walk) const {
    while (walk.next_boundary < num_threads_ && boundary(walk.next_boundary) <= walk.cost) {
      ++walk.next_boundary;
    }
  }

  // The task of `unit` before which the cut at cost `target` is made; `begin` is the cost before the
  // unit. A unit that may not be split goes to one side whole.
  OCTAVO_INLINE static int64_t cut(const AttentionUnit& unit, int64_t begin, int64_t target,
                                   bool may_split) {
    int64_t offset = target - begin;
    if (offset <= 0) return 0;
    if (offset >= cost(unit)) return unit.num_tasks();
    if (!may_split) return 2 * offset < cost(unit) ? 0 : unit.num_tasks();
    if (!unit.is_shared()) return nearest_chunk(unit.keys, offset / cost_per_key(unit));
    const int64_t joint = joint_cost(unit);
    if (offset < joint) return (offset * unit.num_joint() + joint / 2) / joint;
    offset -= joint;
    int64_t task = unit.num_joint();
    for (int64_t token = 0; token < unit.num_tokens; ++token) {
      const int64_t own = own_cost(unit, token);
      const KeyRange keys{unit.num_joint() * kChunk, unit.position_of(token) + 1};
      if (offset < own) return task + nearest_chunk(keys, offset / own_cost_per_key(unit));
      offset -= own;
      task += unit.num_own(token);
    }
    return task;
  }

  // The border between chunks that is nearest to a key, counted from the first of `keys`.
  OCTAVO_INLINE static int64_t nearest_chunk(KeyRange keys, int64_t offset) {
    const int64_t key = keys.begin + offset;
    const int64_t chunk = key / kChunk;
    const int64_t before = greatest(chunk * kChunk, keys.begin);
    const int64_t after = least((chunk + 1) * kChunk, keys.end);
    return (key - before < after - key ? chunk : chunk + 1) - keys.first_chunk();
  }

  template <class Visit>
  OCTAVO_INLINE void visit_unit(const AttentionUnit& unit, Walk& walk, Visit visit) const {
    const int64_t end = walk.cost + cost(unit);
    const bool may_split =
        walk.split_rows + unit.num_rows() <= most_split_rows(args_.num_heads);
    pass_boundaries(walk);
    bool is_split = false;
    for (int t = walk.next_boundary; t < num_threads_ && boundary(t) < end; ++t) {
      const int64_t task = cut(unit, walk.cost, boundary(t), may_split);
      is_split |= 0 < task && task < unit.num_tasks();
    }
    const AttentionShare share{unit,
                               cut(unit, walk.cost, own_begin_, may_split),
                               cut(unit, walk.cost, own_end_, may_split),
                               is_split,
                               walk.partials,
                               walk.split_rows};
    if (is_split || share.begin < share.end) visit(share);
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
