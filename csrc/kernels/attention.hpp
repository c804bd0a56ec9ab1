// Attention over the paged cache, causal unless the op says otherwise: a tile of query vectors walks its keys chunk by chunk.
//
// attention_plan.hpp says who computes which chunks of which tile, attention_chunk.hpp how one chunk is
// computed for one token; this file walks tiles and chunks and merges them (online softmax, Milakov and
// Gimelshein 2018). A query's result is the merge, in order of position, of its chunks. Query vectors, of
// all heads of a KV head and of neighbouring tokens or of rows with a common prefix, are computed side by
// side, so that a key is read once for all of them; for many tokens, keys and values are also widened to
// float32 once.
#pragma once

#include <cstdint>

#include "attention_chunk.hpp"
#include "attention_plan.hpp"
#include "kv_stored.hpp"
#include "table.hpp"

namespace octavo {

// Calls visit(Count<n>{}, i) for consecutive pieces of [first, end) of n <= kMostQueries queries.
template <class Visit>
OCTAVO_INLINE void each_piece(int64_t first, int64_t end, Visit visit) {
  const int64_t num_queries = end - first;
  int64_t piece = num_queries;
  if (piece > kMostQueries) piece = ceil_div(num_queries, ceil_div(num_queries, kMostQueries));
  for (int64_t i = first; i < end; i += piece) {
    switch (least(piece, end - i)) {
      case 1: visit(Count<1>{}, i); break;
      case 2: visit(Count<2>{}, i); break;
      case 3: visit(Count<3>{}, i); break;
      case 4: visit(Count<4>{}, i); break;
      case 5: visit(Count<5>{}, i); break;
      default: visit(Count<6>{}, i); break;
    }
  }
}

namespace {

// The partial result of `chunk` of a split unit, in the memory that all threads share.
OCTAVO_INLINE Partial shared_partial(const AttentionArgs& args, const AttentionShare& share,
                                     int64_t chunk) {
  const int64_t rows = share.unit.num_rows();
  const int64_t index = chunk - share.unit.keys.first_chunk();
  float* max = args.partials + share.partials + index * rows * partial_row_floats(args.kv.head_dim);
  return {max, max + rows, max + 2 * rows};
}

// Where the output of a query vector of `unit` goes.
OCTAVO_INLINE float* row_output(const AttentionArgs& args, const AttentionUnit& unit, int64_t token,
                                int64_t head) {
  return args.out + unit.index_of(token) * args.out_stride +
         (unit.first_head + head) * args.kv.head_dim;
}

// The sink of a head of `unit`; null: none.
OCTAVO_INLINE const float* sink_of(const AttentionArgs& args, const AttentionUnit& unit, int64_t head) {
  return args.sinks == nullptr ? nullptr : args.sinks + unit.first_head + head;
}

// How much a head prefers keys that are near; 0: not at all.
OCTAVO_INLINE float slope_of(const AttentionArgs& args, const AttentionUnit& unit, int64_t head) {
  return args.slopes == nullptr ? 0.0f : args.slopes[unit.first_head + head];
}

}  // namespace

// One unit at a time, with the memory that it needs (about 280 KiB, on the stack of the thread). Its query
// vectors are rows, token by token.
template <class V, KvType type>
class AttentionTile {
 public:
  explicit AttentionTile(const AttentionArgs& args)
      : args_(args),
        head_dim_(args.kv.head_dim),
        alignment_(args.kv.block_size % W::kLanes == 0 ? W::kLanes / kKeyGroup : 1),
        tile_groups_(least(kWideFloats / head_dim_, kWideKeys) / kKeyGroup & ~(alignment_ - 1)),
        value_groups_(greatest(kTileFloats / head_dim_ / kKeyGroup, 4)) {}

