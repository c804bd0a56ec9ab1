// Checks of kv_write and attention: a twin in double precision, and the promise that the bits of a
// token's output depend on its own sequence alone, however prompts are cut, batched and spread over
// threads. With the name of a policy, only that one.
//
// Built like test_kernels.cpp.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "attention_cases.hpp"

using namespace octavo;
using namespace octavo::tests;

namespace {

// ---- the ways to compute the same ----

using Outputs = std::vector<std::vector<float>>;

Outputs whole_and_alone(const KernelTable& kernels, const Shape& shape,
                        const std::vector<Sequence>& sequences, Random& random) {
  Runner runner(kernels, shape, sequences, random);
  for (size_t s = 0; s < sequences.size(); ++s) runner.step({{s, 0, sequences[s].length}}, 1);
  return runner.outputs;
}

// Sequences advance together in steps of random sizes, many of one token.
Outputs cut_at_random(const KernelTable& kernels, const Shape& shape,
                      const std::vector<Sequence>& sequences, Random& random, int num_threads) {
  Runner runner(kernels, shape, sequences, random);
  std::vector<int64_t> done(sequences.size(), 0);
  while (true) {
    std::vector<Piece> pieces;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const int64_t left = sequences[s].length - done[s];
      if (left == 0 || random.below(4) == 0) continue;
      const bool nears_end = done[s] * 4 > sequences[s].length * 3;
      const int64_t most = nears_end ? 3 : random.pick<int64_t>({1, 9, 40, 200, 1000});
      const int64_t count = std::min(left, random.between(1, most));
      pieces.push_back({s, done[s], done[s] + count});
      done[s] += count;
    }
    if (!pieces.empty()) runner.step(pieces, num_threads);
    bool finished = true;
    for (size_t s = 0; s < sequences.size(); ++s) finished &= done[s] == sequences[s].length;
    if (finished) return runner.outputs;
  }
}

// All keys or values of a sequence.
std::vector<double> rounded_rows(const Shape& shape, const std::vector<float>& numbers) {
  std::vector<double> result;
  for (size_t first = 0; first < numbers.size(); first += static_cast<size_t>(shape.head_dim)) {
    const std::vector<double> row = rounded(shape.type, &numbers[first], shape.head_dim);
    result.insert(result.end(), row.begin(), row.end());
  }
  return result;
}

Outputs twin(const Shape& shape, const std::vector<Sequence>& sequences) {
  Outputs outputs;
  const int64_t dim = shape.head_dim, group = shape.num_heads / shape.num_kv_heads;
  const auto row_of = [&](int64_t key, int64_t head) {
    return static_cast<size_t>((key * shape.num_kv_heads + head / group) * dim);
  };
  for (const Sequence& sequence : sequences) {
    const std::vector<double> k = rounded_rows(shape, sequence.k);
    const std::vector<double> v = rounded_rows(shape, sequence.v);
    std::vector<float> out;
    for (int64_t token = 0; token < sequence.length; ++token) {
      for (int64_t head = 0; head < shape.num_heads; ++head) {
        const float* q = &sequence.q[static_cast<size_t>((token * shape.num_heads + head) * dim)];
        const int64_t first = shape.window > 0 ? std::max<int64_t>(token - shape.window + 1, 0) : 0;
        std::vector<double> result(static_cast<size_t>(dim), 0.0), scores;
        for (int64_t key = first; key <= token; ++key) {
          const double* row = &k[row_of(key, head)];
          double score = 0.0;
          for (int64_t d = 0; d < dim; ++d) score += q[d] * row[d];
          score *= shape.scale();
          if (shape.soft_cap > 0) score = shape.soft_cap * std::tanh(score / shape.soft_cap);
          scores.push_back(score);
        }
        const double best = *std::max_element(scores.begin(), scores.end());
        double sum = 0.0;
        for (int64_t key = first; key <= token; ++key) {
          const double weight = std::exp(scores[static_cast<size_t>(key - first)] - best);
          const double* row = &v[row_of(key, head)];
          for (int64_t d = 0; d < dim; ++d) result[static_cast<size_t>(d)] += weight * row[d];
          sum += weight;
        }
        for (const double value : result) out.push_back(static_cast<float>(value / sum));
      }
    }
    outputs.push_back(out);
  }
  return outputs;
}

// How a failed check names the shape.
std::string name_of(const KernelTable& kernels, const Shape& shape) {
  std::ostringstream name;
  name << kernels.name << ", heads " << shape.num_heads << "/" << shape.num_kv_heads << ", dim "
       << shape.head_dim << ", type " << static_cast<int>(shape.type) << ", block "
       << shape.block_size << ", window " << shape.window << ", cap " << shape.soft_cap;
  return name.str();
}

