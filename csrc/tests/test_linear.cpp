// Checks of the vector layer, weight packing and matrix products, outside Python. On x86-64, in csrc/:
//
//   flags="-std=c++17 -O3 -ffp-contract=off -I."
//   g++ $flags -c tests/linear_kernels.cpp -o scalar.o -DOCTAVO_TEST_SCALAR
//   g++ $flags -c tests/linear_kernels.cpp -o avx2.o   -DOCTAVO_TEST_AVX2 -mavx2 -mfma -mf16c
//   g++ $flags -c tests/linear_kernels.cpp -o avx512.o -DOCTAVO_TEST_AVX512
//     with -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl
//   and so on for every name in linear_kernels.cpp, with the flags of CMakeLists.txt
//   g++ $flags tests/test_linear.cpp tests/bench_linear.cpp packing.cpp threads.cpp *.o -pthread -o test_linear
//
// On 64-bit Arm: scalar.o, and neon.o with -DOCTAVO_TEST_NEON.
//
// `test_linear` checks; `test_linear --bench` measures (bench_linear.cpp).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "check.hpp"
#include "formats.hpp"
#include "linear_kernels.hpp"
#include "matrices.hpp"
#include "packing.hpp"
#include "product_definitions.hpp"
#include "threads.hpp"

namespace octavo::tests {

int run_benchmark(const std::vector<const Kernels*>& all, int num_arguments, char** arguments);

namespace {

// The sets that were linked in and that this machine runs.
std::vector<const Kernels*> runnable_kernels() {
  std::vector<const Kernels*> all;
  if (scalar_test_kernels) all.push_back(scalar_test_kernels());
  if (neon_test_kernels) all.push_back(neon_test_kernels());
#if defined(__x86_64__)
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl");
  if (avx2_test_kernels && has_avx2) all.push_back(avx2_test_kernels());
  if (avx512_test_kernels && has_avx512) all.push_back(avx512_test_kernels());
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool has_leaf = __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx);
  const bool has_avx_vnni = has_leaf && (eax & 16);
  if (avx_vnni_test_kernels && has_avx2 && has_avx_vnni) all.push_back(avx_vnni_test_kernels());
  const bool has_avx512_vnni = has_avx512 && __builtin_cpu_supports("avx512vnni");
  if (avx512_vnni_test_kernels && has_avx512_vnni) all.push_back(avx512_vnni_test_kernels());
  const bool has_avx512_bf16 = has_avx512_vnni && has_leaf && (eax & 32);
  if (avx512_bf16_test_kernels && has_avx512_bf16) all.push_back(avx512_bf16_test_kernels());
#endif
  return all;
}

// Equal bits, or both NaN.
bool same_number(float a, float b) { return bits_of(a) == bits_of(b) || (std::isnan(a) && std::isnan(b)); }

constexpr float kUntouched = -12345.0f;

struct ProductCase {
  const Matrix* matrix;
  const std::vector<float>* x;
  int64_t x_stride;
  const float* bias;
  std::vector<int64_t> splits;  // panels at which the work is cut
  Activations activations = Activations::Float32;
};

// All rows of a case rounded, `stride` bytes to a row.
std::vector<uint8_t> rounded_rows(const Kernels& kernels, const ProductCase& c, int64_t num_tokens,
                                  int64_t stride) {
  if (c.activations == Activations::Float32) return {};
  std::vector<uint8_t> rows(static_cast<size_t>((num_tokens + 1) * stride), 77);
  const auto round = c.activations == Activations::Int8 ? kernels.round_int8 : kernels.round_bf16;
  round({c.x->data(), c.x_stride, c.matrix->cols, rows.data(), stride, 0, num_tokens});
  const bool others_untouched = std::all_of(rows.begin() + num_tokens * stride, rows.end(),
                                            [](uint8_t byte) { return byte == 77; });
  check(others_untouched, "%s: something else than rows rounded", kernels.name);
  return rows;
}

// Outputs of the first `num_tokens` tokens, [num_tokens][rows]; checks that nothing else was written.
std::vector<float> products(const Kernels& kernels, const ProductCase& c, int64_t num_tokens) {
  const Matrix& matrix = *c.matrix;
  const int64_t out_stride = matrix.rows + 3;
  std::vector<float> out(static_cast<size_t>((num_tokens + 1) * out_stride), kUntouched);
  std::vector<float> scratch(static_cast<size_t>(kernels.linear_scratch_floats(matrix.cols)) + 1, kUntouched);
  const int64_t rounded_stride = 2 * matrix.cols + 16;
  const std::vector<uint8_t> rounded = rounded_rows(kernels, c, num_tokens, rounded_stride);
  const auto multiply = c.activations == Activations::Int8       ? kernels.linear_int8
                        : c.activations == Activations::BFloat16 ? kernels.linear_bf16
                                                                 : kernels.linear;
  // The last share first, so that rows which an earlier share should leave alone are noticed.
  std::vector<int64_t> cuts = c.splits;
  int64_t end = matrix.num_panels();
  for (cuts.insert(cuts.begin(), 0); !cuts.empty(); cuts.pop_back()) {
    const LinearArgs args = {matrix.type, matrix.panels.data(), matrix.bytes_of_panel(), matrix.rows,
                             matrix.cols, c.x->data(), c.x_stride, num_tokens, out.data(), out_stride,
                             c.bias, cuts.back(), end, scratch.data(), rounded.data(), rounded_stride};
    multiply(args);
    end = cuts.back();
  }
  check(scratch.back() == kUntouched, "%s: scratch memory overrun", kernels.name);

  std::vector<float> result;
  bool others_untouched = true;
  for (int64_t t = 0; t <= num_tokens; ++t) {
    const float* row = out.data() + t * out_stride;
    const int64_t written = t < num_tokens ? matrix.rows : 0;
    result.insert(result.end(), row, row + written);
    others_untouched &= std::all_of(row + written, row + out_stride, [](float y) { return y == kUntouched; });
  }
  check(others_untouched, "%s: something else than rows of panels written", kernels.name);
  return result;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return bits_of(x) == bits_of(y); });
}

