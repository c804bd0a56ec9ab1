// Drawing among allowed tokens where it is dear to know all of them.
//
// A token is drawn as if every one were allowed, and the question is put for that one alone. All allowed
// tokens are asked for only when the answer is no, or says too little: the logits of the others become
// -infinity then, and another random number decides. What is drawn has exactly the distribution that it has
// with the others at -infinity from the beginning, and depends on the logits, the seed, the position and the
// allowed tokens alone, not on who knows these how.
//
// Why the distribution is right. Greedily: the best of all tokens, if it is allowed, is the best of those
// that are; so is the best of those that were not refused yet. Without filters: a draw that is given up when
// its token is refused, and made again without it, gives each allowed token its share of their sum.
// With filters, which look at the probabilities among allowed tokens, see `filtered`.
// Used by: sampler.cpp only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "allowed.hpp"
#include "candidates.hpp"
#include "draw.hpp"
#include "sampler.hpp"

namespace octavo {

class AllowedDraw {
 public:
  AllowedDraw(const KernelTable& kernels, const SamplingSpec& spec, float* logits, int64_t size,
              int64_t position, Allowed& allowed)
      : kernels_(kernels),
        spec_(spec),
        logits_(logits),
        size_(size),
        position_(position),
        allowed_(allowed) {}

  // The token. `peak` is that of the logits, which are scratch afterwards. Throws as find_peak does.
  int32_t run(Peak peak) {
    if (is_greedy(spec_)) return greedy(peak);
    allowed_.expect(peak.token_id);
    return draw_of(peak).has_filters() ? filtered(peak) : plain(peak);
  }

 private:
  // So many tokens are tried before all allowed ones are asked for. A further try costs about a tenth of that.
  static constexpr int kGreedyTries = 4;
  static constexpr int kTries = 3;

  Draw draw_of(Peak peak) const { return Draw(kernels_, spec_, logits_, size_, peak.logit); }

  double share(int number) const { return uniform(spec_.seed, position_, number); }

  Peak peak_of_allowed() {
    keep_marked(logits_, size_, allowed_.bits());
    return find_peak(logits_, size_);
  }

  int32_t greedy(Peak peak) {
    for (int tries = 0; tries < kGreedyTries; ++tries) {
      if (allowed_.has(peak.token_id)) return peak.token_id;
      logits_[peak.token_id] = -kInfinity;
      peak = find_peak(logits_, size_);
    }
    return peak_of_allowed().token_id;
  }

  int32_t plain(Peak peak) {
    std::optional<Draw> draw(draw_of(peak));
    for (int tries = 0; tries < kTries; ++tries) {
      const int32_t token = draw->run(share(tries));
      if (allowed_.has(token)) return token;
      logits_[token] = -kInfinity;
      if (token != peak.token_id) {
        draw->note_change(token);
        continue;
      }
      peak = find_peak(logits_, size_);
      draw.emplace(draw_of(peak));
    }
    return draw_of(peak_of_allowed()).run(share(kTries));
  }

  // Filters choose candidates among the allowed tokens, whose weights w add up to W. Among all tokens they
  // choose others, which add up to V. But where the best token of all is allowed, min_p and top_k keep each
  // allowed token that they keep among all, and W <= V; top_p does so for tokens that `is_sure` finds, and
  // W is at most V and the least weight in it once more: Z. So a draw gives each token that is sure and
  // allowed w / Z, which is no more than the w / W that it is due, and all candidates what they lack
  // otherwise. Where the best token is refused nothing is sure.
  int32_t filtered(Peak peak) {
    Candidates sure;
    double sum = 0.0;
    if (allowed_.has(peak.token_id)) {
      Draw draw = draw_of(peak);
      const Candidates all = draw.filter();
      sure = sure_ones(all);
      sum = total_weight(all) + (draw.limits_mass() ? least_weight(all) : 0.0);
      const double target = share(0) * sum;
      if (target < total_weight(sure)) {
        const int32_t token = sure[pick(sure, target, 1.0)].token_id;
        if (token == peak.token_id || allowed_.has(token)) return token;
      }
    }
    Draw draw = draw_of(peak_of_allowed());
    Candidates candidates = draw.filter();
    const double total = total_weight(candidates);
    double due = 0.0;
    auto drawn = sure.begin();
    for (Candidate& candidate : candidates) {
      drawn = std::lower_bound(drawn, sure.end(), candidate, has_lower_id);
      const bool was_sure = drawn != sure.end() && drawn->token_id == candidate.token_id;
      candidate.weight = std::max(candidate.weight / total - (was_sure ? drawn->weight / sum : 0.0), 0.0);
      due += candidate.weight;
    }
    return candidates[pick(candidates, due, share(1))].token_id;
  }

  // Those that top_p keeps if they are allowed, whichever others are: better ones do not make top_p of what
  // they and the token weigh.
  Candidates sure_ones(const Candidates& all) const {
    if (spec_.top_p >= 1.0f) return all;
    Candidates ranked = all;
    keep_best(ranked, most_sure(all.size()));
    std::sort(ranked.begin(), ranked.end(), is_better);
    Candidates sure;
    double better = 0.0;
    for (const Candidate& candidate : ranked) {
      if (better > 0.0 && !is_sure(better, candidate.weight)) break;
      sure.push_back(candidate);
      better += candidate.weight;
    }
    std::sort(sure.begin(), sure.end(), has_lower_id);
    return sure;
  }

  // Of n tokens the last one weighs the least, so the others weigh n - 1 times as much or more.
  size_t most_sure(size_t size) const {
    const double limit = 1.0 + spec_.top_p / (1.0 - spec_.top_p);
    return limit < static_cast<double>(size) ? static_cast<size_t>(limit) + 1 : size;
  }

  bool is_sure(double better, double weight) const {
    constexpr double kRoom = 0.999;  // for rounding
    return (1.0 - spec_.top_p) * better < kRoom * spec_.top_p * weight;
  }

  static double least_weight(const Candidates& candidates) {
    double least = candidates.front().weight;
    for (const Candidate& candidate : candidates) least = std::min(least, candidate.weight);
    return least;
  }

  const KernelTable& kernels_;
  const SamplingSpec& spec_;
  float* const logits_;
  const int64_t size_;
  const int64_t position_;
  Allowed& allowed_;
};

}  // namespace octavo
