// Times attention beside what the machine can do. Times are those of the processor divided by the number
// of threads, the best of ten.
//
//   bench_attention [part of a workload's name [policy]]     without a policy: all but scalar
//
// Built like test_kernels.cpp, with -pthread.
#include <cstring>
#include <thread>
#include <vector>

#include "../row_groups.hpp"
#include "attention_cases.hpp"

using namespace octavo;
using namespace octavo::tests;

namespace {

struct Workload {
  const char* name;
  Shape shape;
  int64_t num_rows, context_len, num_tokens;  // of each row
  int64_t shared_len = 0;  // tokens at the beginning that all rows have in the same blocks
};

const char* type_name(KvType type) {
  switch (type) {
    case KvType::F32: return "f32 ";
    case KvType::BF16: return "bf16";
    case KvType::Int8: return "int8";
    default: return "fp8 ";
  }
}

// Keys and values of 30 layers, each with its own cache, so that they come from memory, and the rows of a
// step over them.
struct Stored {
  static constexpr int64_t kLayers = 30;
  std::vector<Cache> layers;
  std::vector<std::vector<int32_t>> tables;
  std::vector<BatchRow> rows;

  Stored(const Workload& work, Random& random) {
    const Shape& shape = work.shape;
    const int64_t length = work.context_len + work.num_tokens;
    const int64_t blocks = work.num_rows * ((length + shape.block_size - 1) / shape.block_size);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      layers.emplace_back(shape, blocks, random);
      std::memset(layers.back().kv().data, 0x3c, static_cast<size_t>(shape.bytes(blocks * shape.block_size)));
    }
    for (int64_t row = 0; row < work.num_rows; ++row) {
      tables.push_back(layers[0].table(length));
      std::copy_n(tables.front().begin(), work.shared_len / shape.block_size, tables.back().begin());
    }
    for (int64_t row = 0; row < work.num_rows; ++row) {
      rows.push_back({static_cast<int32_t>(row * work.num_tokens), static_cast<int32_t>(work.num_tokens),
                      static_cast<int32_t>(work.context_len), tables[static_cast<size_t>(row)].data()});
    }
    if (work.shared_len > 0) {
      RowGroups(layers[0].kv().num_blocks, shape.block_size).gather(rows.data(), work.num_rows);
    }
  }
};

// Prints a line: the time of all layers, and what it means for memory and arithmetic.
void report(const char* kernels, const Workload& work, int num_threads, double seconds) {
  const Shape& shape = work.shape;
  double keys = 0.0, read = 0.0;  // keys that queries see; keys that are read at least once
  for (int64_t token = 0; token < work.num_tokens; ++token) {
    const int64_t position = work.context_len + token;
    const int64_t window = shape.window > 0 ? shape.window : position + 1;
    const KeyRange range{std::max<int64_t>(position + 1 - window, 0), position + 1};
    keys += static_cast<double>(range.end - range.begin);
    read = static_cast<double>(range.end);
  }
  const double rows_and_layers = static_cast<double>(work.num_rows * Stored::kLayers);
  const double flops = 4.0 * keys * static_cast<double>(shape.num_heads * shape.head_dim) * rows_and_layers;
  const double bytes = read * static_cast<double>(shape.bytes(1)) * rows_and_layers;
  std::printf("  %-7s %d threads  %-28s %s  %8.2f ms  %6.1f GB/s  %6.1f GFLOP/s\n", kernels, num_threads,
              work.name, type_name(shape.type), seconds * 1e3, bytes / seconds * 1e-9,
              flops / seconds * 1e-9);
  std::fflush(stdout);
}

