// Speed of matrix products:
//   test_linear --bench [--isa NAME] [--type NAME] [--threads N] [--tokens N] [--activations int8|bfloat16]
//
// Weights are cold: rounds walk through copies of the layers of a small model that are larger together than
// the caches. Figures are the best of many rounds, beside the roofs of the machine: fused multiply-adds from
// registers and reading memory.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "linear_kernels.hpp"
#include "matrices.hpp"
#include "packing.hpp"

namespace octavo::tests {
namespace {

struct Options {
  std::string isa, type, activations;
  int num_threads = 1;
  int64_t num_tokens = 0;  // 0: a series
};

// Rows and columns of the products of one SmolLM2-135M layer: q and k and v, output, gate and up, down.
constexpr int64_t kShapes[][2] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}};
constexpr double kLayerWeights = 960 * 576 + 576 * 576 + 3072 * 576 + 576 * 1536;
constexpr int64_t kColdBytes = 192 << 20;

// Processor time of this thread, so that other programs on the machine hardly matter.
double now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Run `work(thread)` on all threads and return the seconds of the slowest.
template <class Work>
double seconds(int num_threads, Work work) {
  std::vector<double> taken(static_cast<size_t>(num_threads));
  const auto timed = [&](int thread) {
    const double start = now();
    work(thread);
    taken[static_cast<size_t>(thread)] = now() - start;
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads; ++i) threads.emplace_back(timed, i);
  timed(0);
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(taken.begin(), taken.end());
}

// The best of many rounds of a few milliseconds.
template <class Work>
double best_round(int num_threads, Work work) {
  double best = 1e9, total = 0;
  for (int round = 0; round < 5 || (total < 0.6 && round < 100); ++round) {
    const double taken = seconds(num_threads, [&](int thread) { work(round, thread); });
    best = std::min(best, taken);
    total += taken;
  }
  return best;
}

void print_roofs(const Kernels& kernels, int num_threads) {
  double flops = 0;
  std::vector<float> results(static_cast<size_t>(num_threads));
  const double fma_seconds = best_round(num_threads, [&](int, int thread) {
    const double one = kernels.multiply_adds(100000, &results[static_cast<size_t>(thread)]);
    if (thread == 0) flops = one * num_threads;
  });
  std::vector<uint64_t> memory(kColdBytes / 8, 1);
  std::vector<uint64_t> sums(static_cast<size_t>(num_threads));
  const int64_t rounds = 8;
  const size_t share = memory.size() / static_cast<size_t>(rounds * num_threads);
  const double read_seconds = best_round(num_threads, [&](int round, int thread) {
    const uint64_t* at = memory.data() + share * static_cast<size_t>(round % rounds * num_threads + thread);
    uint64_t sum[8] = {};
    for (size_t i = 0; i < share; i += 8) {
      for (size_t j = 0; j < 8; ++j) sum[j] += at[i + j];
    }
    for (const uint64_t part : sum) sums[static_cast<size_t>(thread)] += part;
  });
  std::printf("%s, %d thread(s): %.1f GFLOP/s of multiply-adds, %.1f GB/s read\n", kernels.name, num_threads,
              flops / fma_seconds * 1e-9, static_cast<double>(kColdBytes / rounds) / read_seconds * 1e-9);
}

struct Body {
  std::vector<Matrix> matrices;
  int64_t num_weights = 0, num_bytes = 0;
};

// Enough layers for cold weights, or only `most_weights` of them.
Body make_body(WeightType type, int64_t most_weights) {
  Random random(1);
  Body body;
  while (body.num_bytes < kColdBytes && body.num_weights < most_weights) {
    for (const auto& shape : kShapes) {
      // K-quants need a multiple of 256 columns.
      const int64_t block = block_elements(type);
      const int64_t cols = (shape[1] + block - 1) / block * block;
      if (body.matrices.size() < std::size(kShapes)) {
        body.matrices.push_back(random_matrix(type, shape[0], cols, random));
      } else {
        body.matrices.push_back(body.matrices[body.matrices.size() - std::size(kShapes)]);
      }
      body.num_weights += shape[0] * cols;
      body.num_bytes += body.matrices.back().num_panels() * body.matrices.back().bytes_of_panel();
    }
  }
  return body;
}