  // `following` is what this thread computes afterwards, or `share` itself.
  void run(const AttentionShare& share, const AttentionShare& following) {
    const AttentionUnit& unit = share.unit;
    load_queries(unit);
    for (int64_t index = share.begin; index < share.end; ++index) {
      const AttentionTask task = unit.task(index);
      const Place later = index + 1 < share.end
                              ? place_of(unit, unit.task(index + 1))
                              : place_of(following.unit, following.unit.task(following.begin));
      if (share.is_split) {
        compute_task(unit, task, later, shared_partial(args_, share, task.chunk));
      } else {
        compute_task(unit, task, later, next_of_unit());
        merge(unit, task);
      }
    }
    if (!share.is_split) finish(unit);
  }

 private:
  using W = typename V::Wide;
  using Store = Stored<V, type>;
  using Number = typename Store::Number;
  // From so many tokens on, widening K and V once is faster than in every product.
  static constexpr int64_t kWidenTokens = 3;
  // What is widened at a time: as many keys as a block of products takes at its widest, whatever the head
  // size; with heads of 64 that stays in the first-level cache.
  static constexpr int64_t kWideKeys = 64, kWideFloats = 32768;

  Partial total_of_unit() { return {total_max_, total_sum_, total_out_}; }
  Partial next_of_unit() { return {next_max_, next_sum_, next_out_}; }

  // Few tokens read every key about once, so what they wait for is memory. Heads of which no tile can be
  // widened are read in the same way.
  bool streams(const AttentionTask& task) const {
    return task.num_tokens() < kWidenTokens || (type != KvType::F32 && tile_groups_ == 0);
  }
  bool widens(const AttentionTask& task) const { return type != KvType::F32 && !streams(task); }

  // Where some keys of a chunk are read.
  struct Place {
    const BatchRow* row;
    int64_t kv_head;
    int64_t chunk;
    KeyRange groups;
  };

  // Numbers of a key or value.
  int64_t row_numbers() const { return head_dim_ / Store::kDims; }

  KeyRange visible(const AttentionUnit& unit, int64_t token) const {
    return visible_keys(args_, unit.row_of(token), unit.position_of(token));
  }

  // Calls visit(token, keys) for the tokens that see keys of the task, counted from the chunk's beginning.
  template <class Visit>
  void each_token(const AttentionUnit& unit, const AttentionTask& task, Visit visit) const {
    for (int64_t token = task.first_token; token < task.end_token; ++token) {
      const KeyRange keys = visible_in(unit, task.chunk, token);
      if (keys.begin < keys.end) visit(token, keys);
    }
  }

  // Groups that hold `keys`, as many as a whole number of wide vectors holds where blocks allow that.
  KeyRange groups_of(KeyRange keys) const {
    const int64_t mask = ~(alignment_ - 1);  // alignment_ is 1 or 2
    return {keys.begin / kKeyGroup & mask, (ceil_div(keys.end, kKeyGroup) + alignment_ - 1) & mask};
  }

  // What token `token` sees of `chunk`, counted from its beginning; may be empty.
  KeyRange visible_in(const AttentionUnit& unit, int64_t chunk, int64_t token) const {
    return in_chunk(visible(unit, token), chunk);
  }

  // Keys of a task that lie in the same blocks for all of its tokens, counted from the chunk's beginning.
  KeyRange common_keys(const AttentionUnit& unit, const AttentionTask& task) const {
    if (!unit.is_shared()) return in_chunk(unit.keys, task.chunk);
    if (task.num_tokens() == 1) return visible_in(unit, task.chunk, task.first_token);
    return in_chunk({0, unit.shared_len}, task.chunk);
  }

  Place place_of(const AttentionUnit& unit, const AttentionTask& task) const {
    return {&unit.row_of(task.first_token), unit.kv_head, task.chunk, groups_of(common_keys(unit, task))};
  }

