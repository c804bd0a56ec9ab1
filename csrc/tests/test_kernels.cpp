// Checks of the kernels that work row by row against twins in double precision, for every policy that
// the flags allow; test_attention.cpp checks the others.
//
//   g++ -std=c++17 -O3 -ffp-contract=off csrc/tests/test_kernels.cpp                    scalar only
//   ... -mavx2 -mfma -mf16c                                                              AVX2 as well
//   ... -mavx512f -mavx512bw -mavx512dq -mavx512vl and the flags before                  AVX-512 as well
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "check.hpp"
#include "kernel_tables.hpp"

using namespace octavo;
using namespace octavo::tests;

namespace {

double relative(double actual, double expected, double floor) {
  return std::abs(actual - expected) / std::max(std::abs(expected), floor);
}

// ---- functions ----

// The largest error of a function over [from, to], in units of the last place of the exact result.
template <class V, class Function, class Twin>
double worst_units(double from, double to, Function function, Twin twin) {
  double worst = 0.0;
  for (int64_t i = 0; i < 400000; i += V::kLanes) {
    float x[V::kLanes], y[V::kLanes];
    for (int lane = 0; lane < V::kLanes; ++lane) {
      x[lane] = static_cast<float>(from + (to - from) * (static_cast<double>(i + lane) / 400000));
    }
    V::store(y, function(V::load(x)));
    for (int lane = 0; lane < V::kLanes; ++lane) {
      const double exact = twin(static_cast<double>(x[lane]));
      const float rounded = std::abs(static_cast<float>(exact));
      const double unit = std::nextafter(rounded, INFINITY) - rounded;
      worst = std::max(worst, std::abs(y[lane] - exact) / unit);
    }
  }
  return worst;
}

template <class V>
void check_functions() {
  using Floats = typename V::Floats;
  const auto exponential = [](Floats x) { return exp<V>(x); };
  const auto hyperbolic = [](Floats x) { return tanh<V>(x); };
  const auto logistic = [](Floats x) { return sigmoid<V>(x); };
  const auto complement = [](Floats x) { return erfc_positive<V>(x); };
  const auto exact_logistic = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  const auto units = [](const char* name, double worst, double limit) {
    check(worst <= limit, "%s: %s is off by %.2f units", V::kName, name, worst);
  };
  const auto exact_exp = [](double x) { return std::exp(x); };
  const auto exact_tanh = [](double x) { return std::tanh(x); };
  const auto exact_erfc = [](double x) { return std::erfc(x); };
  units("exp", worst_units<V>(-87.33, 88.72, exponential, exact_exp), 1.1);
  units("exp", worst_units<V>(-1.0, 1.0, exponential, exact_exp), 1.1);
  units("tanh", worst_units<V>(-10.0, 10.0, hyperbolic, exact_tanh), 2.0);
  units("tanh", worst_units<V>(-0.01, 0.7, hyperbolic, exact_tanh), 2.0);
  units("sigmoid", worst_units<V>(-80.0, 80.0, logistic, exact_logistic), 3.0);
  units("erfc", worst_units<V>(0.0, 3.0, complement, exact_erfc), 1e-6 * 16777216);
  units("erfc", worst_units<V>(3.0, 9.0, complement, exact_erfc), 1e-5 * 16777216);

  float x[8] = {-INFINITY, NAN, 0.0f, -0.0f, -1e30f, 1e30f, INFINITY, -87.5f}, y[8];
  V::store(y, exp<V>(V::load(x)));
  check(y[0] == 0 && std::isnan(y[1]) && y[2] == 1 && y[3] == 1 && y[4] == 0 && y[5] > 3.4e38f &&
            y[6] > 3.4e38f && y[7] == 0, "%s: special values of exp", V::kName);
  V::store(y, tanh<V>(V::load(x)));
  check(y[0] == -1 && std::isnan(y[1]) && y[2] == 0 && y[4] == -1 && y[6] == 1,
        "%s: special values of tanh", V::kName);
}

// ---- element-wise, norm, rotary ----

double exact_activation(Activation activation, double x) {
  switch (activation) {
    case Activation::Silu: return x / (1.0 + std::exp(-x));
    case Activation::GeluTanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    default: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  }
}

// Rows outside [begin, end) and the gaps between rows must keep what they hold.
struct Rows {
  int64_t count, width, stride;
  std::vector<float> values;