void check_equal(const char* what, const KernelTable& kernels, const Shape& shape,
                 const Outputs& expected, const Outputs& actual) {
  for (size_t s = 0; s < expected.size(); ++s) {
    int64_t differing = 0;
    for (size_t i = 0; i < expected[s].size(); ++i) {
      differing += std::memcmp(&expected[s][i], &actual[s][i], sizeof(float)) != 0;
    }
    check(differing == 0, "%s: %ld of %zu floats differ (%s)", what, static_cast<long>(differing),
          expected[s].size(), name_of(kernels, shape).c_str());
  }
}

void check_close(const KernelTable& kernels, const Shape& shape, const Outputs& expected,
                 const Outputs& actual) {
  double worst = 0.0;
  for (size_t s = 0; s < expected.size(); ++s) {
    for (size_t i = 0; i < expected[s].size(); ++i) {
      const double error = std::abs(expected[s][i] - actual[s][i]);
      worst = error <= worst ? worst : error;  // a NaN stays
    }
  }
  // Rounding of a score grows with the square root of its length.
  const double limit = 4e-6 * std::sqrt(std::max(static_cast<double>(shape.head_dim) / 128, 1.0));
  check(worst < limit, "error %g (%s)", worst, name_of(kernels, shape).c_str());
}

// ---- tests ----

// A float and an integer with scales stand for all where a sanitizer runs.
std::vector<KvType> checked_types() {
  return kIsSampled ? std::vector<KvType>{KvType::BF16, KvType::Int8} : kKvTypes;
}

Shape random_shape(Random& random) {
  Shape shape{};
  shape.num_kv_heads = random.between(1, 3);
  shape.num_heads = shape.num_kv_heads * random.pick<int64_t>({1, 2, 3, 4, 5, 6, 7, 8, 12});
  shape.head_dim = random.pick<int64_t>({1, 5, 8, 16, 20, 24, 32, 40, 64, 64, 80, 100, 128});
  shape.type = random.pick(kKvTypes);
  if (shape.type == KvType::Int4) shape.head_dim += shape.head_dim % 2;
  shape.block_size = random.pick<int64_t>({8, 16, 24, 32, 40, 64, 256});
  shape.window = random.pick<int64_t>({0, 0, 1, 7, 64, 300});
  shape.soft_cap = random.pick<float>({0.0f, 0.0f, 2.0f});
  return shape;
}

void check_shape(const KernelTable& kernels, const Shape& shape,
                 const std::vector<int64_t>& lengths, Random& random) {
  std::vector<Sequence> sequences;
  for (const int64_t length : lengths) sequences.emplace_back(shape, length, random);
  const Outputs whole = whole_and_alone(kernels, shape, sequences, random);
  check_close(kernels, shape, twin(shape, sequences), whole);
  for (const int num_threads : sample_of<int>({1, 2, 3, 7})) {
    const Outputs cut = cut_at_random(kernels, shape, sequences, random, num_threads);
    check_equal("cut, batched, threads", kernels, shape, whole, cut);
  }
}

void check_random_shapes(const KernelTable& kernels, int count) {
  Random random(1);
  for (int i = 0; i < count; ++i) {
    const Shape shape = random_shape(random);
    const std::vector<int64_t> lengths = {random.between(1, 40), random.between(1, 300),
                                          random.between(250, 600)};
    check_shape(kernels, shape, lengths, random);
  }
}

void check_chosen_shapes(const KernelTable& kernels) {
  Random random(2);
  for (const KvType type : checked_types()) {
    check_shape(kernels, {9, 3, 64, type, 32}, {700, 17}, random);        // SmolLM2
    check_shape(kernels, {4, 1, 256, type, 16, 100}, {300}, random);      // Gemma 3
    check_shape(kernels, {2, 1, 512, type, 32}, {40}, random);
    check_shape(kernels, {60, 1, 16, type, 32}, {60}, random);            // more heads than a tile holds
    check_shape(kernels, {2, 2, 1000, type, 8}, {20}, random);
  }
}