// A finite or special float of any size, often close to a rounding boundary of the 16-bit formats.
float any_float(Random& random) {
  static const std::vector<uint32_t> special = {
      0,          0x80000000, 1,          0x80000001, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f7fffff,
      0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x387fffff, 0x38800000, 0x3f000000, 0x3fc00000,
      0xbf000000, 0x4b000000, 0x4affffff, 0xcb000001, 0x7f7f8000, 0x4afffffe, 0x3effffff, 0xbf800000};
  const uint32_t bits = static_cast<uint32_t>(random.below(int64_t{1} << 32));
  const uint32_t near = static_cast<uint32_t>(random.below(3));
  switch (random.below(8)) {
    case 0: return float_of(random.pick(special));
    case 1: return float_of((bits & 0x8fffffffu) | 0x30000000u);    // small
    case 2: return float_of((bits & 0xffffe000u) | (0xfffu + near));   // a tie of f16, or next to one
    case 3: return float_of((bits & 0xffff0000u) | (0x7fffu + near));  // a tie of bf16, or next to one
    case 4: return std::ldexp(uniform_float(random), static_cast<int>(random.between(-20, 19)));
    default: return float_of(bits);
  }
}

void check_vector_layer(const std::vector<const Kernels*>& all) {
  Random random(1);
  for (int round = 0; round < 20000; ++round) {
    float a[8], b[8], c[8];
    for (int i = 0; i < 8; ++i) {
      a[i] = any_float(random);
      b[i] = random.below(8) == 0 ? a[i] : any_float(random);
      c[i] = random.below(4) == 0 ? -a[i] * b[i] : any_float(random);
    }
    std::vector<uint32_t> first;
    for (const Kernels* kernels : all) {
      std::vector<uint32_t> words(kMostVectorResults);
      words.resize(static_cast<size_t>(kernels->vector_results(a, b, c, words.data())));
      for (uint32_t& word : words) {  // any NaN is as good as another
        if ((word & 0x7fffffffu) > 0x7f800000u) word = 0x7fc00000u;
      }
      if (kernels == all.front()) first = words;
      check(first == words, "%s differs from %s", kernels->name, all.front()->name);
    }
  }
}

