// The kernels for AVX-512 with VNNI and BF16: those of avx512_vnni.cpp, but for products of bfloat16 activations.
// Nothing where the target or the compiler has no such instructions.
#include "../kernels/table.hpp"

#if OCTAVO_HAS_AVX512_BF16
#include "../kernels/linear_bf16.hpp"
#include "../simd/pairs_avx512.hpp"
#endif

namespace octavo {

const KernelTable* avx512_bf16_kernels() {
#if OCTAVO_HAS_AVX512_BF16
  static const KernelTable table = [] {
    KernelTable copy = *avx512_vnni_kernels();
    copy.name = "avx512_bf16";
    copy.linear_bf16 = &linear_bf16<PairsAvx512>;
    return copy;
  }();
  return &table;
#else
  return nullptr;
#endif
}

}  // namespace octavo
