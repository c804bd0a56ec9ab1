// Checks of the sampler against slow, obvious twins; `--bench` times it (processor time, best of 30).
//
//   g++ -std=c++17 -O3 -ffp-contract=off csrc/tests/test_sampler.cpp csrc/sampler.cpp -mavx2 -mfma -mf16c
//
// Without the -m flags the portable kernels are used.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>

#include "../sampler.hpp"
#include "check.hpp"
#include "sampler_twin.hpp"

using namespace octavo;
using namespace octavo::tests;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int32_t sample(const SamplingSpec& spec, Logits logits, const Tokens& tokens = {},
               int32_t num_prompt = 0, TokenLogprobs* logprobs = nullptr) {
  RowSampler sampler(spec, tokens, num_prompt, static_cast<int64_t>(logits.size()));
  return sampler.sample(kernels(), logits.data(), tokens, logprobs);
}

std::string error_of(const SamplingSpec& spec, const Logits& logits) {
  try {
    sample(spec, logits);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

// Token ids that sampling gives over many positions, with their counts.
std::map<int32_t, int64_t> histogram(const SamplingSpec& spec, const Logits& logits,
                                     int64_t draws) {
  std::map<int32_t, int64_t> counts;
  RowSampler sampler(spec, {}, 0, static_cast<int64_t>(logits.size()));
  Tokens tokens;
  Logits scratch;
  for (int64_t i = 0; i < draws; ++i) {
    scratch = logits;
    ++counts[sampler.sample(kernels(), scratch.data(), tokens, nullptr)];
    tokens.push_back(0);
  }
  return counts;
}

int32_t drawn(const std::vector<double>& probabilities, double share) {
  double sum = 0.0;
  int32_t last = -1;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] == 0.0) continue;
    sum += probabilities[i];
    last = static_cast<int32_t>(i);
    if (sum > share) break;
  }
  return last;
}

// ---- tests ----

void test_uniform() {
  const int64_t draws = 200000;
  std::vector<int64_t> cells(100), neighbours(100), positions(100);
  for (int64_t i = 0; i < draws; ++i) {
    const double value = uniform(1234, i);
    check(value >= 0.0 && value < 1.0, "uniform gave %g", value);
    ++cells[static_cast<size_t>(value * 100)];
    ++neighbours[static_cast<size_t>(uniform(static_cast<uint64_t>(i), 17) * 100)];
    // Pairs (seed, position) and (seed + 1, position) must be independent.
    const auto a = static_cast<size_t>(uniform(99, i) * 10);
    const auto b = static_cast<size_t>(uniform(100, i) * 10);
    ++positions[a * 10 + b];
  }
  for (const auto* counts : {&cells, &neighbours, &positions}) {
    std::map<int32_t, int64_t> by_cell;
    for (size_t i = 0; i < counts->size(); ++i) by_cell[static_cast<int32_t>(i)] = (*counts)[i];
    check_frequencies("uniform", std::vector<double>(100, 0.01), by_cell, draws);
  }
  check(uniform(1, 5) == uniform(1, 5), "uniform is not a function%s", "");
  check(uniform(1, 5) != uniform(2, 5) && uniform(1, 5) != uniform(1, 6), "uniform repeats%s", "");
  std::set<double> values;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    for (int64_t position = 0; position < 300; ++position) values.insert(uniform(seed, position));
  }
  check(values.size() == 90000, "%zu of 90000 draws differ", values.size());
}

void test_greedy() {
  Random random(1);
  for (int i = 0; i < 300; ++i) {
    const int64_t size = random.between(1, 5000);
    Logits logits = random.normals(size);
    for (float& logit : logits) logit = std::round(logit * 4);  // many ties
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    check(sample({}, logits) == best, "greedy of %ld logits", static_cast<long>(size));
  }
  SamplingSpec nearly = random_spec(0.9e-5f);
  check(sample(nearly, {0.0f, 1.0f, 1.0f}) == 1, "a temperature below 1e-5 is not greedy%s", "");
  check(sample({}, {-kInfinity, -3.0f, -kInfinity}) == 1, "minus infinity is not legal%s", "");
}

void test_errors() {
  for (const float temperature : {0.0f, 1.0f}) {
    const SamplingSpec spec = random_spec(temperature);
    for (const size_t at : {0ul, 5ul, 1500ul, 2999ul}) {
      Logits logits(3000, 1.0f);
      logits[at] = std::nanf("");
      check(error_of(spec, logits).find("NaN") != std::string::npos, "NaN at %zu passes", at);
      logits[at] = kInfinity;
      check(error_of(spec, logits).find("+infinity") != std::string::npos, "infinity at %zu passes",
            at);
    }
    check(error_of(spec, Logits(100, -kInfinity)).find("no token") != std::string::npos,
          "nothing to sample passes%s", "");
    SamplingSpec allowed = spec;
    allowed.allowed_token_ids = {1};
    check(!error_of(allowed, {0.0f, -kInfinity, 0.0f}).empty(),
          "a mask that leaves nothing passes%s", "");
    Logits hidden(10, 0.0f);
    hidden[3] = std::nanf("");
    check(!error_of(allowed, hidden).empty(), "a masked NaN passes%s", "");
  }
}

