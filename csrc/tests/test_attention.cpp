// Checks of kv_write and attention: a twin in double precision, and the promise that the bits of a
// token's output depend on its own sequence alone, however prompts are cut, batched and spread over
// threads. `--bench` times the cases that matter.
//
// Built like test_kernels.cpp (with -pthread for the bench).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "check.hpp"
#include "kernel_tables.hpp"

using namespace octavo;
using namespace octavo::tests;

namespace {

struct Shape {
  int64_t num_heads, num_kv_heads, head_dim;
  KvType type;
  int64_t block_size;
  int64_t window = 0;
  float soft_cap = 0.0f;

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
  int64_t number_bytes() const { return type == KvType::F32 ? 4 : 2; }
};

float rounded(KvType type, float value) {
  if (type == KvType::F16) return f16_to_float(float_to_f16(value));
  if (type == KvType::BF16) return bf16_to_float(float_to_bf16(value));
  return value;
}

// Storage in which every slot that nobody wrote is NaN, and random block tables.
class Cache {
 public:
  Cache(const Shape& shape, int64_t num_blocks, Random& random) {
    const int64_t numbers =
        num_blocks * shape.num_kv_heads * 2 * shape.block_size * shape.head_dim;
    const size_t num_bytes = static_cast<size_t>(numbers * shape.number_bytes());
    bytes_.assign(num_bytes + kAlignment, 0xff);
    void* data = bytes_.data();
    size_t space = bytes_.size();
    std::align(kAlignment, num_bytes, data, space);
    kv_ = {data, shape.type, num_blocks, shape.block_size, shape.num_kv_heads, shape.head_dim};
    for (int32_t id = 0; id < num_blocks; ++id) free_.push_back(id);
    std::shuffle(free_.begin(), free_.end(), random.engine());
  }
  const KvLayer& kv() const { return kv_; }

  std::vector<int32_t> table(int64_t num_tokens) {
    std::vector<int32_t> ids;
    for (int64_t slot = 0; slot < num_tokens; slot += kv_.block_size) {
      ids.push_back(free_.back());
      free_.pop_back();
    }
    return ids;
  }

 private:
  static constexpr size_t kAlignment = 64;

  std::vector<uint8_t> bytes_;
  KvLayer kv_;
  std::vector<int32_t> free_;
};

struct Sequence {
  int64_t length;
  std::vector<float> q, k, v;  // [length][heads * head_dim]

  Sequence(const Shape& shape, int64_t length, Random& random)
      : length(length),
        q(random.normals(length * shape.num_heads * shape.head_dim, 1.5f)),
        k(random.normals(length * shape.num_kv_heads * shape.head_dim)),
        v(random.normals(length * shape.num_kv_heads * shape.head_dim)) {}
};

// Tokens [begin, end) of a sequence, as one row of a step.
struct Piece {
  size_t sequence;
  int64_t begin, end;
};

// The outputs of all tokens of all sequences, computed step by step.
class Runner {
 public:
  Runner(const KernelTable& kernels, const Shape& shape, const std::vector<Sequence>& sequences,
         Random& random)
      : kernels_(kernels), shape_(shape), sequences_(sequences), random_(random),
        cache_(shape, num_blocks(shape, sequences) + 3, random) {
    for (const Sequence& sequence : sequences) {
      tables_.push_back(cache_.table(sequence.length));
      outputs.emplace_back(static_cast<size_t>(sequence.length * width()), NAN);
    }
  }

