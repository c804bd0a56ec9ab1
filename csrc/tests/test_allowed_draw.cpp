// Checks of draws among allowed tokens, which are asked about one by one, against draws whose other logits
// are -infinity from the beginning.
//
//   g++ -std=c++17 -O3 -ffp-contract=off csrc/tests/test_allowed_draw.cpp csrc/sampler.cpp -mavx2 -mfma -mf16c
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "../allowed.hpp"
#include "../sampler.hpp"
#include "check.hpp"
#include "sampler_twin.hpp"

using namespace octavo;
using namespace octavo::tests;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Knows the tokens, and how it was asked.
class Asked final : public Allowed {
 public:
  explicit Asked(const std::vector<bool>& tokens) : tokens_(tokens), bits_((tokens.size() + 7) / 8) {
    for (size_t token = 0; token < tokens.size(); ++token) {
      if (tokens[token]) bits_[token / 8] |= static_cast<uint8_t>(1u << (token % 8));
    }
  }
  bool has(int32_t token) override {
    ++questions;
    return tokens_[static_cast<size_t>(token)];
  }
  const uint8_t* bits() override {
    ++times_written;
    return bits_.data();
  }

  int64_t questions = 0;
  int64_t times_written = 0;

 private:
  std::vector<bool> tokens_;
  std::vector<uint8_t> bits_;
};

class Only final : public Allowed {
 public:
  explicit Only(int32_t token) : token_(token) {}
  int32_t only() const override { return token_; }
  bool has(int32_t) override { throw std::logic_error("asked about a token"); }
  const uint8_t* bits() override { throw std::logic_error("asked for all tokens"); }

 private:
  int32_t token_;
};

int32_t draw(const SamplingSpec& spec, Logits logits, Allowed& allowed, int64_t position = 0,
             TokenLogprobs* logprobs = nullptr) {
  RowSampler sampler(spec, {}, 0, static_cast<int64_t>(logits.size()));
  return sampler.sample(kernels(), logits.data(), Tokens(static_cast<size_t>(position)), logprobs, &allowed);
}

Logits masked(Logits logits, const std::vector<bool>& tokens) {
  for (size_t token = 0; token < tokens.size(); ++token) {
    if (!tokens[token]) logits[token] = -kInfinity;
  }
  return logits;
}

std::vector<bool> random_tokens(Random& random, int64_t size, int64_t of_ten) {
  std::vector<bool> tokens(static_cast<size_t>(size));
  for (size_t token = 0; token < tokens.size(); ++token) tokens[token] = random.below(10) < of_ten;
  tokens[static_cast<size_t>(random.below(size))] = true;
  return tokens;
}

std::vector<SamplingSpec> all_kinds() {
  std::vector<SamplingSpec> specs(8, random_spec(0.8f));
  specs[1].top_k = 5;
  specs[2].top_p = 0.9f;
  specs[3].min_p = 0.1f;
  specs[4].top_k = 12;
  specs[4].top_p = 0.7f;
  specs[4].min_p = 0.02f;
  specs[5].top_p = 0.0f;
  specs[6].top_p = 0.4f;
  specs[7] = random_spec(3.0f);
  specs[7].top_p = 0.95f;
  return specs;
}

void test_greedy_tokens_are_the_best_that_are_allowed() {
  Random random(1);
  for (int i = 0; i < 500; ++i) {
    const int64_t size = random.between(1, 3000);
    Logits logits = random.normals(size);
    for (float& logit : logits) logit = std::round(logit * 4);  // many ties
    const std::vector<bool> tokens = random_tokens(random, size, random.below(10));
    Asked allowed(tokens);
    const Logits rest = masked(logits, tokens);
    const auto best = std::max_element(rest.begin(), rest.end()) - rest.begin();
    check(draw({}, logits, allowed) == best, "greedy of %ld logits", static_cast<long>(size));
  }
}

void test_draws_have_the_distribution_of_allowed_tokens() {
  Random random(2);
  const int64_t draws = 15000;
  for (const int64_t of_ten : {0, 1, 3, 5, 8, 9, 10}) {
    int kind = 0;
    for (SamplingSpec spec : all_kinds()) {
      spec.seed = 100 + static_cast<uint64_t>(kind);
      const Logits logits = random.normals(60, 2.0f);
      const std::vector<bool> tokens = random_tokens(random, 60, of_ten);
      Asked allowed(tokens);
      std::map<int32_t, int64_t> counts;
      RowSampler sampler(spec, {}, 0, 60);
      Tokens before;
      for (int64_t i = 0; i < draws; ++i) {
        Logits scratch = logits;
        ++counts[sampler.sample(kernels(), scratch.data(), before, nullptr, &allowed)];
        before.push_back(0);
      }
      const std::string what = "kind " + std::to_string(kind++) + ", allowed " + std::to_string(of_ten);
      check_frequencies(what.c_str(), filtered(spec, masked(logits, tokens)), counts, draws);
    }
  }
}

