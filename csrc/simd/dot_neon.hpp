// Dot products of bytes with NEON: `sdot` where the target has it, else widening multiplications. See dot.hpp.
#pragma once

#include "dot.hpp"
#include "neon.hpp"

namespace octavo {
namespace {

struct DotNeon {
  using Lanes = Neon;
  using Ints = Neon::Ints;
  static constexpr bool kIsSigned = true;

  template <int most, bool is_signed>
  struct Sum {
    Ints total;

    OCTAVO_INLINE void begin(Ints start) { total = start; }
    template <int i>
    OCTAVO_INLINE void add(Ints w, Ints x) {
      total.lo = dot(total.lo, vreinterpretq_s8_s32(w.lo), vreinterpretq_s8_s32(x.lo));
      total.hi = dot(total.hi, vreinterpretq_s8_s32(w.hi), vreinterpretq_s8_s32(x.hi));
    }
    OCTAVO_INLINE Ints end() const { return total; }
  };

 private:
  static OCTAVO_INLINE int32x4_t dot(int32x4_t sum, int8x16_t w, int8x16_t x) {
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(sum, w, x);
#else
    // A pair of products is at most 2 * 128 * 127, which 16 bits hold.
    const int16x8_t lower = vmull_s8(vget_low_s8(w), vget_low_s8(x));
    const int16x8_t upper = vmull_s8(vget_high_s8(w), vget_high_s8(x));
    return vpadalq_s16(sum, vpaddq_s16(lower, upper));
#endif
  }
};

}  // namespace
}  // namespace octavo