  void compute_task(const AttentionUnit& unit, const AttentionTask& task, const Place& later,
                    const Partial& result) {
    const Place common = place_of(unit, task);
    const bool ends_apart = unit.is_shared() && task.num_tokens() > 1 &&
                            common.groups.end < kChunkGroups;
    find_groups(common, streams(task) ? &later : nullptr);
    score_keys(unit, task, common.groups);
    each_token(unit, task, [&](int64_t token, KeyRange keys) {
      if (ends_apart) {
        each_end(unit, task, token, later, [&](const AttentionTask& own, KeyRange groups) {
          score_keys(unit, own, groups);
        });
      }
      for (int64_t head = 0; head < unit.num_heads; ++head) {
        const Slope slope{slope_of(args_, unit, head), task.chunk * kChunk - unit.position_of(token)};
        weigh_scores(keys, slope, token * unit.num_heads + head, result);
      }
    });
    weigh_keys(unit, task, common.groups, result);
    for (int64_t token = 0; ends_apart && token < task.end_token; ++token) {
      each_end(unit, task, token, later, [&](const AttentionTask& own, KeyRange groups) {
        weigh_keys(unit, own, groups, result);
      });
    }
  }

  // Behind the common keys of the last chunk in which rows share some: calls visit(task, groups) for what
  // one row sees there, if anything, with the groups found. Those of the common keys stay found.
  template <class Visit>
  void each_end(const AttentionUnit& unit, const AttentionTask& task, int64_t token, const Place& later,
                Visit visit) {
    const Place own = end_place(unit, task, token);
    if (own.groups.begin >= own.groups.end) return;
    const bool is_last = token + 1 == task.end_token;
    const Place next = is_last ? later : end_place(unit, task, token + 1);
    find_groups(own, next.groups.begin < next.groups.end ? &next : &own);
    visit(AttentionTask{task.chunk, token, token + 1}, own.groups);
  }

  Place end_place(const AttentionUnit& unit, const AttentionTask& task, int64_t token) const {
    const KeyRange groups = groups_of(visible_in(unit, task.chunk, token));
    return {&unit.row_of(token), unit.kv_head, task.chunk,
            {common_keys(unit, task).end / kKeyGroup, groups.end}};
  }

  // Scores of all tokens for some groups, which lie in the same blocks for all of them.
  void score_keys(const AttentionUnit& unit, const AttentionTask& task, KeyRange groups) {
    each_tile(groups, widens(task) ? tile_groups_ : kChunkGroups, [&](KeyRange tile) {
      if (widens(task)) widen_keys(tile);
      each_piece(unit, task, [&](auto count, int64_t row) {
        // What any of the rows sees: both ends of what tokens of one row of the batch see only grow, and
        // rows that share keys see them all.
        const int64_t last = (row + decltype(count)::value - 1) / unit.num_heads;
        const KeyRange keys{visible_in(unit, task.chunk, row / unit.num_heads).begin,
                            visible_in(unit, task.chunk, last).end};
        if (keys.begin < keys.end) score_rows(task, count, row, overlap(groups_of(keys), tile));
      });
    });
  }

  // Add the values of these groups, as far as tokens see them.
  void weigh_keys(const AttentionUnit& unit, const AttentionTask& task, KeyRange groups,
                  const Partial& result) {
    each_tile(groups, widens(task) ? tile_groups_ : value_groups_, [&](KeyRange tile) {
      if (widens(task)) widen_values(tile);
      const KeyRange tile_keys{tile.begin * kKeyGroup, tile.end * kKeyGroup};
      each_piece(unit, task, [&](auto count, int64_t row) {
        weigh_piece(unit, task, count, row, tile_keys, result);
      });
    });
  }

  // Calls visit(Count<n>{}, row) for pieces of the task's query vectors.
  template <class Visit>
  static void each_piece(const AttentionUnit& unit, const AttentionTask& task, Visit visit) {
    octavo::each_piece(task.first_token * unit.num_heads, task.end_token * unit.num_heads, visit);
  }

  // From the scores of one row to weights; its output begins at zero.
  void weigh_scores(KeyRange keys, const Slope& slope, int64_t row, const Partial& result) {
    float* scores = scores_ + row * kChunk;
    if (alignment_ * kKeyGroup == W::kLanes) {
      exponentials<V, W, type>(args_, keys, map_, slope, scores, result.max + row, result.sum + row);
    } else {
      exponentials<V, V, type>(args_, keys, map_, slope, scores, result.max + row, result.sum + row);
    }
    float* out = result.out + row * head_dim_;
    for (int64_t d = 0; d < head_dim_; ++d) out[d] = 0.0f;
  }