// Few tokens and weights that are near the bounds of the filters.
void test_draws_are_right_where_filters_choose_others() {
  Random random(3);
  const int64_t draws = 2000;
  for (int i = 0; i < 150; ++i) {
    const int64_t size = random.between(2, 6);
    Logits logits(static_cast<size_t>(size));
    for (float& logit : logits) logit = std::log(static_cast<float>(random.between(1, 9)) + 0.3f * random.normal(0.1f));
    SamplingSpec spec = random_spec(1.0f);
    spec.seed = static_cast<uint64_t>(i);
    if (random.below(2)) spec.top_k = static_cast<int32_t>(random.between(1, size));
    if (random.below(2)) spec.top_p = 0.05f + 0.1f * static_cast<float>(random.below(10));
    if (random.below(2)) spec.min_p = 0.1f * static_cast<float>(random.below(9));
    const std::vector<bool> tokens = random_tokens(random, size, random.between(2, 9));
    Asked allowed(tokens);
    std::map<int32_t, int64_t> counts;
    for (int64_t position = 0; position < draws; ++position) ++counts[draw(spec, logits, allowed, position)];
    check_frequencies("few tokens", filtered(spec, masked(logits, tokens)), counts, draws);
  }
}

void test_all_tokens_are_asked_for_only_where_one_is_not_enough() {
  Random random(4);
  Logits logits = random.normals(3000);
  logits[70] = 30.0f;
  logits[2100] = 29.0f;
  std::vector<bool> tokens(3000, true);
  for (SamplingSpec spec : {SamplingSpec{}, random_spec(0.05f)}) {
    Asked everything(tokens);
    check(draw(spec, logits, everything) == 70, "not the best one%s", "");
    check(everything.questions == 1 && everything.times_written == 0, "asked for more than one%s", "");
    tokens[70] = false;
    Asked all_but_best(tokens);
    check(draw(spec, logits, all_but_best) == 2100, "not the second one%s", "");
    check(all_but_best.questions == 2 && all_but_best.times_written == 0, "asked for more than two%s", "");
    tokens[70] = true;
  }
  std::vector<bool> worst(3000, false);
  worst[9] = true;
  for (const SamplingSpec& spec : all_kinds()) {
    Asked one(worst);
    check(draw(spec, logits, one) == 9, "not the only one%s", "");
    check(one.times_written == 1, "written %ld times", static_cast<long>(one.times_written));
  }
}

void test_where_everything_is_allowed_the_draw_is_the_free_one() {
  Random random(5);
  const Logits logits = random.normals(2500, 2.0f);
  Asked everything(std::vector<bool>(2500, true));
  for (const float temperature : {0.0f, 0.7f, 2.0f}) {
    SamplingSpec spec = random_spec(temperature);
    RowSampler sampler(spec, {}, 0, 2500);
    for (int64_t position = 0; position < 200; ++position) {
      Logits scratch = logits;
      const int32_t free = sampler.sample(kernels(), scratch.data(), Tokens(static_cast<size_t>(position)), nullptr);
      check(draw(spec, logits, everything, position) == free, "position %ld", static_cast<long>(position));
    }
  }
  check(everything.times_written == 0, "asked for all tokens%s", "");
}

void test_the_only_token_is_drawn_unasked() {
  Logits logits = {3.0f, 1.0f, -kInfinity, 2.0f};
  for (SamplingSpec spec : all_kinds()) {
    spec.num_logprobs = 1;
    Only only(1), hopeless(2);
    TokenLogprobs logprobs;
    check(draw(spec, logits, only, 0, &logprobs) == 1, "another token%s", "");
    check(logprobs.token_ids == Tokens({1, 0}) && logprobs.rank == 3, "logprobs are not the model's%s", "");
    bool has_thrown = false;
    try {
      draw(spec, logits, hopeless);
    } catch (const std::runtime_error&) {
      has_thrown = true;
    }
    check(has_thrown, "a token without a finite logit was drawn%s", "");
  }
}

void test_log_probabilities_are_those_before_tokens_were_refused() {
  Random random(6);
  const Logits logits = random.normals(500, 2.0f);
  const std::vector<bool> tokens = random_tokens(random, 500, 1);
  for (SamplingSpec spec : all_kinds()) {
    spec.num_logprobs = 5;
    for (int64_t position = 0; position < 20; ++position) {
      Asked allowed(tokens);
      TokenLogprobs found;
      const int32_t token = draw(spec, logits, allowed, position, &found);
      const TokenLogprobs expected = top_logprobs(kernels(), logits.data(), 500, token, 5);
      check(found.token_ids == expected.token_ids && found.logprobs == expected.logprobs &&
                found.rank == expected.rank,
            "logprobs at %ld", static_cast<long>(position));
    }
  }
}

void test_nothing_allowed_is_an_error() {
  for (const SamplingSpec& spec : all_kinds()) {
    for (const size_t size : {3ul, 300ul}) {
      Asked nothing(std::vector<bool>(size, false));
      bool has_thrown = false;
      try {
        draw(spec, Logits(size, 1.0f), nothing);
      } catch (const std::runtime_error&) {
        has_thrown = true;
      }
      check(has_thrown, "a token of %zu was drawn", size);
    }
  }
}

}  // namespace

int main() {
  run("greedy tokens are the best that are allowed", test_greedy_tokens_are_the_best_that_are_allowed);
  run("draws have the distribution of allowed tokens", test_draws_have_the_distribution_of_allowed_tokens);
  run("draws are right where filters choose others", test_draws_are_right_where_filters_choose_others);
  run("all tokens are asked for only where one is not enough",
      test_all_tokens_are_asked_for_only_where_one_is_not_enough);
  run("where everything is allowed the draw is the free one",
      test_where_everything_is_allowed_the_draw_is_the_free_one);
  run("the only token is drawn unasked", test_the_only_token_is_drawn_unasked);
  run("log-probabilities are those before tokens were refused",
      test_log_probabilities_are_those_before_tokens_were_refused);
  run("nothing allowed is an error", test_nothing_allowed_is_an_error);
  return result();
}