void test_draws_follow_probabilities() {
  Random random(2);
  const int64_t draws = 200000;
  const Logits logits = random.normals(300, 2.0f);
  SamplingSpec spec = random_spec(0.8f);
  spec.seed = 42;
  check_frequencies("temperature", filtered(spec, logits), histogram(spec, logits, draws), draws);
  spec.top_k = 20;
  check_frequencies("top_k", filtered(spec, logits), histogram(spec, logits, draws), draws);
  spec.top_k = 0;
  spec.top_p = 0.9f;
  check_frequencies("top_p", filtered(spec, logits), histogram(spec, logits, draws), draws);
  spec.top_p = 1.0f;
  spec.min_p = 0.05f;
  check_frequencies("min_p", filtered(spec, logits), histogram(spec, logits, draws), draws);
  spec.top_k = 40;
  spec.top_p = 0.8f;
  check_frequencies("all filters", filtered(spec, logits), histogram(spec, logits, draws), draws);

  // Over several spans of the vocabulary, some of them masked whole.
  Logits large = random.normals(5000, 1.0f);
  std::fill(large.begin() + 1000, large.begin() + 3000, -kInfinity);
  const SamplingSpec plain = random_spec(0.5f);
  check_frequencies("large", filtered(plain, large), histogram(plain, large, 30000), 30000);
}

void test_filters_against_twin() {
  Random random(3);
  int64_t agreed = 0, total = 0;
  for (int i = 0; i < 3000; ++i) {
    const int64_t size = random.pick<int64_t>({1, 2, 7, 64, 100, 1024, 1025, 4000, 20000});
    Logits logits = random.normals(size, random.pick<float>({0.01f, 1.0f, 3.0f, 10.0f}));
    if (random.below(3) == 0) {
      for (float& logit : logits) logit = std::round(logit);  // ties at every boundary
    }
    for (int64_t j = random.below(3) == 0 ? size / 2 : 0; j > 0; --j) {
      logits[static_cast<size_t>(random.below(size))] = -kInfinity;
    }
    logits[static_cast<size_t>(random.below(size))] = 0.5f;
    SamplingSpec spec = random_spec(random.pick<float>({0.3f, 1.0f, 2.0f}));
    spec.top_k = random.pick<int32_t>({0, 0, 1, 2, 50, 1000, 1000000});
    spec.top_p = random.pick<float>({1.0f, 1.0f, 0.001f, 0.5f, 0.9f, 0.999f});
    spec.min_p = random.pick<float>({0.0f, 0.0f, 0.001f, 0.1f, 1.0f});
    spec.seed = static_cast<uint64_t>(i);
    const std::vector<double> expected = filtered(spec, logits);
    const int32_t token = sample(spec, logits);
    check(expected[static_cast<size_t>(token)] > 0.0,
          "case %d: token %d is not a candidate (size %ld, top_k %d, top_p %g, min_p %g)", i, token,
          static_cast<long>(size), spec.top_k, spec.top_p, spec.min_p);
    agreed += token == drawn(expected, uniform(spec.seed, 0));
    ++total;
  }
  // Both invert the same running sum; rounding may move a boundary past the uniform number.
  check(total - agreed <= 2, "the same token in %ld of %ld cases", static_cast<long>(agreed),
        static_cast<long>(total));
}

void test_filters_keep_all_their_candidates() {
  Random random(4);
  for (const int kind : {0, 1, 2, 3}) {
    const Logits logits = random.normals(3000, 1.5f);
    SamplingSpec spec = random_spec(1.0f);
    if (kind == 0) spec.top_k = 5;
    if (kind == 1) spec.top_p = 0.02f;
    if (kind == 2) spec.min_p = 0.4f;
    if (kind == 3) {
      spec.top_k = 12;
      spec.top_p = 0.7f;
    }
    const std::vector<double> expected = filtered(spec, logits);
    const auto counts = histogram(spec, logits, 20000);
    const auto candidates =
        std::count_if(expected.begin(), expected.end(), [](double p) { return p > 0; });
    check(static_cast<int64_t>(counts.size()) == candidates,
          "kind %d: %zu of %ld candidates were drawn", kind, counts.size(),
          static_cast<long>(candidates));
  }
  SamplingSpec two = random_spec(1.0f);
  two.top_k = 2;
  const auto ties = histogram(two, {1.0f, 3.0f, 3.0f, 3.0f}, 1000);
  check(ties.size() == 2 && ties.count(1) && ties.count(2),
        "ties at top_k do not go to lower ids%s", "");
}