// The roundings to 16 bits and the fused multiply-add are also right, not only alike.
void check_rounding(const Kernels& kernels) {
  Random random(2);
  for (int round = 0; round < 20000; ++round) {
    float a[8], b[8], c[8];
    for (int i = 0; i < 8; ++i) {
      a[i] = any_float(random);
      b[i] = any_float(random);
      // Often a sum in which almost everything cancels.
      const float factor = 1.0f + uniform_float(random) * 0x1p-20f;
      c[i] = random.below(2) ? -a[i] * b[i] * factor : any_float(random);
    }
    uint32_t words[kMostVectorResults];
    kernels.vector_results(a, b, c, words);
    for (int i = 0; i < 8; ++i) {
      const uint16_t f16 = static_cast<uint16_t>(words[kF16Results + i]);
      const uint16_t bf16 = static_cast<uint16_t>(words[kBf16Results + i]);
      if (std::isnan(a[i])) {
        check(std::isnan(f16_value(f16)), "%s: NaN to f16", kernels.name);
        check(std::isnan(bf16_value(bf16)), "%s: NaN to bf16", kernels.name);
      } else {
        check(nearest_half(a[i], 0x7c00, f16_value) == f16, "%s: %a to f16", kernels.name, a[i]);
        check(nearest_half(a[i], 0x7f80, bf16_value) == bf16, "%s: %a to bf16", kernels.name, a[i]);
      }
      check(same_number(a[i] + b[i], float_of(words[kAddResults + i])), "%s: sum", kernels.name);
      check(same_number(std::fma(a[i], b[i], c[i]), float_of(words[kFmaResults + i])),
            "%s: %a * %a + %a", kernels.name, a[i], b[i], c[i]);
    }
  }
}

// A row of every type comes back from its panel as the format defines it.
void check_embedding(const std::vector<const Kernels*>& all, const NamedType& named) {
  Random random(3);
  const int64_t block = block_elements(named.type);
  for (const int64_t cols : {block, 3 * block, is_float(named.type) ? int64_t{37} : 4 * block}) {
    const Matrix matrix = random_matrix(named.type, 21, cols, random);
    const std::vector<int32_t> ids = {20, 0, 7, 8, 3, 20, 15, 16};
    for (const Kernels* kernels : all) {
      for (const float scale : {1.0f, 0.3f}) {
        const int64_t count = static_cast<int64_t>(ids.size());
        std::vector<float> out(static_cast<size_t>(count * cols), kUntouched);
        kernels->embed({named.type, matrix.panels.data(), matrix.bytes_of_panel(), matrix.rows, cols,
                        ids.data(), scale, out.data(), cols, 1, count});
        bool equal = out[0] == kUntouched;
        for (int64_t t = 1; t < count; ++t) {
          for (int64_t k = 0; k < cols; ++k) {
            const float expected = scale * matrix.value(ids[static_cast<size_t>(t)], k);
            equal &= expected == out[static_cast<size_t>(t * cols + k)];
          }
        }
        check(equal, "%s %s, %lld columns", kernels->name, named.name, static_cast<long long>(cols));
      }
    }
  }
}

void check_against_double(const ProductCase& c, const std::vector<float>& chain, int64_t num_tokens,
                          const char* name) {
  const Matrix& matrix = *c.matrix;
  // Activations of a group lose up to half of 1 / 127 of the largest, here 1.
  const bool is_int8 = c.activations == Activations::Int8;
  const double tolerance = is_int8 ? 0.5 / 127 : c.activations == Activations::BFloat16 ? 0x1p-8 : 1e-5;
  for (int64_t t = 0; t < num_tokens; t += 7) {
    for (int64_t row = 0; row < matrix.rows; ++row) {
      double sum = 0, size = 0;
      for (int64_t k = 0; k < matrix.cols; ++k) {
        const double term = static_cast<double>(matrix.value(row, k)) *
                            (*c.x)[static_cast<size_t>(t * c.x_stride + k)];
        sum += term;
        size += is_int8 ? std::fabs(matrix.value(row, k)) : std::fabs(term);
      }
      if (c.bias) sum += c.bias[row];
      const double error = std::fabs(sum - chain[static_cast<size_t>(t * matrix.rows + row)]);
      check(error <= tolerance * size + 1e-6, "%s: error %g of terms that add up to %g", name, error, size);
    }
  }
}

