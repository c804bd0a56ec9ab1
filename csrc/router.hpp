// Which experts a token goes to, and how much each of them counts.
//
// Owns the kinds of scoring. A row is decided from its scores alone, one after the other in a fixed order;
// of equal scores the expert with the lower number wins.
#pragma once

#include <cstdint>
#include <vector>

namespace octavo {

// What an expert is chosen by, and what its weight is.
enum class Scoring : int32_t {
  Softmax = 0,        // by and with the softmax over all experts
  SoftmaxChosen = 1,  // by the score; with the softmax over those chosen
  Sigmoid = 2,        // by and with the sigmoid of the score
  Score = 3,          // by and with the score itself
  SparseMixer = 4,    // one after the other, each weighed against those close to it (Liu et al. 2023)
};

struct RouterSpec {
  int64_t num_experts, num_chosen;
  Scoring scoring;
  bool normalises;             // the weights of those chosen are made to add up to one
  float scale;                 // then they are multiplied with this
  int64_t num_groups;          // neighbouring experts form so many groups
  int64_t num_chosen_groups;   // of which only so many best ones are looked at
  int64_t group_best;          // the score of a group is the sum of so many of its best
  float tolerance;             // of SparseMixer: how far below the best, as a share, is still close
};

// Whether the numbers fit together.
bool is_sound(const RouterSpec& spec);

// scores: [num_experts]. correction: added to what experts are chosen by, or null.
// routing: [num_chosen] numbers of experts, best first, then [num_chosen] weights.
// scratch: 2 * num_experts floats.
void route(const RouterSpec& spec, const float* scores, const float* correction, float* routing,
           float* scratch);

}  // namespace octavo
