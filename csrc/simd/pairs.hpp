// Products of pairs of bfloat16: what those of bfloat16 activations ask of an instruction set beyond the vector
// layer (vec.hpp).
//
// A *pair policy* `D` names the vectors `D::Lanes` whose lanes it fills. A lane of 32 bits holds two neighbouring
// columns, the even one in its lower half, the odd one in its upper half.
//
//   D::Split, D::split(Ints)   lanes of pairs, in the shape in which they are multiplied
//   D::kRegisters              registers that a Split takes
//   D::add(sum, w, x)          in each lane: fma(w even, x even, fma(w odd, x odd, sum))
//
// Both fused additions are rounded to nearest even. Denormal inputs and results count as zero: where an instruction
// does so by itself, it is alike in every policy on threads in that mode, as those of threads.hpp are.
//
// Here: the policy that makes floats of the halves. The rules of vec.hpp hold.
#pragma once

#include <cstdint>

#include "vec.hpp"

namespace octavo {
namespace {

template <class L>
struct PairsFused {
  using Lanes = L;
  using Floats = typename L::Floats;
  using Ints = typename L::Ints;
  static constexpr int kRegisters = 2;

  struct Split {
    Floats even, odd;
  };
  static OCTAVO_INLINE Split split(Ints pairs) {
    const Ints upper = L::set1_int(static_cast<int32_t>(0xffff0000u));
    return {L::as_floats(L::template shift_left<16>(pairs)), L::as_floats(L::bit_and(pairs, upper))};
  }
  static OCTAVO_INLINE Floats add(Floats sum, const Split& w, const Split& x) {
    return L::fma(w.even, x.even, L::fma(w.odd, x.odd, sum));
  }
};

}  // namespace
}  // namespace octavo