  // Add values of `tile` to the rows of a piece: those that all of its tokens see for all rows at once,
  // what is before and behind for each token.
  template <class Piece>
  void weigh_piece(const AttentionUnit& unit, const AttentionTask& task, Piece piece, int64_t row,
                   KeyRange tile, const Partial& result) {
    const int64_t end_row = row + Piece::value;
    const int64_t first = row / unit.num_heads, last = (end_row - 1) / unit.num_heads;
    const KeyRange common = overlap({visible_in(unit, task.chunk, last).begin,
                                     visible_in(unit, task.chunk, first).end}, tile);
    if (common.begin >= common.end) {
      weigh_tokens(unit, task, row, end_row, tile, result);
    } else if (first == last) {
      weigh_rows(task, piece, row, common, result);
    } else {
      weigh_tokens(unit, task, row, end_row, {tile.begin, common.begin}, result);
      weigh_rows(task, piece, row, common, result);
      weigh_tokens(unit, task, row, end_row, {common.end, tile.end}, result);
    }
  }

  // Add values of `range`, as far as tokens see them, to rows [row, end_row), token by token.
  void weigh_tokens(const AttentionUnit& unit, const AttentionTask& task, int64_t row, int64_t end_row,
                    KeyRange range, const Partial& result) {
    if (range.begin >= range.end) return;
    while (row < end_row) {
      const int64_t token = row / unit.num_heads;
      const int64_t token_end = least((token + 1) * unit.num_heads, end_row);
      const KeyRange keys = overlap(visible_in(unit, task.chunk, token), range);
      if (keys.begin < keys.end) {
        octavo::each_piece(row, token_end, [&](auto count, int64_t first) {
          weigh_rows(task, count, first, keys, result);
        });
      }
      row = token_end;
    }
  }

  // Calls visit(tile) for consecutive pieces of `step` groups.
  template <class Visit>
  static void each_tile(KeyRange groups, int64_t step, Visit visit) {
    for (int64_t begin = groups.begin; begin < groups.end; begin += step) {
      visit(KeyRange{begin, least(begin + step, groups.end)});
    }
  }

  // Find groups in the cache, and pair them with those that are read afterwards, where somebody waits.
  void find_groups(const Place& place, const Place* later) {
    const KvLayer& kv = args_.kv;
    const int64_t position = place.chunk * kChunk + place.groups.begin * kKeyGroup;
    const int32_t* block_id = place.row->block_table + position / kv.block_size;
    int64_t slot = position % kv.block_size;
    map_.key_stride = map_.value_scales = kv.block_size;
    for (int64_t group = place.groups.begin; group < place.groups.end; ++group) {
      map_.keys[group] = block_keys<const Number>(kv, *block_id, place.kv_head) + slot;
      map_.values[group] =
          block_values<const Number>(kv, *block_id, place.kv_head) + slot * row_numbers();
      if constexpr (has_scales(type)) {
        map_.scales[group] = block_scales(kv, *block_id, place.kv_head) + slot;
      }
      slot += kKeyGroup;
      if (slot < kv.block_size) continue;
      slot = 0;
      ++block_id;
    }
    if (later != nullptr) pair_groups(place.groups, *later);
  }

  void pair_groups(KeyRange groups, const Place& later) {
    const KvLayer& kv = args_.kv;
    for (int64_t group = groups.begin; group < groups.end; ++group) {
      const int64_t other = least(later.groups.begin + group - groups.begin, later.groups.end - 1);
      const int64_t position = later.chunk * kChunk + other * kKeyGroup;
      const int64_t block_id = later.row->block_table[position / kv.block_size];
      map_.later_keys[group] = block_keys<const Number>(kv, block_id, later.kv_head) +
                               position % kv.block_size * row_numbers();
    }
  }