// A long sequence at decode on many threads: its chunks are spread, and merged to the same bits.
void check_split(const KernelTable& kernels) {
  Random random(3);
  for (const int64_t window : {0, 700}) {
    const KvType type = window == 0 ? KvType::BF16 : KvType::Int8;
    const Shape shape{6, 3, 16, type, 32, window};
    const std::vector<Sequence> sequences{Sequence(shape, 1400, random),
                                          Sequence(shape, 30, random)};
    const Outputs whole = whole_and_alone(kernels, shape, sequences, random);
    for (const int64_t tokens : {1, 5}) {
      for (const int num_threads : sample_of<int>({1, 2, 4, 64, 7})) {
        Runner runner(kernels, shape, sequences, random);
        runner.step({{0, 0, 1400 - tokens}, {1, 0, 30 - tokens}}, num_threads);
        runner.used_partials = 0;
        runner.step({{1, 30 - tokens, 30}, {0, 1400 - tokens, 1400}}, num_threads);
        check_equal("split", kernels, shape, whole, runner.outputs);
        check((runner.used_partials > 0) == (num_threads > 1),
              "%s: %d threads used %ld floats of partials", kernels.name, num_threads,
              static_cast<long>(runner.used_partials));
      }
    }
  }
}

// Families of sequences with common beginnings, at decode: the bits are those of each sequence alone, with
// every way of keeping blocks for each or sharing them.
void check_sharing(const KernelTable& kernels, const Shape& shape, int64_t common, int64_t more,
                   Random& random) {
  std::vector<Sequence> sequences;
  for (int64_t i = 0; i < 9; ++i) {
    sequences.emplace_back(shape, common + more + random.between(3, 300), random);
  }
  const auto begins_like = [&](size_t s) -> std::pair<size_t, int64_t> {
    return {s < 6 ? 0 : 6, s < 6 ? common + (s % 2) * more : common};  // a family in two parts, and another
  };
  for (size_t s = 0; s < sequences.size(); ++s) {
    const auto [other, length] = begins_like(s);
    if (other != s) sequences[s].begin_like(shape, sequences[other], length);
  }
  const Outputs whole = whole_and_alone(kernels, shape, sequences, random);
  for (const int num_threads : sample_of<int>({1, 2, 16, 3})) {
    Runner runner(kernels, shape, sequences, random);
    for (size_t s = 0; s < sequences.size(); ++s) {
      const auto [other, length] = begins_like(s);
      if (other != s) runner.share(s, other, length);
      runner.step({{s, 0, sequences[s].length - 2}}, 1);
    }
    for (const int64_t left : {2, 1}) {
      std::vector<Piece> pieces;
      for (size_t i = 0; i < sequences.size(); ++i) {
        const size_t s = i * 4 % sequences.size();  // families are mixed
        pieces.push_back({s, sequences[s].length - left, sequences[s].length - left + 1});
      }
      runner.step(pieces, num_threads);
    }
    check(runner.num_sharing >= 14, "%s: %ld rows shared a prefix", kernels.name,
          static_cast<long>(runner.num_sharing));
    check_equal("sharing", kernels, shape, whole, runner.outputs);
  }
}

void check_shared_prefixes(const KernelTable& kernels) {
  Random random(8);
  for (const KvType type : checked_types()) {
    check_sharing(kernels, {9, 3, 64, type, 32, 0, 0.0f, true}, 512, 64, random);
    check_sharing(kernels, {4, 1, 16, type, 8, 0, 2.0f}, 528, 300, random);  // ends inside a chunk, in eights
    check_sharing(kernels, {2, 2, 32, type, 16, 800}, 512, 32, random);      // a window has passed some
    check_sharing(kernels, {60, 1, 16, type, 32}, 512, 0, random);           // more heads than a tile holds
  }
}

// What the threads of an op say about its units.
struct PlanRecord {
  using Key = std::pair<int64_t, int64_t>;  // first token, first head
  std::map<Key, int64_t> tasks_left;       // that no thread took
  std::map<Key, int64_t> partials;          // of split units
  std::vector<int64_t> work;                // of each thread, by the plan's measure of cost
  int64_t largest_unit = 0;

  PlanRecord(const AttentionArgs& args, int num_threads) {
    for (int thread = 0; thread < num_threads; ++thread) {
      work.push_back(0);
      AttentionPlan(args, thread, num_threads).each_share([&](const AttentionShare& share) {
        add(share);
      });
    }
  }

 private:
  void add(const AttentionShare& share) {
    const AttentionUnit& unit = share.unit;
    const Key key{unit.index_of(0), unit.first_head};
    const int64_t taken = share.end - share.begin;
    tasks_left.try_emplace(key, unit.num_tasks()).first->second -= taken;
    if (share.is_split) {
      const int64_t offset = partials.try_emplace(key, share.partials).first->second;
      check(offset == share.partials, "threads disagree on a split unit%s", "");
    } else {
      check(taken == unit.num_tasks(), "a part of a unit that is not split%s", "");
    }
    for (int64_t index = share.begin; index < share.end; ++index) work.back() += cost(unit, unit.task(index));
    int64_t whole = 0;
    for (int64_t index = 0; index < unit.num_tasks(); ++index) whole += cost(unit, unit.task(index));
    largest_unit = std::max(largest_unit, whole);
  }