// Every instruction set gives the bits of the definition, for any number of tokens and any split.
void check_products(const std::vector<const Kernels*>& all, const NamedType& named, int64_t rows,
                    int64_t cols, const std::vector<int64_t>& token_counts, Activations activations) {
  Random random(4);
  const Matrix matrix = random_matrix(named.type, rows, cols, random);
  const int64_t x_stride = cols + 5;
  const int64_t most = *std::max_element(token_counts.begin(), token_counts.end());
  const std::vector<float> x = random_floats(most * x_stride, random);
  const std::vector<float> bias = random_floats(rows, random);
  const int64_t last = matrix.num_panels();
  const std::vector<std::vector<int64_t>> ways_to_split = {{}, {last / 2}, {1, 1, last / 3, last - 1}};
  for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
    ProductCase c{&matrix, &x, x_stride, b, {}, activations};
    const std::vector<float> expected = defined_products(activations, matrix, x, x_stride, most, b);
    check_against_double(c, expected, most, named.name);
    for (const int64_t num_tokens : token_counts) {
      const std::vector<float> first(expected.begin(), expected.begin() + num_tokens * rows);
      const size_t way = static_cast<size_t>(num_tokens) % ways_to_split.size();
      c.splits = ways_to_split[b ? way : 0];
      for (const Kernels* kernels : all) {
        check(same_bits(first, products(*kernels, c, num_tokens)), "%s %s, %lld x %lld, %lld tokens of %s",
              kernels->name, named.name, static_cast<long long>(rows), static_cast<long long>(cols),
              static_cast<long long>(num_tokens), name_of(activations));
      }
    }
  }
}

std::vector<int64_t> range(int64_t first, int64_t last) {
  std::vector<int64_t> values;
  for (int64_t i = first; i <= last; ++i) values.push_back(i);
  return values;
}

void check_product_shapes(const std::vector<const Kernels*>& all, const NamedType& named,
                          Activations activations) {
  const int64_t block = block_elements(named.type);
  check_products(all, named, 100, block == 1 ? 96 : block, range(1, 70), activations);
  check_products(all, named, 8, block, {0, 1, 5}, activations);
  check_products(all, named, 1, block, {1, 2, 9}, activations);
  check_products(all, named, 77, 1280, {1, 3, 13, 100}, activations);  // more than one scratch panel
  if (block == 1) {
    for (int64_t cols = 1; cols <= 9; ++cols) check_products(all, named, 19, cols, {1, 2, 6, 25}, activations);
    check_products(all, named, 40, 1027, {1, 4, 33}, activations);
  }
}

// The largest sums that a type allows, where integers of too few bits would overflow.
void check_extremes(const std::vector<const Kernels*>& all, const NamedType& named) {
  Random random(8);
  for (const uint8_t byte : {0x00, 0xff, 0x80, 0x7f}) {
    const int64_t cols = block_elements(named.type), rows = 16, num_tokens = 7;
    Matrix matrix{named.type, rows, cols, random_rows(named.type, rows, cols, random), {}};
    fill_weights(matrix, byte);
    pack(matrix, named.type);
    std::vector<float> x(static_cast<size_t>(num_tokens * cols));
    for (size_t i = 0; i < x.size(); ++i) x[i] = i / static_cast<size_t>(cols) % 2 ? 1.0f : -1.0f;
    ProductCase c{&matrix, &x, cols, nullptr, {}, Activations::Int8};
    const std::vector<float> expected = int8_products(matrix, x, cols, num_tokens, nullptr);
    for (const Kernels* kernels : all) {
      check(same_bits(expected, products(*kernels, c, num_tokens)), "%s %s of bytes %d", kernels->name,
            named.name, byte);
    }
  }
}

// Products of bfloat16 near the smallest normal number and beyond the largest.
void check_pairs_of_any_size(const std::vector<const Kernels*>& all) {
  Random random(10);
  for (int round = 0; round < 2000; ++round) {
    const int64_t rows = 16, cols = 6, num_tokens = 3;
    Matrix matrix{WeightType::BF16, rows, cols, random_rows(WeightType::BF16, rows, cols, random), {}};
    const auto any_bits = [&] {
      const int64_t exponent = round % 2 ? random.below(255) : random.below(10) ? random.between(40, 90) : 0;
      return static_cast<uint32_t>(random.below(2) << 31 | exponent << 23 | random.below(int64_t{1} << 23));
    };
    for (size_t at = 0; at < matrix.file.size(); at += 2) {
      const uint16_t half = static_cast<uint16_t>(any_bits() >> 16);
      std::memcpy(&matrix.file[at], &half, sizeof half);
    }
    pack(matrix, WeightType::BF16);
    std::vector<float> x(static_cast<size_t>(num_tokens * cols));
    for (float& value : x) value = float_of(any_bits());
    const ProductCase c{&matrix, &x, cols, nullptr, {}, Activations::BFloat16};
    const std::vector<float> first = products(*all.front(), c, num_tokens);
    for (const Kernels* kernels : all) {
      const std::vector<float> own = products(*kernels, c, num_tokens);
      check(std::equal(own.begin(), own.end(), first.begin(), same_number), "%s differs", kernels->name);
    }
  }
}

