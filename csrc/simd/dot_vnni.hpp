// Dot products of bytes with VNNI: `dpbusd` multiplies unsigned and signed bytes and adds four products to a
// lane of 32 bits. See dot.hpp.
//
// Compile with -mavxvnni for 256 bits, -mavx512vnni for 512.
#pragma once

#include "dot.hpp"

#ifdef __AVX512VNNI__
#include "avx512.hpp"
#else
#include "avx2.hpp"
#endif

namespace octavo {
namespace {

// `Instruction`: dpbusd and the vectors that it works on.
template <class Instruction>
struct DotVnni {
  using Lanes = typename Instruction::Lanes;
  using Ints = typename Lanes::Ints;
  static constexpr bool kIsSigned = false;

  template <int most, bool is_signed>
  struct Sum {
    static_assert(!is_signed, "weights are unsigned");
    Ints total;

    OCTAVO_INLINE void begin(Ints start) { total = start; }
    template <int i>
    OCTAVO_INLINE void add(Ints w, Ints x) {
      total = Instruction::dot(total, w, x);
    }
    OCTAVO_INLINE Ints end() const { return total; }
  };
};

#ifdef __AVX512VNNI__
struct Dpbusd512 {
  using Lanes = Avx512Wide;
  static OCTAVO_INLINE __m512i dot(__m512i sum, __m512i w, __m512i x) {
    return _mm512_dpbusd_epi32(sum, w, x);
  }
};
using DotAvx512Vnni = DotVnni<Dpbusd512>;
#endif

#ifdef __AVXVNNI__
struct Dpbusd256 {
  using Lanes = Avx2;
  static OCTAVO_INLINE __m256i dot(__m256i sum, __m256i w, __m256i x) {
    return _mm256_dpbusd_avx_epi32(sum, w, x);
  }
};
using DotAvxVnni = DotVnni<Dpbusd256>;
#endif

}  // namespace
}  // namespace octavo
