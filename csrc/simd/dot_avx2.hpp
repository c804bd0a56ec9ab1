// Dot products of bytes with AVX2, which has `maddubs`: products of unsigned and signed bytes, added in pairs
// to 16 bits, where they would saturate. See dot.hpp.
#pragma once

#include "avx2.hpp"
#include "dot.hpp"

namespace octavo {
namespace {

// `V`: a policy whose Ints are a ymm register.
template <class V>
struct DotAvx2 {
  using Lanes = V;
  using Ints = __m256i;
  static constexpr bool kIsSigned = true;

  template <int most, bool is_signed>
  struct Sum {
    // Pairs that can be added before 16 bits overflow.
    static constexpr int kPairs = 32767 / (2 * 127 * most);
    static constexpr int kInterval = kPairs >= 8 ? 8 : kPairs >= 4 ? 4 : kPairs >= 2 ? 2 : 1;
    Ints total;
    Ints pairs;  // not in the total yet

    OCTAVO_INLINE void begin(Ints start) {
      total = start;
      pairs = _mm256_setzero_si256();
    }
    template <int i>
    OCTAVO_INLINE void add(Ints w, Ints x) {
      Ints products;
      if constexpr (is_signed) products = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
      else products = _mm256_maddubs_epi16(w, x);
      if constexpr (i % kInterval == 0) {
        pairs = products;
      } else {
        pairs = _mm256_add_epi16(pairs, products);
        pin(pairs);
      }
      if constexpr (i % kInterval == kInterval - 1) flush();
    }
    OCTAVO_INLINE Ints end() {
      if constexpr (kInterval == 8) flush();  // four quads or eight
      return total;
    }

   private:
    OCTAVO_INLINE void flush() {
      total = _mm256_add_epi32(total, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
      pairs = _mm256_setzero_si256();
    }
    // GCC takes vector additions apart and multiplies everything first, for which it lacks registers.
    static OCTAVO_INLINE void pin(Ints& v) { asm("" : "+x"(v)); }
  };
};

}  // namespace
}  // namespace octavo