void bench_workload(const KernelTable& kernels, const Workload& work, int num_threads) {
  Random random(1);
  const Shape& shape = work.shape;
  const Stored stored(work, random);
  StepBatch batch{};
  batch.num_tokens = static_cast<int32_t>(work.num_rows * work.num_tokens);
  batch.num_rows = static_cast<int32_t>(work.num_rows);
  batch.rows = stored.rows.data();
  const int64_t width = shape.num_heads * shape.head_dim;
  const std::vector<float> q = random.normals(batch.num_tokens * width);
  std::vector<float> out(q.size());
  std::vector<float> partials(static_cast<size_t>(
      kernels.attention_partial_floats(batch.num_tokens, batch.num_rows, work.context_len + work.num_tokens,
                                       shape.num_heads, shape.head_dim)));
  const auto run_thread = [&](int thread) {
    for (const Cache& layer : stored.layers) {
      const AttentionArgs args{layer.kv(),   &batch, q.data(),        width,
                               out.data(),   width,  shape.num_heads, shape.scale(),
                               shape.window, shape.soft_cap, partials.data()};
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
  report(kernels.name, work, num_threads, seconds);
}

// What the machine can do: fused multiply-adds without memory, and reading memory that is in no cache.
template <class V>
void bench_machine() {
  using W = typename V::Wide;
  using Floats = typename W::Floats;
  constexpr int kChains = 10;
  volatile float unknown = 0.999f;  // to the compiler
  float sink[W::kLanes];
  const double multiply_seconds = best_seconds(20, [&] {
    const Floats factor = W::set1(unknown), addend = W::set1(1.0f - unknown);
    Floats sums[kChains];
    for (Floats& sum : sums) sum = W::set1(unknown);
    for (int i = 0; i < 300000; ++i) {
      OCTAVO_UNROLL
      for (int chain = 0; chain < kChains; ++chain) {
        sums[chain] = W::fma(sums[chain], factor, addend);
      }
    }
    for (int chain = 1; chain < kChains; ++chain) sums[0] = W::add(sums[0], sums[chain]);
    W::store(sink, sums[0]);
    unknown = sink[0] > 2.0f ? 0.99f : 0.999f;
  });
  const std::vector<float> memory(size_t{1} << 25, 1.0f);
  const double read_seconds = best_seconds(5, [&] {
    Floats sums[kChains];
    for (Floats& sum : sums) sum = W::zero();
    for (size_t i = 0; i + kChains * W::kLanes <= memory.size(); i += kChains * W::kLanes) {
      OCTAVO_UNROLL
      for (int chain = 0; chain < kChains; ++chain) {
        sums[chain] = W::add(sums[chain], W::load(&memory[i + static_cast<size_t>(chain * W::kLanes)]));
      }
    }
    for (int chain = 1; chain < kChains; ++chain) sums[0] = W::add(sums[0], sums[chain]);
    W::store(sink, sums[0]);
    unknown = sink[0];
  });
  const double flops = 2.0 * 300000 * kChains * W::kLanes;
  const double bytes = static_cast<double>(memory.size() * sizeof(float));
  std::printf("%s, one thread of this machine: %.1f GFLOP/s, %.1f GB/s\n", V::kName,
              flops / multiply_seconds * 1e-9, bytes / read_seconds * 1e-9);
}

// Workloads whose names contain `filter`.
void bench_policy(const KernelTable& kernels, const char* filter) {
  for (const KvType type : {KvType::BF16, KvType::F32, KvType::Int8, KvType::Fp8E4M3}) {
    const Shape smollm2{9, 3, 64, type, 32};
    const Shape gemma3{4, 1, 256, type, 32};
    for (const Workload& work : {Workload{"decode 32 x 160", smollm2, 32, 159, 1},
                                 Workload{"decode 1 x 2048", smollm2, 1, 2047, 1},
                                 Workload{"prefill 1 x 512", smollm2, 1, 0, 512},
                                 Workload{"decode 8 x 2048", smollm2, 8, 2079, 1},
                                 Workload{"decode 8 x 2048 shared", smollm2, 8, 2079, 1, 2048},
                                 Workload{"decode 2 x 2048 shared", smollm2, 2, 2079, 1, 2048},
                                 Workload{"decode 8 x 512 shared", smollm2, 8, 543, 1, 512},
                                 Workload{"decode 8 x 256 shared", smollm2, 8, 287, 1, 256},
                                 Workload{"decode 32 x 2048 shared", smollm2, 32, 2079, 1, 2048},
                                 Workload{"gemma decode 8 x 2048 shared", gemma3, 8, 2079, 1, 2048},
                                 Workload{"gemma decode 8 x 256 shared", gemma3, 8, 287, 1, 256},
                                 Workload{"gemma decode 32 x 160", gemma3, 32, 159, 1},
                                 Workload{"gemma decode 1 x 2048", gemma3, 1, 2047, 1},
                                 Workload{"gemma prefill 1 x 512", gemma3, 1, 0, 512}}) {
      if (std::strstr(work.name, filter) == nullptr) continue;
      for (const int num_threads : {1, 2}) bench_workload(kernels, work, num_threads);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  each_policy([&](auto policy) {
    using V = decltype(policy);
    const bool is_scalar = std::strcmp(V::kName, "scalar") == 0;
    if (argc > 2 ? std::strcmp(argv[2], V::kName) != 0 : is_scalar) return;
    bench_machine<V>();
    bench_policy(kernel_table<V>(), argc > 1 ? argv[1] : "");
  });
  return 0;
}