  void step(const std::vector<Piece>& pieces, int num_threads) {
    std::vector<BatchRow> rows;
    std::vector<float> q, k, v;
    const int64_t gap = random_.below(5);  // the arrays are columns of wider ones
    int32_t num_tokens = 0;
    int64_t max_len = 0;
    for (const Piece& piece : pieces) {
      const Sequence& sequence = sequences_[piece.sequence];
      rows.push_back({num_tokens, static_cast<int32_t>(piece.end - piece.begin),
                      static_cast<int32_t>(piece.begin), tables_[piece.sequence].data()});
      for (int64_t token = piece.begin; token < piece.end; ++token) {
        append(q, sequence.q, token, width(), gap);
        append(k, sequence.k, token, kv_width(), gap);
        append(v, sequence.v, token, kv_width(), gap);
      }
      num_tokens += rows.back().num_tokens;
      max_len = std::max(max_len, piece.end);
    }
    StepBatch batch{};
    batch.num_tokens = num_tokens;
    batch.num_rows = static_cast<int32_t>(rows.size());
    batch.rows = rows.data();
    write(batch, k, v, kv_width() + gap, num_threads);
    const std::vector<float> out = attend(batch, q, width() + gap, max_len, num_threads);
    for (size_t r = 0; r < pieces.size(); ++r) {
      std::copy_n(out.begin() + rows[r].first_token * width(), rows[r].num_tokens * width(),
                  outputs[pieces[r].sequence].begin() + pieces[r].begin * width());
    }
  }

  std::vector<std::vector<float>> outputs;
  int64_t used_partials = 0;

 private:
  static int64_t num_blocks(const Shape& shape, const std::vector<Sequence>& sequences) {
    int64_t count = 0;
    for (const Sequence& s : sequences) count += (s.length + shape.block_size - 1) / shape.block_size;
    return count;
  }
  int64_t width() const { return shape_.num_heads * shape_.head_dim; }
  int64_t kv_width() const { return shape_.num_kv_heads * shape_.head_dim; }

  static void append(std::vector<float>& to, const std::vector<float>& from, int64_t token,
                     int64_t width, int64_t gap) {
    to.insert(to.end(), from.begin() + token * width, from.begin() + (token + 1) * width);
    to.insert(to.end(), static_cast<size_t>(gap), NAN);
  }

  void write(const StepBatch& batch, const std::vector<float>& k, const std::vector<float>& v,
             int64_t stride, int num_threads) {
    KvWriteArgs args{cache_.kv(), &batch, k.data(), stride, v.data(), stride, 0, 0};
    for (int thread = 0; thread < num_threads; ++thread) {
      args.begin = static_cast<int64_t>(batch.num_tokens) * thread / num_threads;
      args.end = static_cast<int64_t>(batch.num_tokens) * (thread + 1) / num_threads;
      kernels_.kv_write(args);
    }
  }

  std::vector<float> attend(const StepBatch& batch, const std::vector<float>& q, int64_t q_stride,
                            int64_t max_len, int num_threads) {
    const int64_t partials = kernels_.attention_partial_floats(
        batch.num_tokens, batch.num_rows, max_len, shape_.num_heads, shape_.head_dim);
    const int64_t guard = 64;
    std::vector<float> memory(static_cast<size_t>(partials + guard), NAN);
    std::vector<float> out(static_cast<size_t>(batch.num_tokens * width()), NAN);
    const AttentionArgs args{cache_.kv(), &batch, q.data(), q_stride, out.data(), width(),
                             shape_.num_heads, shape_.scale(), shape_.window, shape_.soft_cap,
                             memory.data()};
    // No thread waits for another inside a phase, so they may as well take turns.
    for (int thread = 0; thread < num_threads; ++thread) kernels_.attention(args, thread, num_threads);
    for (int thread = 0; thread < num_threads; ++thread) kernels_.attention_merge(args, thread, num_threads);
    for (int64_t i = 0; i < partials + guard; ++i) {
      if (std::isnan(memory[static_cast<size_t>(i)])) continue;
      check(i < partials, "%s wrote behind the partial results", kernels_.name);
      ++used_partials;
    }
    return out;
  }