  void widen_keys(KeyRange groups) {
    wide_map_.key_stride = tile_groups_ * kKeyGroup;
    for (int64_t group = groups.begin; group < groups.end; ++group) {
      wide_map_.keys[group] = wide_ + (group - groups.begin) * kKeyGroup;
    }
    const int64_t stride = wide_map_.key_stride;
    for (int64_t d = 0; d < row_numbers(); ++d) {
      float* to = wide_ + d * Store::kDims * stride;
      for (int64_t group = groups.begin; group < groups.end; ++group, to += kKeyGroup) {
        const Number* keys = map_.keys[group] + d * map_.key_stride;
        V::store(to, Store::template load_keys<0>(keys));
        if constexpr (Store::kDims == 2) V::store(to + stride, Store::template load_keys<1>(keys));
      }
    }
  }

  void widen_values(KeyRange groups) {
    for (int64_t group = groups.begin; group < groups.end; ++group) {
      float* to = wide_ + (group - groups.begin) * kKeyGroup * head_dim_;
      wide_map_.values[group] = to;
      for (int64_t i = 0; i < kKeyGroup * head_dim_; i += V::kLanes) {
        V::store(to + i, Store::load(map_.values[group] + i / Store::kDims));
      }
    }
  }

  void load_queries(const AttentionUnit& unit) {
    float* to = queries_;
    const int64_t count = unit.num_heads * head_dim_;
    for (int64_t token = 0; token < unit.num_tokens; ++token, to += count) {
      const float* q = args_.q + unit.index_of(token) * args_.q_stride + unit.first_head * head_dim_;
      __builtin_memcpy(to, q, static_cast<size_t>(count) * sizeof(float));
      if constexpr (!is_rotated(type)) continue;
      for (int64_t head = 0; head < unit.num_heads; ++head) rotate<V>(to + head * head_dim_, head_dim_);
    }
  }

  // Scores of the rows of a piece for some groups of keys.
  template <class Piece>
  void score_rows(const AttentionTask& task, Piece piece, int64_t row, KeyRange groups) {
    if (streams(task)) return score<type, true>(piece, row, map_, groups);
    if constexpr (type == KvType::F32) score<type, false>(piece, row, map_, groups);
    else score<KvType::F32, false>(piece, row, wide_map_, groups);
  }

  template <KvType from, bool kPrefetch, class Piece, class Map>
  void score(Piece, int64_t row, const Map& map, KeyRange groups) {
    const float* query = queries_ + row * head_dim_;
    float* out = scores_ + row * kChunk;
    if (alignment_ * kKeyGroup == W::kLanes) {
      score_groups<W, Stored<W, from>, Piece::value, kPrefetch>(query, head_dim_, map, groups, out);
    } else {
      score_groups<V, Stored<V, from>, Piece::value, kPrefetch>(query, head_dim_, map, groups, out);
    }
  }

  // Add the values of some keys, which all rows of the piece see.
  template <class Piece>
  void weigh_rows(const AttentionTask& task, Piece piece, int64_t row, KeyRange keys,
                  const Partial& result) {
    if (streams(task)) return weigh<type, true>(piece, row, map_, keys, result);
    if constexpr (type == KvType::F32) weigh<type, false>(piece, row, map_, keys, result);
    else weigh<KvType::F32, false>(piece, row, wide_map_, keys, result);
  }

  template <KvType from, bool kPrefetch, class Piece, class Map>
  void weigh(Piece, int64_t row, const Map& map, KeyRange keys, const Partial& result) {
    weigh_values<V, from, Piece::value, kPrefetch>(scores_ + row * kChunk, head_dim_, map, keys,
                                                   result.out + row * head_dim_);
  }

  // Merge what compute_task left in next_of_unit() into total_of_unit().
  void merge(const AttentionUnit& unit, const AttentionTask& task) {
    each_token(unit, task, [&](int64_t token, KeyRange) {
      const bool is_first = visible(unit, token).first_chunk() == task.chunk;
      for (int64_t head = 0; head < unit.num_heads; ++head) {
        const int64_t row = token * unit.num_heads + head;
        if (is_first) copy_chunk<V>(next_of_unit(), total_of_unit(), row, head_dim_);
        else merge_chunk<V>(next_of_unit(), total_of_unit(), row, head_dim_);
      }
    });
  }