  Rows(Random& random, int64_t count, int64_t width)
      : count(count), width(width), stride(width + random.below(9)),
        values(random.normals(count * stride, 3.0f)) {}
  float at(int64_t row, int64_t column) const {
    return values[static_cast<size_t>(row * stride + column)];
  }
};

void check_untouched(const char* what, const Rows& before, const Rows& after, int64_t begin,
                     int64_t end) {
  for (int64_t i = 0; i < before.count * before.stride; ++i) {
    const int64_t row = i / before.stride;
    if (begin <= row && row < end && i % before.stride < before.width) continue;
    const size_t at = static_cast<size_t>(i);
    const bool same = std::memcmp(&before.values[at], &after.values[at], sizeof(float)) == 0;
    check(same, "%s wrote outside", what);
  }
}

void check_elements(const KernelTable& kernels) {
  Random random(1);
  for (int64_t size = 1; size < 70; ++size) {
    const Rows a(random, 4, size), b(random, 4, size), out(random, 4, size);
    const Rows both(random, 4, 2 * size);
    ElementArgs args{};
    args.a = a.values.data();
    args.a_stride = a.stride;
    args.b = b.values.data();
    args.b_stride = b.stride;
    args.out_stride = out.stride;
    args.size = size;
    args.factor = random.pick<float>({0.125f, 1.7f, 30.0f});
    args.activation =
        random.pick<Activation>({Activation::Silu, Activation::GeluTanh, Activation::Gelu});
    args.begin = random.below(2);
    args.end = random.between(args.begin, 4);
    const auto check_one = [&](const char* what, const Rows& result, auto twin, double limit) {
      check_untouched(what, out, result, args.begin, args.end);
      for (int64_t row = args.begin; row < args.end; ++row) {
        for (int64_t i = 0; i < size; ++i) {
          const double error = relative(result.at(row, i), twin(row, i), 1e-6);
          check(error < limit, "%s %s of %ld: error %g", kernels.name, what, static_cast<long>(size),
                error);
        }
      }
    };
    const auto apply = [&](auto kernel) {
      Rows result = out;
      args.out = result.values.data();
      kernel(args);
      return result;
    };
    const auto exact = [&](double x) { return exact_activation(args.activation, x); };
    const auto sum = [&](int64_t row, int64_t i) { return double(a.at(row, i)) + b.at(row, i); };
    const auto active = [&](int64_t row, int64_t i) { return exact(a.at(row, i)); };
    const double factor = args.factor;
    const auto scaled = [&](int64_t row, int64_t i) { return a.at(row, i) * factor; };
    const auto capped = [&](int64_t row, int64_t i) {
      return factor * std::tanh(a.at(row, i) / factor);
    };
    check_one("add", apply(kernels.add), sum, 1e-7);
    check_one("activation", apply(kernels.activation), active, 2e-6);
    args.b = nullptr;
    check_one("scale", apply(kernels.scale), scaled, 1e-7);
    check_one("soft_cap", apply(kernels.soft_cap), capped, 5e-7);

    Rows gated = out;
    kernels.gated({both.values.data(), both.stride, gated.values.data(), gated.stride, size,
                   args.activation, args.begin, args.end});
    const auto product = [&](int64_t row, int64_t i) {
      return exact(both.at(row, i)) * both.at(row, size + i);
    };
    check_one("gated", gated, product, 2e-6);
  }
}

void check_norm(const KernelTable& kernels) {
  Random random(2);
  for (int64_t size = 1; size < 900; size += size < 80 ? 1 : 67) {
    const int64_t groups = random.between(1, 3);
    const Rows x(random, 3, groups * size);
    const std::vector<float> weight = random.normals(size);
    Rows out(random, 3, groups * size);
    const Rows before = out;
    kernels.norm({x.values.data(), x.stride, out.values.data(), out.stride, weight.data(), groups,
                  size, 1e-5f, 1, 3});
    check_untouched("norm", before, out, 1, 3);
    for (int64_t row = 1; row < 3; ++row) {
      for (int64_t group = 0; group < groups; ++group) {
        double squares = 0.0;
        for (int64_t i = 0; i < size; ++i) {
          squares += std::pow(double(x.at(row, group * size + i)), 2);
        }
        const double factor = 1.0 / std::sqrt(squares / static_cast<double>(size) + 1e-5f);
        for (int64_t i = 0; i < size; ++i) {
          const int64_t column = group * size + i;
          const double expected = x.at(row, column) * factor * weight[static_cast<size_t>(i)];
          const double error = relative(out.at(row, column), expected, 1e-9);
          check(error < 1e-6, "%s norm of %ld: error %g", kernels.name, static_cast<long>(size),
                error);
        }
      }
    }
  }
}

void check_layer_norm(const KernelTable& kernels) {
  Random random(6);
  for (int64_t size = 1; size < 900; size += size < 80 ? 1 : 67) {
    const Rows x(random, 3, size);
    const std::vector<float> weight = random.normals(size), bias = random.normals(size);
    Rows out(random, 3, size);
    const Rows before = out;
    kernels.layer_norm({x.values.data(), x.stride, out.values.data(), out.stride, weight.data(),
                        bias.data(), size, 1e-3f, 1, 3});
    check_untouched("layer_norm", before, out, 1, 3);
    for (int64_t row = 1; row < 3; ++row) {
      double mean = 0.0, variance = 0.0;
      for (int64_t i = 0; i < size; ++i) mean += double(x.at(row, i)) / double(size);
      for (int64_t i = 0; i < size; ++i) {
        variance += std::pow(double(x.at(row, i)) - mean, 2) / double(size);
      }
      for (int64_t i = 0; i < size; ++i) {
        const double normalised = (x.at(row, i) - mean) / std::sqrt(variance + 1e-3f);
        const size_t column = static_cast<size_t>(i);
        const double error = std::abs(out.at(row, i) - (normalised * weight[column] + bias[column]));
        check(error < 1e-5, "%s layer_norm of %ld: error %g", kernels.name, static_cast<long>(size),
              error);
      }
    }
  }
}

void check_rotary(const KernelTable& kernels) {
  Random random(3);
  for (const int64_t rotary_dim : {2, 6, 16, 20, 32, 64, 256}) {
    for (const int64_t head_dim : {rotary_dim, rotary_dim + 12}) {
      const int64_t half = rotary_dim / 2, heads = 3, tokens = 4;
      const std::vector<int32_t> positions = {0, 1, 4095, 131071};
      std::vector<float> inv_freq;
      for (int64_t i = 0; i < half; ++i) {
        const double exponent = -static_cast<double>(i) / static_cast<double>(half);
        inv_freq.push_back(static_cast<float>(std::pow(10000.0, exponent)));
      }
      std::vector<float> table(static_cast<size_t>(tokens * rotary_dim), 7.0f);
      kernels.rope_table({positions.data(), inv_freq.data(), rotary_dim, 1.5f, table.data(), 0, 2});
      check(table[static_cast<size_t>(2 * rotary_dim)] == 7.0f, "%s rope_table wrote outside",
            kernels.name);
      kernels.rope_table({positions.data(), inv_freq.data(), rotary_dim, 1.5f, table.data(), 2, tokens});

      const Rows x(random, tokens, heads * head_dim);
      Rows out(random, tokens, heads * head_dim), in_place = x;
      const Rows before = out;
      RotaryArgs args{x.values.data(), x.stride, out.values.data(), out.stride, table.data(),
                      heads,           head_dim, rotary_dim,        1,          tokens};
      kernels.rotary(args);
      args.x = args.out = in_place.values.data();
      args.out_stride = x.stride;
      kernels.rotary(args);
      check_untouched("rotary", before, out, 1, tokens);
      for (int64_t t = 1; t < tokens; ++t) {
        for (int64_t column = 0; column < heads * head_dim; ++column) {
          const int64_t i = column % head_dim, pair = i % half;
          double expected = x.at(t, column);
          if (i < rotary_dim) {
            const float position = static_cast<float>(positions[static_cast<size_t>(t)]);
            const double angle = position * inv_freq[static_cast<size_t>(pair)];  // in float32
            const double other = i < half ? -x.at(t, column + half) : x.at(t, column - half);
            expected = 1.5 * (expected * std::cos(angle) + other * std::sin(angle));
          }
          check(std::abs(out.at(t, column) - expected) < 2e-6, "%s rotary %ld of %ld", kernels.name,
                static_cast<long>(rotary_dim), static_cast<long>(head_dim));
          check(out.at(t, column) == in_place.at(t, column), "%s rotary in place differs",
                kernels.name);
        }
      }
    }
  }
}

void check_log_sum_exp(const KernelTable& kernels) {
  Random random(4);
  float max;
  double sum;
  for (const int64_t size : {1, 5, 8, 255, 256, 300, 5000, 49152}) {
    std::vector<float> logits = random.normals(size, 5.0f);
    if (size > 5) logits[3] = -INFINITY;
    double expected = 0.0;
    for (const float logit : logits) expected += std::exp(double(logit));
    kernels.log_sum_exp(logits.data(), size, &max, &sum);
    check(max == *std::max_element(logits.begin(), logits.end()), "%s maximum of %ld",
          kernels.name, static_cast<long>(size));
    check(std::abs(sum - std::log(expected)) < 1e-6, "%s log_sum_exp of %ld", kernels.name,
          static_cast<long>(size));
    for (const int64_t at : {int64_t{0}, size / 2, size - 1}) {
      for (const float broken : {NAN, INFINITY}) {
        std::vector<float> bad = logits;
        bad[static_cast<size_t>(at)] = broken;
        kernels.log_sum_exp(bad.data(), size, &max, &sum);
        check(std::isnan(sum), "%s log_sum_exp hides %g", kernels.name, broken);
      }
    }
    std::fill(logits.begin(), logits.end(), -INFINITY);
    kernels.log_sum_exp(logits.data(), size, &max, &sum);
    check(max == -INFINITY && sum == -INFINITY, "%s log_sum_exp of nothing", kernels.name);
  }
}

// Kernels that work row by row give the same bits on every policy.
void check_same_bits(const std::vector<KernelTable>& tables) {
  Random random(5);
  const int64_t size = 203;
  const Rows x(random, 5, 2 * size);
  const std::vector<float> weight = random.normals(size);
  std::vector<std::vector<float>> results;
  for (const KernelTable& kernels : tables) {
    std::vector<float> all;
    for (const Activation activation : {Activation::Silu, Activation::GeluTanh, Activation::Gelu,
                                        Activation::Relu, Activation::SquaredRelu}) {
      std::vector<float> out(static_cast<size_t>(5 * size));
      kernels.gated({x.values.data(), x.stride, out.data(), size, size, activation, 0, 5});
      all.insert(all.end(), out.begin(), out.end());
    }
    std::vector<float> out(static_cast<size_t>(5 * size));
    kernels.norm(
        {x.values.data(), x.stride, out.data(), size, weight.data(), 1, size, 1e-6f, 0, 5});
    all.insert(all.end(), out.begin(), out.end());
    kernels.layer_norm({x.values.data(), x.stride, out.data(), size, weight.data(), weight.data(), size,
                        1e-6f, 0, 5});
    all.insert(all.end(), out.begin(), out.end());
    float max;
    double sum;
    kernels.log_sum_exp(x.values.data(), 1000, &max, &sum);
    all.push_back(static_cast<float>(sum * 1e3 - std::floor(sum * 1e3)));
    results.push_back(all);
  }
  for (size_t i = 1; i < results.size(); ++i) {
    const size_t num_bytes = results[0].size() * sizeof(float);
    check(std::memcmp(results[0].data(), results[i].data(), num_bytes) == 0,
          "%s and %s give different bits", tables[0].name, tables[i].name);
  }
}

}  // namespace

int main() {
  const std::vector<KernelTable> tables = kernel_tables();
  run("functions are as exact as they say",
      [] { each_policy([](auto policy) { check_functions<decltype(policy)>(); }); });
  for (const KernelTable& kernels : tables) {
    std::printf("%s\n", kernels.name);
    run("element-wise kernels", [&] { check_elements(kernels); });
    run("norm", [&] { check_norm(kernels); });
    run("layer norm", [&] { check_layer_norm(kernels); });
    run("rope table and rotary", [&] { check_rotary(kernels); });
    run("log_sum_exp", [&] { check_log_sum_exp(kernels); });
  }
  run("all policies give the same bits", [&] { check_same_bits(tables); });
  return result();
}