// Rows of zeros, of numbers too small to count and of a single large one.
void check_quantised_rows(const std::vector<const Kernels*>& all) {
  Random random(9);
  const int64_t cols = 96, num_rows = 300;
  std::vector<float> x = random_floats(num_rows * cols, random);
  for (int64_t row = 0; row < num_rows; ++row) {
    const float factor = std::ldexp(1.0f, static_cast<int>(random.between(-126, 100)));
    for (int64_t k = 0; k < cols; ++k) {
      float& value = x[static_cast<size_t>(row * cols + k)];
      value = row == 0 || random.below(9) == 0 ? 0.0f : value * (k == 40 ? 100.0f : factor);
    }
  }
  Matrix shape{WeightType::F32, 0, cols, {}, {}};
  const ProductCase c{&shape, &x, cols, nullptr, {}, Activations::Int8};
  const int64_t stride = rounded_row_bytes(Rounding::Int8, cols);
  for (const Kernels* kernels : all) {
    const std::vector<uint8_t> rows = rounded_rows(*kernels, c, num_rows, stride);
    bool equal = true;
    for (int64_t row = 0; row < num_rows; ++row) {
      const QuantisedTwin twin = quantised_twin(x.data() + row * cols, cols);
      const uint8_t* actual = rows.data() + row * stride;
      for (size_t k = 0; k < twin.q.size(); ++k) equal &= static_cast<int8_t>(actual[k]) == twin.q[k];
      for (size_t group = 0; group < twin.scales.size(); ++group) {
        float scale;
        std::memcpy(&scale, actual + cols + 16 * static_cast<int64_t>(group), sizeof scale);
        equal &= bits_of(scale) == bits_of(twin.scales[group]);
      }
    }
    check(equal, "%s", kernels->name);
  }
}

void check_row_order(const Kernels& kernels, const NamedType& named) {
  Random random(5);
  const int64_t rows = 27, cols = std::max<int64_t>(block_elements(named.type), 16);
  Matrix matrix = random_matrix(named.type, rows, cols, random);
  std::vector<int32_t> order(static_cast<size_t>(rows));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>((i * 11 + 4) % order.size());
  const std::vector<float> x = random_floats(cols, random);
  ProductCase c{&matrix, &x, cols, nullptr, {}};
  const std::vector<float> in_file_order = products(kernels, c, 1);
  pack(matrix, named.type, order.data());
  const std::vector<float> ordered = products(kernels, c, 1);
  bool equal = true;
  for (size_t i = 0; i < order.size(); ++i) {
    equal &= in_file_order[static_cast<size_t>(order[i])] == ordered[i];
  }
  check(equal, "%s", named.name);
}

// Packing F32 as BF16, BF16 as F16 and so on rounds each number once.
void check_conversion(const Kernels& kernels, WeightType from, WeightType to) {
  Random random(6);
  const int64_t rows = 11, cols = 33;
  Matrix source{from, rows, cols, random_rows(from, rows, cols, random), {}};
  Matrix packed{to, rows, cols, source.file, {}};
  pack(packed, from);
  std::vector<float> row(static_cast<size_t>(cols));
  for (int32_t r = 0; r < rows; ++r) {
    kernels.embed({to, packed.panels.data(), packed.bytes_of_panel(), rows, cols, &r, 1.0f, row.data(),
                   cols, 0, 1});
    for (int64_t k = 0; k < cols; ++k) {
      float expected = source.value(r, k);
      if (to == WeightType::F16) expected = f16_value(nearest_half(expected, 0x7c00, f16_value));
      if (to == WeightType::BF16) expected = bf16_value(nearest_half(expected, 0x7f80, bf16_value));
      check(expected == row[static_cast<size_t>(k)], "type %d to %d, %a became %a", static_cast<int>(from),
            static_cast<int>(to), source.value(r, k), row[static_cast<size_t>(k)]);
    }
  }
}

