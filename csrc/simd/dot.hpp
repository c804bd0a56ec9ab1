// Dot products of bytes: what the int8 products ask of an instruction set beyond the vector layer (vec.hpp).
//
// A *dot policy* `D` names the vectors `D::Lanes` (a policy of vec.hpp) whose lanes it fills. Each lane holds
// four bytes of a row of weights, and a broadcast lane the four activations that belong to them. Weights are
// at most `most`, and not negative unless `is_signed`; activations are signed, of magnitude up to 127.
// All sums are exact, so every policy gives the same integers.
//
//   D::Sum<most, is_signed>    the sum of four products in each lane, over a few quads
//     begin(Ints)              start with these numbers
//     add<i>(w, x)             add the products of quad i; i counts from 0
//     end() -> Ints            after the last quad; their number is a multiple of four
//   D::kIsSigned               whether weights of the whole range -128..127 come as signed bytes; if not, they
//                              come with 128 added
//
// Here: the policy in plain C++. The rules of vec.hpp hold.
#pragma once

#include <cstdint>

#include "vec.hpp"

namespace octavo {
namespace {

template <class V>
struct DotGeneric {
  using Lanes = V;
  using Ints = typename V::Ints;
  static constexpr bool kIsSigned = true;

  template <int most, bool is_signed>
  struct Sum {
    int32_t lanes[V::kLanes];

    OCTAVO_INLINE void begin(Ints start) { V::store_ints(lanes, start); }
    template <int i>
    OCTAVO_INLINE void add(Ints w, Ints x) {
      int8_t weights[4 * V::kLanes], activations[4 * V::kLanes];
      V::store_ints(reinterpret_cast<int32_t*>(weights), w);
      V::store_ints(reinterpret_cast<int32_t*>(activations), x);
      for (int byte = 0; byte < 4 * V::kLanes; ++byte) {
        lanes[byte / 4] += weights[byte] * activations[byte];
      }
    }
    OCTAVO_INLINE Ints end() const { return V::load_ints(lanes); }
  };
};

}  // namespace
}  // namespace octavo