  // Keys that are read once for all heads and tokens, and those that are read for one token alone.
  static int64_t cost(const AttentionUnit& unit, const AttentionTask& task) {
    const KeyRange chunk{task.chunk * kChunk, (task.chunk + 1) * kChunk};
    const KeyRange joint{unit.keys.begin, unit.is_shared() ? unit.shared_len : unit.keys.end};
    int64_t sum = num_keys(joint, chunk) * (unit.num_heads * task.num_tokens() + 6);
    for (int64_t token = task.first_token; unit.is_shared() && token < task.end_token; ++token) {
      sum += num_keys({unit.shared_len, unit.position_of(token) + 1}, chunk) * (unit.num_heads + 6);
    }
    return sum;
  }

  static int64_t num_keys(KeyRange keys, KeyRange chunk) {
    const KeyRange common = overlap(keys, chunk);
    return std::max<int64_t>(common.end - common.begin, 0);
  }
};

int64_t count_units(const AttentionArgs& args, int num_threads) {
  const int64_t most_rows = std::min(kTileFloats / args.kv.head_dim, kTileRows);
  const int64_t group = args.num_heads / args.kv.num_kv_heads;
  const int64_t parts = (group + most_rows - 1) / most_rows;
  const int64_t tile = most_rows / ((group + parts - 1) / parts);
  int64_t count = 0;
  for (int32_t r = 0; r < args.batch->num_rows; ++r) {
    const BatchRow& row = args.batch->rows[r];
    const auto is_before_window = [&](const BatchRow& each) {
      return args.window == 0 || each.context_len < args.window;
    };
    const bool is_seen = std::all_of(&row, &row + row.num_sharing, is_before_window);
    const bool is_joint = row.num_sharing > 1 && tile > 1 && is_seen;
    int64_t tiles = (row.num_tokens + tile - 1) / tile;
    if (is_joint) {
      // For so many threads there is work of which all can take a part.
      const int64_t tasks = args.kv.num_kv_heads * parts * ((row.shared_len + kChunk - 1) / kChunk);
      const int64_t all_tasks = tasks * args.batch->num_rows;
      const int64_t fewest = (int64_t{num_threads} * row.num_sharing + all_tasks - 1) / all_tasks;
      tiles = std::max((row.num_sharing + tile - 1) / tile, std::min<int64_t>(fewest, row.num_sharing));
      const int64_t rows = (row.num_sharing + tiles - 1) / tiles;
      tiles = (row.num_sharing + rows - 1) / rows;
    }
    count += tiles * args.kv.num_kv_heads * parts;
    if (is_joint) r += row.num_sharing - 1;
  }
  return count;
}

// Rows of one token that follow each other share some of their keys.
void share_at_random(std::vector<BatchRow>& rows, Random& random) {
  for (size_t first = 0; first < rows.size();) {
    const size_t most = std::min(rows.size(), first + static_cast<size_t>(random.between(1, 9)));
    size_t end = first;
    int32_t shared_len = 5000;
    for (; end < most && rows[end].num_tokens == 1; ++end) {
      shared_len = std::min(shared_len, rows[end].context_len / 32 * 32);
    }
    if (end > first + 1 && shared_len > 0) {
      rows[first].num_sharing = static_cast<int32_t>(end - first);
      rows[first].shared_len = shared_len;
    }
    first = std::max(end, first + 1);
  }
}

// All threads see the same units; every task of every unit falls to exactly one of them, and the parts
// are about equal.
void check_plan() {
  Random random(6);
  for (int i = 0; i < 300; ++i) {
    std::vector<BatchRow> rows;
    int32_t num_tokens = 0;
    for (int64_t row = random.between(1, 12); row > 0; --row) {
      const auto tokens = static_cast<int32_t>(random.pick<int64_t>({1, 1, 1, 4, 100}));
      rows.push_back({num_tokens, tokens, static_cast<int32_t>(random.below(5000)), nullptr});
      num_tokens += tokens;
    }
    share_at_random(rows, random);
    StepBatch batch{};
    batch.num_tokens = num_tokens;
    batch.num_rows = static_cast<int32_t>(rows.size());
    batch.rows = rows.data();
    AttentionArgs args{};
    const int64_t head_dim = random.pick<int64_t>({64, 256, 512});
    args.kv = {nullptr, KvType::BF16, 0, 32, random.between(1, 4), head_dim};
    args.batch = &batch;
    args.num_heads = args.kv.num_kv_heads * random.between(1, 9);
    args.window = random.pick<int64_t>({0, 0, 1000});

    const auto num_threads = static_cast<int>(random.between(1, 20));
    const PlanRecord record(args, num_threads);
    const auto found = static_cast<int64_t>(record.tasks_left.size());
    check(found == count_units(args, num_threads), "case %d: %ld units", i, static_cast<long>(found));
    for (const auto& [key, left] : record.tasks_left) {
      check(left == 0, "case %d: %ld tasks left", i, static_cast<long>(left));
    }
    int64_t total = 0;
    for (const int64_t part : record.work) total += part;
    for (const int64_t part : record.work) {
      const int64_t fair = total / static_cast<int64_t>(record.work.size());
      check(std::abs(part - fair) <= record.largest_unit, "case %d: %ld instead of %ld", i,
            static_cast<long>(part), static_cast<long>(fair));
    }
  }
}