// A token with infinities and NaN spoils its own outputs only.
void check_isolation(const Kernels& kernels, const NamedType& named, Activations activations) {
  Random random(7);
  const int64_t cols = std::max<int64_t>(block_elements(named.type), 16), num_tokens = 9;
  const Matrix matrix = random_matrix(named.type, 24, cols, random);
  std::vector<float> x = random_floats(num_tokens * cols, random);
  ProductCase c{&matrix, &x, cols, nullptr, {}, activations};
  const std::vector<float> clean = products(kernels, c, num_tokens);
  for (int64_t k = 0; k < cols; ++k) x[static_cast<size_t>(4 * cols + k)] = k % 2 ? INFINITY : NAN;
  std::vector<float> spoilt = products(kernels, c, num_tokens);
  bool all_nan = true;
  for (int64_t row = 0; row < 24; ++row) {
    float& y = spoilt[static_cast<size_t>(4 * 24 + row)];
    all_nan &= std::isnan(y);
    y = clean[static_cast<size_t>(4 * 24 + row)];
  }
  check(all_nan && same_bits(clean, spoilt), "%s %s", kernels.name, named.name);
}

template <class Test>
void each_type(Test test) {
  for (const NamedType& named : kTypes) test(named);
}

template <class Test>
void each_int8_type(Test test) {
  for (const NamedType& named : kTypes) {
    if (takes_int8(named.type)) test(named);
  }
}

int run_checks(const std::vector<const Kernels*>& all) {
  for (const Kernels* kernels : all) std::printf("%s ", kernels->name);
  std::printf("kernels\n");

  run("the vector layer gives the same bits in every instruction set", [&] { check_vector_layer(all); });
  run("conversions and fused multiply-adds are rounded to nearest even, once", [&] {
    for (const Kernels* kernels : all) check_rounding(*kernels);
  });
  run("packed rows come back as their format defines them", [&] {
    each_type([&](const NamedType& named) { check_embedding(all, named); });
  });
  run("products are one chain for any tokens, split, bias and instruction set", [&] {
    each_type([&](const NamedType& named) { check_product_shapes(all, named, Activations::Float32); });
  });
  run("activations become int8 as defined", [&] { check_quantised_rows(all); });
  run("products with int8 activations are as defined, for any tokens and split", [&] {
    each_int8_type([&](const NamedType& named) { check_product_shapes(all, named, Activations::Int8); });
  });
  run("products with bfloat16 activations are as defined, for any tokens and split", [&] {
    check_product_shapes(all, {WeightType::BF16, "BF16"}, Activations::BFloat16);
  });
  run("they give the same bits where numbers overflow and where denormals count as zero", [&] {
    ThreadPool(1, false).run([&](int) { check_pairs_of_any_size(all); });
  });
  run("the largest weights and activations overflow nothing", [&] {
    each_int8_type([&](const NamedType& named) { check_extremes(all, named); });
  });
  run("rows are packed in the order asked for", [&] {
    each_type([&](const NamedType& named) { check_row_order(*all.back(), named); });
  });
  run("a token of NaN and infinity spoils its own outputs only", [&] {
    each_type([&](const NamedType& named) {
      for (const Kernels* kernels : all) {
        for (const Activations activations : {Activations::Float32, Activations::Int8, Activations::BFloat16}) {
          if (takes(named.type, activations)) check_isolation(*kernels, named, activations);
        }
      }
    });
  });
  run("floats are converted between types on packing, rounded once", [&] {
    const WeightType float_types[] = {WeightType::F32, WeightType::F16, WeightType::BF16};
    for (const WeightType from : float_types) {
      for (const WeightType to : float_types) check_conversion(*all.back(), from, to);
    }
  });
  return result();
}

}  // namespace
}  // namespace octavo::tests

int main(int num_arguments, char** arguments) {
  const std::vector<const octavo::tests::Kernels*> all = octavo::tests::runnable_kernels();
  if (num_arguments > 1 && std::strcmp(arguments[1], "--bench") == 0) {
    return octavo::tests::run_benchmark(all, num_arguments, arguments);
  }
  return octavo::tests::run_checks(all);
}