  const KernelTable& kernels_;
  const Shape shape_;
  const std::vector<Sequence>& sequences_;
  Random& random_;
  Cache cache_;
  std::vector<std::vector<int32_t>> tables_;
};

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
      const int64_t most = done[s] * 4 < sequences[s].length * 3 ? random.pick<int64_t>({1, 9, 40, 200, 1000}) : 3;
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

Outputs twin(const Shape& shape, const std::vector<Sequence>& sequences) {
  Outputs outputs;
  const int64_t dim = shape.head_dim, group = shape.num_heads / shape.num_kv_heads;
  for (const Sequence& sequence : sequences) {
    std::vector<double> k, v;
    for (const float x : sequence.k) k.push_back(rounded(shape.type, x));
    for (const float x : sequence.v) v.push_back(rounded(shape.type, x));
    std::vector<float> out;
    for (int64_t token = 0; token < sequence.length; ++token) {
      for (int64_t head = 0; head < shape.num_heads; ++head) {
        const float* q = &sequence.q[static_cast<size_t>((token * shape.num_heads + head) * dim)];
        const int64_t first = shape.window > 0 ? std::max<int64_t>(token - shape.window + 1, 0) : 0;
        std::vector<double> result(static_cast<size_t>(dim), 0.0), scores;
        for (int64_t key = first; key <= token; ++key) {
          const double* row = &k[static_cast<size_t>((key * shape.num_kv_heads + head / group) * dim)];
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
          const double* row = &v[static_cast<size_t>((key * shape.num_kv_heads + head / group) * dim)];
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

void check_equal(const char* what, const KernelTable& kernels, const Shape& shape, const Outputs& expected,
                 const Outputs& actual) {
  for (size_t s = 0; s < expected.size(); ++s) {
    int64_t differing = 0;
    for (size_t i = 0; i < expected[s].size(); ++i) {
      differing += std::memcmp(&expected[s][i], &actual[s][i], sizeof(float)) != 0;
    }
    check(differing == 0, "%s, %s: %ld of %zu floats differ (heads %ld/%ld, dim %ld, type %d, block %ld, window %ld)",
          kernels.name, what, static_cast<long>(differing), expected[s].size(), static_cast<long>(shape.num_heads),
          static_cast<long>(shape.num_kv_heads), static_cast<long>(shape.head_dim), static_cast<int>(shape.type),
          static_cast<long>(shape.block_size), static_cast<long>(shape.window));
  }
}

void check_close(const KernelTable& kernels, const Shape& shape, const Outputs& expected, const Outputs& actual) {
  double worst = 0.0;
  for (size_t s = 0; s < expected.size(); ++s) {
    for (size_t i = 0; i < expected[s].size(); ++i) {
      const double error = std::abs(expected[s][i] - actual[s][i]);
      worst = error <= worst ? worst : error;  // a NaN stays
    }
  }
  check(worst < 4e-6, "%s: error %g (heads %ld/%ld, dim %ld, type %d, block %ld, window %ld, cap %g)", kernels.name,
        worst, static_cast<long>(shape.num_heads), static_cast<long>(shape.num_kv_heads),
        static_cast<long>(shape.head_dim), static_cast<int>(shape.type), static_cast<long>(shape.block_size),
        static_cast<long>(shape.window), shape.soft_cap);
}

// ---- tests ----

Shape random_shape(Random& random) {
  Shape shape{};
  shape.num_kv_heads = random.between(1, 3);
  shape.num_heads = shape.num_kv_heads * random.pick<int64_t>({1, 2, 3, 4, 5, 6, 7, 8, 12});
  shape.head_dim = random.pick<int64_t>({1, 5, 8, 16, 20, 24, 32, 40, 64, 64, 80, 100, 128});
  shape.type = random.pick<KvType>({KvType::F32, KvType::F16, KvType::BF16});
  shape.block_size = random.pick<int64_t>({8, 16, 24, 32, 40, 64, 256});
  shape.window = random.pick<int64_t>({0, 0, 1, 7, 64, 300});
  shape.soft_cap = random.pick<float>({0.0f, 0.0f, 2.0f});
  return shape;
}

void check_shape(const KernelTable& kernels, const Shape& shape, std::vector<int64_t> lengths, Random& random) {
  std::vector<Sequence> sequences;
  for (const int64_t length : lengths) sequences.emplace_back(shape, length, random);
  const Outputs whole = whole_and_alone(kernels, shape, sequences, random);
  check_close(kernels, shape, twin(shape, sequences), whole);
  for (const int num_threads : {1, 2, 3, 7}) {
    const Outputs cut = cut_at_random(kernels, shape, sequences, random, num_threads);
    check_equal("cut, batched, threads", kernels, shape, whole, cut);
  }
}

void check_random_shapes(const KernelTable& kernels, int count) {
  Random random(1);
  for (int i = 0; i < count; ++i) {
    const Shape shape = random_shape(random);
    check_shape(kernels, shape, {random.between(1, 40), random.between(1, 300), random.between(250, 600)}, random);
  }
}

void check_chosen_shapes(const KernelTable& kernels) {
  Random random(2);
  for (const KvType type : {KvType::F32, KvType::F16, KvType::BF16}) {
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
    const Shape shape{6, 3, 16, KvType::BF16, 32, window};
    const std::vector<Sequence> sequences{Sequence(shape, 1400, random), Sequence(shape, 30, random)};
    const Outputs whole = whole_and_alone(kernels, shape, sequences, random);
    for (const int64_t tokens : {1, 5}) {
      for (const int num_threads : {1, 2, 4, 7, 64}) {
        Runner runner(kernels, shape, sequences, random);
        runner.step({{0, 0, 1400 - tokens}, {1, 0, 30 - tokens}}, num_threads);
        runner.used_partials = 0;
        runner.step({{1, 30 - tokens, 30}, {0, 1400 - tokens, 1400}}, num_threads);
        check_equal("split", kernels, shape, whole, runner.outputs);
        check((runner.used_partials > 0) == (num_threads > 1), "%s: %d threads used %ld floats of partials",
              kernels.name, num_threads, static_cast<long>(runner.used_partials));
      }
    }
  }
}

// What later tokens hold, NaN or infinity, must not reach earlier ones of the same tile.
void check_causality(const KernelTable& kernels) {
  Random random(4);
  for (const KvType type : {KvType::F32, KvType::F16, KvType::BF16}) {
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

void check_policies(const std::vector<KernelTable>& tables) {
  Random random(5);
  for (int i = 0; i < 10; ++i) {
    const Shape shape = random_shape(random);
    const std::vector<Sequence> sequences{Sequence(shape, 400, random)};
    const Outputs expected = whole_and_alone(tables[0], shape, sequences, random);
    for (const KernelTable& kernels : tables) {
      check_equal("policies", kernels, shape, expected, whole_and_alone(kernels, shape, sequences, random));
    }
  }
}

// ---- bench ----

struct Workload {
  const char* name;
  Shape shape;
  int64_t num_rows, context_len, num_tokens;  // of each row
};

// Attention of so many layers, each with its own cache, so that keys and values come from memory.
void bench_workload(const KernelTable& kernels, const Workload& work, int num_threads) {
  Random random(1);
  const Shape& shape = work.shape;
  const int64_t length = work.context_len + work.num_tokens;
  const int64_t num_layers = 30;
  std::vector<Cache> layers;
  std::vector<std::vector<int32_t>> tables;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const int64_t blocks = work.num_rows * ((length + shape.block_size - 1) / shape.block_size);
    layers.emplace_back(shape, blocks, random);
    const KvLayer& kv = layers.back().kv();
    std::memset(kv.data, 0x3c, static_cast<size_t>(blocks * shape.num_kv_heads * 2 * shape.block_size *
                                                   shape.head_dim * shape.number_bytes()));
  }
  std::vector<BatchRow> rows;
  for (int64_t row = 0; row < work.num_rows; ++row) tables.push_back(layers[0].table(length));
  for (int64_t row = 0; row < work.num_rows; ++row) {
    rows.push_back({static_cast<int32_t>(row * work.num_tokens), static_cast<int32_t>(work.num_tokens),
                    static_cast<int32_t>(work.context_len), tables[static_cast<size_t>(row)].data()});
  }
  StepBatch batch{};
  batch.num_tokens = static_cast<int32_t>(work.num_rows * work.num_tokens);
  batch.num_rows = static_cast<int32_t>(work.num_rows);
  batch.rows = rows.data();
  const int64_t width = shape.num_heads * shape.head_dim;
  const std::vector<float> q = random.normals(batch.num_tokens * width);
  std::vector<float> out(q.size());
  std::vector<float> partials(static_cast<size_t>(kernels.attention_partial_floats(
      batch.num_tokens, batch.num_rows, length, shape.num_heads, shape.head_dim)));
  const auto run_thread = [&](int thread) {
    for (const Cache& layer : layers) {
      const AttentionArgs args{layer.kv(), &batch, q.data(), width, out.data(), width, shape.num_heads,
                               shape.scale(), shape.window, shape.soft_cap, partials.data()};
      kernels.attention(args, thread, num_threads);
      kernels.attention_merge(args, thread, num_threads);  // without the barrier: time, not results
    }
  };
  const double seconds = best_seconds(10, [&] {
    std::vector<std::thread> others;
    for (int thread = 1; thread < num_threads; ++thread) others.emplace_back(run_thread, thread);
    run_thread(0);
    for (std::thread& other : others) other.join();
  }) / num_threads;
  double keys = 0.0, read = 0.0;  // keys that queries see; keys that are read at least once
  for (int64_t token = 0; token < work.num_tokens; ++token) {
    const KeyRange range = visible_keys(work.context_len + token, shape.window);
    keys += static_cast<double>(range.end - range.begin);
    read = static_cast<double>(range.end);
  }
  const double rows_and_layers = static_cast<double>(work.num_rows * num_layers);
  const double flops = 4.0 * keys * static_cast<double>(width) * rows_and_layers;
  const double bytes = 2.0 * read * static_cast<double>(shape.num_kv_heads * shape.head_dim * shape.number_bytes()) * rows_and_layers;
  std::printf("  %-7s %d thread%s  %-26s %-5s %8.2f ms  %6.1f GB/s  %6.1f GFLOP/s\n", kernels.name, num_threads,
              num_threads > 1 ? "s" : " ", work.name, shape.type == KvType::F32 ? "f32" : shape.type == KvType::F16 ? "f16" : "bf16",
              seconds * 1e3, bytes / seconds * 1e-9, flops / seconds * 1e-9);
  std::fflush(stdout);
}

// Workloads whose names contain `filter`.
void bench(const std::vector<KernelTable>& tables, const char* filter) {
  for (const KernelTable& kernels : tables) {
    if (std::strcmp(kernels.name, "scalar") == 0 && tables.size() > 1) continue;
    for (const KvType type : {KvType::BF16, KvType::F32}) {
      const Shape smollm2{9, 3, 64, type, 32};
      const Shape gemma3{4, 1, 256, type, 32};
      for (const Workload& work : {Workload{"decode 32 x 160", smollm2, 32, 159, 1},
                                   Workload{"decode 1 x 2048", smollm2, 1, 2047, 1},
                                   Workload{"prefill 1 x 512", smollm2, 1, 0, 512},
                                   Workload{"gemma decode 32 x 160", gemma3, 32, 159, 1},
                                   Workload{"gemma decode 1 x 2048", gemma3, 1, 2047, 1},
                                   Workload{"gemma prefill 1 x 512", gemma3, 1, 0, 512}}) {
        if (std::strstr(work.name, filter) == nullptr) continue;
        for (const int num_threads : {1, 2}) bench_workload(kernels, work, num_threads);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<KernelTable> tables = kernel_tables();
  if (argc > 1 && std::strcmp(argv[1], "--bench") == 0) {
    bench(tables, argc > 2 ? argv[2] : "");
    return 0;
  }
  for (const KernelTable& kernels : tables) {
    std::printf("%s\n", kernels.name);
    const bool is_slow = std::strcmp(kernels.name, "scalar") == 0;
    run("random shapes", [&] { check_random_shapes(kernels, is_slow ? 6 : 40); });
    if (!is_slow) run("the shapes of real models", [&] { check_chosen_shapes(kernels); });
    run("long sequences are split over threads", [&] { check_split(kernels); });
    run("later tokens do not reach earlier ones", [&] { check_causality(kernels); });
  }
  run("all policies give the same bits", [&] { check_policies(tables); });
  return result();
}