// What later tokens hold, NaN or infinity, must not reach earlier ones of the same tile.
void check_causality(const KernelTable& kernels) {
  Random random(4);
  for (const KvType type : kKvTypes) {
    const Shape shape{4, 2, 16, type, 16};
    const std::vector<Sequence> sequences{Sequence(shape, 50, random)};
    std::vector<Sequence> broken = sequences;
    const size_t from = static_cast<size_t>(20 * shape.num_kv_heads * shape.head_dim);
    for (size_t i = from; i < broken[0].v.size(); ++i) {
      broken[0].k[i] = NAN;
      broken[0].v[i] = i % 2 ? INFINITY : NAN;
    }
    Outputs expected = whole_and_alone(kernels, shape, sequences, random);
    Outputs actual = whole_and_alone(kernels, shape, broken, random);
    const size_t kept = static_cast<size_t>(20 * shape.num_heads * shape.head_dim);
    check(std::isnan(actual[0].back()), "%s: a NaN is hidden", kernels.name);
    expected[0].resize(kept);
    actual[0].resize(kept);
    check_equal("causality", kernels, shape, expected, actual);
  }
}

// The transform gives the bits of plain loops in its order, and twice it gives what it was given.
template <class V>
void check_rotation() {
  Random random(7);
  for (const int64_t size : {1, 2, 6, 8, 16, 24, 64, 80, 96, 128, 192, 256}) {
    const std::vector<float> x = random.normals(size, 3.0f), expected = turned(x);
    std::vector<float> actual = x;
    rotate<V>(actual.data(), size);
    const size_t num_bytes = static_cast<size_t>(size) * sizeof(float);
    check(std::memcmp(actual.data(), expected.data(), num_bytes) == 0, "%s: %ld numbers differ",
          V::kName, static_cast<long>(size));
    rotate<V>(actual.data(), size);
    for (size_t i = 0; i < x.size(); ++i) {
      check(std::abs(actual[i] - x[i]) < 1e-5f, "%s: %g comes back as %g", V::kName, x[i], actual[i]);
    }
  }
}

void check_policies(const std::vector<KernelTable>& tables) {
  Random random(5);
  for (int i = 0; i < (kIsSampled ? 3 : 10); ++i) {
    const Shape shape = random_shape(random);
    const std::vector<Sequence> sequences{Sequence(shape, 400, random)};
    const Outputs expected = whole_and_alone(tables[0], shape, sequences, random);
    for (const KernelTable& kernels : tables) {
      const Outputs actual = whole_and_alone(kernels, shape, sequences, random);
      check_equal("policies", kernels, shape, expected, actual);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<KernelTable> tables = kernel_tables();
  run("work is cut into equal parts", check_plan);
  run("keys and values are turned", [] {
    each_policy([](auto policy) { check_rotation<decltype(policy)>(); });
  });
  for (const KernelTable& kernels : tables) {
    if (argc > 1 && std::strcmp(argv[1], kernels.name) != 0) continue;
    std::printf("%s\n", kernels.name);
    const bool is_slow = std::strcmp(kernels.name, "scalar") == 0;
    run("random shapes", [&] { check_random_shapes(kernels, kIsSampled ? 4 : is_slow ? 6 : 40); });
    if (!is_slow) run("the shapes of real models", [&] { check_chosen_shapes(kernels); });
    run("long sequences are split over threads", [&] { check_split(kernels); });
    if (!is_slow) run("shared prefixes", [&] { check_shared_prefixes(kernels); });
    run("later tokens do not reach earlier ones", [&] { check_causality(kernels); });
  }
  if (argc == 1) run("all policies give the same bits", [&] { check_policies(tables); });
  return result();
}