void test_masks() {
  SamplingSpec spec;
  spec.allowed_token_ids = {3, 1, 99999, -1};
  check(sample(spec, {9, 1, 8, 2}) == 3, "allowed ids%s", "");

  SamplingSpec bad;
  bad.bad_words = {{2}, {5, 6, 1}, {7, 0}, {}};
  check(sample(bad, {0, 1, 2, 0.5f}, {4, 5, 6}, 1) == 3, "a matching word is not masked%s", "");
  check(sample(bad, {0, 1, 2, 0.5f}, {5, 6}, 2) == 3, "a prefix inside the prompt does not match%s", "");
  check(sample(bad, {0, 1, 2, 0.5f}, {6}, 0) == 1, "a word longer than the row is masked%s", "");
  check(sample(bad, {0, 1, 2, 0.5f}, {6, 5}, 0) == 1, "a word that does not match is masked%s", "");

  SamplingSpec stop;
  stop.min_tokens = 2;
  stop.stop_token_ids = {1};
  check(sample(stop, {0, 5}, {7, 7, 7}, 2) == 0, "a stop id before min_tokens%s", "");
  check(sample(stop, {0, 5}, {7, 7, 7, 7}, 2) == 1, "a stop id after min_tokens is masked%s", "");

  SamplingSpec bias;
  bias.bias_token_ids = {0, 1};
  bias.bias_values = {100.0f, -100.0f};
  check(sample(bias, {0, 50, 20}) == 0, "bias%s", "");
  check(sample(bias, {-kInfinity, 50, 20}) == 2, "bias lifts a masked token%s", "");
}

void test_penalties() {
  // Token 0 is in the prompt, 1 twice in the output, 2 once in both.
  const Tokens tokens = {0, 2, 1, 1, 2};
  SamplingSpec repetition;
  repetition.repetition_penalty = 2.0f;
  check(sample(repetition, {4, 4, 4, 2.1f}, tokens, 2) == 3, "repetition: positive logits%s", "");
  check(sample(repetition, {-1, -1, -1, -1.9f}, tokens, 2) == 3, "repetition: negative logits%s", "");
  check(sample(repetition, {4.3f, 4, 4, 2.1f}, tokens, 2) == 0, "repetition halves%s", "");
  SamplingSpec presence;
  presence.presence_penalty = 1.0f;
  check(sample(presence, {1, 1.9f, 1.8f, 0}, tokens, 2) == 0, "presence counts the output only%s", "");
  SamplingSpec frequency;
  frequency.frequency_penalty = 1.0f;
  check(sample(frequency, {1, 2.95f, 2.05f, 0}, tokens, 2) == 2, "frequency counts occurrences%s", "");

  // Against a twin, with tokens appended one by one; a sampler built anew must agree.
  Random random(5);
  for (int i = 0; i < 100; ++i) {
    SamplingSpec spec = random_spec(0.0f);
    spec.repetition_penalty = random.pick<float>({1.0f, 1.3f});
    spec.presence_penalty = random.pick<float>({0.0f, 0.4f});
    spec.frequency_penalty = random.pick<float>({0.0f, 0.3f});
    const int64_t size = 50;
    Tokens known;
    for (int j = 0; j < 10; ++j) known.push_back(static_cast<int32_t>(random.below(size + 5)));
    RowSampler sampler(spec, known, 10, size);
    for (int step = 0; step < 20; ++step) {
      const Logits logits = random.normals(size);
      Logits expected = logits;
      for (int32_t token = 0; token < size; ++token) {
        const auto count = std::count(known.begin() + 10, known.end(), token);
        float& logit = expected[static_cast<size_t>(token)];
        if (std::count(known.begin(), known.end(), token) > 0) {
          logit = logit > 0 ? logit / spec.repetition_penalty : logit * spec.repetition_penalty;
        }
        logit -= spec.frequency_penalty * static_cast<float>(count);
        logit -= count > 0 ? spec.presence_penalty : 0.0f;
      }
      Logits edited = logits;
      const int32_t token = sampler.sample(kernels(), edited.data(), known, nullptr);
      check(edited == expected, "case %d, step %d: edited logits differ", i, step);
      check(token == sample(spec, logits, known, 10), "case %d, step %d: a new sampler differs", i,
            step);
      known.push_back(token);
      sampler.append(token);
    }
  }
}