void measure(const Kernels& kernels, const NamedType& named, const Body& body, const Options& options,
             int64_t num_tokens) {
  Random random(2);
  const std::vector<float> x = random_floats(num_tokens * 1536, random);
  std::vector<float> out(static_cast<size_t>(num_tokens * 3072));
  const int num_threads = options.num_threads;
  std::vector<std::vector<float>> scratch;
  for (int i = 0; i < num_threads; ++i) {
    scratch.emplace_back(static_cast<size_t>(kernels.linear_scratch_floats(1536)));
  }
  // Layers of one round; the next round goes on with those that follow.
  const double layer_flops = 2.0 * static_cast<double>(num_tokens) * kLayerWeights;
  const size_t num_layers = body.matrices.size() / std::size(kShapes);
  const size_t layers = std::clamp(static_cast<size_t>(1e8 / layer_flops), size_t{1}, num_layers);
  const bool is_int8 = options.activations == "int8", is_rounded = !options.activations.empty();
  const auto round_rows = is_int8 ? kernels.round_int8 : kernels.round_bf16;
  const auto multiply = is_int8 ? kernels.linear_int8 : kernels.linear_bf16;
  const int64_t stride = rounded_row_bytes(is_int8 ? Rounding::Int8 : Rounding::BFloat16, 1536);
  std::vector<uint8_t> rounded(static_cast<size_t>(stride * num_tokens));
  const double taken = best_round(num_threads, [&](int round, int thread) {
    const size_t first = static_cast<size_t>(round) * layers * std::size(kShapes);
    for (size_t i = first; i < first + layers * std::size(kShapes); ++i) {
      const Matrix& matrix = body.matrices[i % body.matrices.size()];
      const int64_t panels = matrix.num_panels();
      const LinearArgs args = {matrix.type, matrix.panels.data(), matrix.bytes_of_panel(), matrix.rows,
                               matrix.cols, x.data(), matrix.cols, num_tokens, out.data(), matrix.rows,
                               nullptr, panels * thread / num_threads,
                               panels * (thread + 1) / num_threads,
                               scratch[static_cast<size_t>(thread)].data(), rounded.data(), stride};
      if (!is_rounded) {
        kernels.linear(args);
        continue;
      }
      // Nobody waits for the rows of other threads, which hold the same numbers in every round.
      round_rows({x.data(), matrix.cols, matrix.cols, rounded.data(), stride, num_tokens * thread / num_threads,
                  num_tokens * (thread + 1) / num_threads});
      multiply(args);
    }
  });
  const double share = static_cast<double>(layers) / static_cast<double>(num_layers);
  std::printf("  %-5s %4lld tokens %7.1f GFLOP/s %6.2f GB/s\n", named.name,
              static_cast<long long>(num_tokens),
              2 * share * static_cast<double>(body.num_weights * num_tokens) / taken * 1e-9,
              share * static_cast<double>(body.num_bytes) / taken * 1e-9);
  std::fflush(stdout);
}

void measure_packing(const NamedType& named) {
  Random random(3);
  const int64_t cols = 1536, rows = 64;
  const std::vector<uint8_t> few = random_rows(named.type, rows, cols, random);
  Matrix matrix{named.type, 0, cols, {}, {}};
  while (matrix.file.size() < (100u << 20)) matrix.file.insert(matrix.file.end(), few.begin(), few.end());
  matrix.rows = static_cast<int64_t>(matrix.file.size()) / file_row_bytes(named.type, cols);
  matrix.panels.resize(static_cast<size_t>(matrix.num_panels() * matrix.bytes_of_panel()), 1);
  const double taken = best_round(1, [&](int, int) {
    pack_panels({matrix.file.data(), named.type, named.type, matrix.rows, cols, nullptr,
                 matrix.panels.data(), 0, matrix.num_panels()});
  });
  std::printf("  %-5s packed at %5.2f GB/s of the file\n", named.name,
              static_cast<double>(matrix.file.size()) / taken * 1e-9);
}

Options parse(int num_arguments, char** arguments) {
  Options options;
  for (int i = 2; i + 1 < num_arguments; i += 2) {
    const std::string name = arguments[i], value = arguments[i + 1];
    if (name == "--isa") options.isa = value;
    if (name == "--type") options.type = value;
    if (name == "--activations") options.activations = value;
    if (name == "--threads") options.num_threads = std::atoi(value.c_str());
    if (name == "--tokens") options.num_tokens = std::atoll(value.c_str());
  }
  return options;
}

}  // namespace

int run_benchmark(const std::vector<const Kernels*>& all, int num_arguments, char** arguments) {
  const Options options = parse(num_arguments, arguments);
  for (const NamedType& named : kTypes) {
    if (options.type.empty() || options.type == named.name) measure_packing(named);
  }
  std::vector<int64_t> token_counts = {1, 2, 4, 8, 16, 32, 128, 512};
  if (options.num_tokens) token_counts = {options.num_tokens};
  for (const Kernels* kernels : all) {
    if (!options.isa.empty() && options.isa != kernels->name) continue;
    print_roofs(*kernels, options.num_threads);
    for (const NamedType& named : kTypes) {
      if (!options.type.empty() && options.type != named.name) continue;
      if (options.activations == "int8" && !takes_int8(named.type)) continue;
      if (options.activations == "bfloat16" && named.type != WeightType::BF16) continue;
      const Body body = make_body(named.type, 400 << 20);
      for (const int64_t num_tokens : token_counts) measure(*kernels, named, body, options, num_tokens);
    }
  }
  return 0;
}

}  // namespace octavo::tests