  void finish(const AttentionUnit& unit) {
    for (int64_t token = 0; token < unit.num_tokens; ++token) {
      for (int64_t head = 0; head < unit.num_heads; ++head) {
        finish_row<V>(args_.kv, total_of_unit(), token * unit.num_heads + head,
                      sink_of(args_, unit, head), row_output(args_, unit, token, head));
      }
    }
  }

  const AttentionArgs& args_;
  const int64_t head_dim_;
  const int64_t alignment_;    // groups of a vector of keys
  const int64_t tile_groups_;  // groups that are widened together; 0 if heads are too large for that
  const int64_t value_groups_; // groups whose values stay in the first-level cache
  ChunkMap<Number> map_;
  ChunkMap<float> wide_map_;   // of the groups that lie widened in wide_
  float total_max_[kTileRows], total_sum_[kTileRows];
  float next_max_[kTileRows], next_sum_[kTileRows];
  alignas(64) float scores_[kTileRows * kChunk];
  alignas(64) float queries_[kTileFloats];
  alignas(64) float wide_[kWideFloats];
  alignas(64) float total_out_[kTileFloats];
  alignas(64) float next_out_[kTileFloats];
};

template <class V, KvType type>
void attend(const AttentionArgs& args, int thread, int num_threads) {
  AttentionTile<V, type> tile(args);
  AttentionShare current{};
  AttentionPlan(args, thread, num_threads).each_share([&](const AttentionShare& share) {
    if (share.begin == share.end) return;
    if (current.begin < current.end) tile.run(current, share);
    current = share;
  });
  if (current.begin < current.end) tile.run(current, current);
}

// The first phase: everything but the merge of split units.
template <class V>
void attention(const AttentionArgs& args, int thread, int num_threads) {
  switch (args.kv.type) {
    case KvType::F32: return attend<V, KvType::F32>(args, thread, num_threads);
    case KvType::F16: return attend<V, KvType::F16>(args, thread, num_threads);
    case KvType::BF16: return attend<V, KvType::BF16>(args, thread, num_threads);
    case KvType::Int8: return attend<V, KvType::Int8>(args, thread, num_threads);
    case KvType::Fp8E4M3: return attend<V, KvType::Fp8E4M3>(args, thread, num_threads);
    case KvType::Fp8E5M2: return attend<V, KvType::Fp8E5M2>(args, thread, num_threads);
    case KvType::Int4: return attend<V, KvType::Int4>(args, thread, num_threads);
  }
}

// The second phase: query vectors of split units in turn, each merged by one thread.
template <class V>
void attention_merge(const AttentionArgs& args, int thread, int num_threads) {
  const int64_t head_dim = args.kv.head_dim;
  AttentionPlan(args, thread, num_threads).each_share([&](const AttentionShare& share) {
    if (!share.is_split) return;
    const AttentionUnit& unit = share.unit;
    for (int64_t row = 0; row < unit.num_rows(); ++row) {
      if ((share.first_split_row + row) % num_threads != thread) continue;
      const int64_t token = row / unit.num_heads;
      const KeyRange keys = visible_keys(args, unit.row_of(token), unit.position_of(token));
      const Partial total = shared_partial(args, share, keys.first_chunk());
      for (int64_t chunk = keys.first_chunk() + 1; chunk < keys.end_chunk(); ++chunk) {
        merge_chunk<V>(shared_partial(args, share, chunk), total, row, head_dim);
      }
      const int64_t head = row % unit.num_heads;
      finish_row<V>(args.kv, total, row, sink_of(args, unit, head), row_output(args, unit, token, head));
    }
  });
}

// Query vectors of split units times chunks, at most.
template <class V>
int64_t attention_partial_floats(int64_t max_tokens, int64_t max_rows, int64_t max_len,
                                 int64_t num_heads, int64_t head_dim) {
  if (max_rows == 0) return 0;
  const int64_t rows = least(max_tokens * num_heads, most_split_rows(num_heads));
  return rows * ceil_div(max_len, kChunk) * partial_row_floats(head_dim);
}

}  // namespace octavo