void test_logprobs() {
  Random random(6);
  for (int i = 0; i < 200; ++i) {
    const int64_t size = random.pick<int64_t>({3, 20, 1000, 3000});
    const Logits logits = random.normals(size, 3.0f);
    SamplingSpec spec = random_spec(random.pick<float>({0.0f, 1.0f}));
    spec.num_logprobs = random.pick<int32_t>({0, 1, 5, 20, 5000});
    spec.seed = static_cast<uint64_t>(i);
    if (i % 5 == 0) spec.logprob_token_ids = {2, 0};
    if (i % 2 == 0) {  // edits must not show
      spec.bias_token_ids = {1};
      spec.bias_values = {5.0f};
    }
    TokenLogprobs result;
    const int32_t token = sample(spec, logits, {}, 0, &result);

    const std::vector<size_t> order = ranking(logits);
    const std::vector<double> probabilities = softmax(logits, 1.0);
    const Tokens& asked = spec.logprob_token_ids;
    const size_t count = asked.empty() ? std::min<size_t>(spec.num_logprobs, logits.size()) : 2;
    const bool has_ids = result.token_ids.size() == count + 1 && result.token_ids[0] == token;
    check(has_ids, "case %d: ids", i);
    for (size_t j = 0; j < result.token_ids.size(); ++j) {
      const auto id = static_cast<size_t>(result.token_ids[j]);
      const size_t at = j == 0 ? id : asked.empty() ? order[j - 1] : size_t(asked[j - 1]);
      check(id == at, "case %d: place %zu", i, j);
      const double error = std::abs(result.logprobs[j] - std::log(probabilities[id]));
      check(error < 3e-6, "case %d: logprob off by %g", i, error);
    }
    const long rank = std::find(order.begin(), order.end(), size_t(token)) - order.begin() + 1;
    check(result.rank == rank, "case %d: rank %d instead of %ld", i, result.rank, rank);
  }
  const auto ties = top_logprobs(kernels(), Logits{1, 2, 2, 0}.data(), 4, 2, 2);
  check(ties.rank == 1 && ties.token_ids == Tokens{2, 1, 2}, "ties%s", "");
}

void test_determinism() {
  Random random(7);
  const Logits logits = random.normals(2000, 2.0f);
  SamplingSpec spec = random_spec(1.0f);
  spec.seed = 11;
  spec.top_p = 0.95f;
  const Tokens tokens(37, 3);
  const int32_t first = sample(spec, logits, tokens, 5);
  for (int i = 0; i < 5; ++i) check(first == sample(spec, logits, tokens, 5), "not repeatable%s", "");
  std::set<int32_t> by_seed;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    spec.seed = seed;
    by_seed.insert(sample(spec, logits, tokens, 5));
  }
  check(by_seed.size() > 10, "seeds give %zu tokens", by_seed.size());
}

void bench() {
  Random random(8);
  for (const int64_t size : {49152, 262144}) {
    Logits logits = random.normals(size, 2.5f);
    for (int i = 0; i < 40; ++i) logits[static_cast<size_t>(random.below(size))] += 14.0f;
    const auto time = [&](const char* what, const SamplingSpec& spec) {
      const std::vector<int32_t> tokens = {1, 2, 3};
      RowSampler sampler(spec, tokens, 3, size);
      Logits scratch = logits;
      TokenLogprobs logprobs;
      const double seconds = best_seconds(30, [&] {
        sampler.sample(kernels(), scratch.data(), tokens, &logprobs);
      });
      std::printf("  %6ld logits  %-22s %8.1f us\n", static_cast<long>(size), what, seconds * 1e6);
    };
    SamplingSpec spec;
    time("greedy", spec);
    spec.num_logprobs = 5;
    time("greedy, 5 logprobs", spec);
    spec = random_spec(0.8f);
    time("temperature", spec);
    spec.top_p = 0.9f;
    time("top_p 0.9", spec);
    spec.top_k = 50;
    time("top_k 50, top_p 0.9", spec);
    spec.top_p = 1.0f;
    time("top_k 50", spec);
    spec.top_k = 0;
    spec.min_p = 0.05f;
    time("min_p 0.05", spec);
    spec = random_spec(8.0f);  // nearly flat: most of the vocabulary is in the nucleus
    spec.top_p = 0.9f;
    time("flat, top_p 0.9", spec);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--bench") == 0) {
    bench();
    return 0;
  }
  run("uniform numbers are uniform and independent over seeds and positions", test_uniform);
  run("greedy takes the best token, ties to the lowest id", test_greedy);
  run("NaN, infinity and empty candidate sets are errors", test_errors);
  run("draws follow the probabilities", test_draws_follow_probabilities);
  run("filters agree with sorting everything", test_filters_against_twin);
  run("filters keep all their candidates", test_filters_keep_all_their_candidates);
  run("masks and bias", test_masks);
  run("penalties", test_penalties);
  run("logprobs are raw, ranked and ordered", test_logprobs);
  run("a draw depends on seed and position only", test_determinism);
  return result();
}
