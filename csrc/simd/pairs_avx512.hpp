// Products of pairs of bfloat16 with AVX-512 BF16: `vdpbf16ps` is the definition in pairs.hpp as one instruction
// (Intel, "Software Developer's Manual", volume 2: the odd columns come first, denormals count as zero).
//
// Compile with -mavx512bf16.
#pragma once

#include "avx512.hpp"
#include "pairs.hpp"

namespace octavo {
namespace {

struct PairsAvx512 {
  using Lanes = Avx512Wide;
  static constexpr int kRegisters = 1;

  using Split = __m512bh;
  static OCTAVO_INLINE Split split(__m512i pairs) { return reinterpret_cast<__m512bh>(pairs); }
  static OCTAVO_INLINE __m512 add(__m512 sum, Split w, Split x) { return _mm512_dpbf16_ps(sum, w, x); }
};

}  // namespace
}  // namespace octavo
