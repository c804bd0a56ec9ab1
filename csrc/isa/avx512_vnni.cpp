// The kernels for AVX-512 with VNNI: those of avx512.cpp, but for products of int8 activations. Nothing where the
// target or the compiler has no such instructions.
#include "../kernels/table.hpp"

#if OCTAVO_HAS_AVX512_VNNI
#include "../kernels/linear_int8.hpp"
#include "../simd/dot_vnni.hpp"
#endif

namespace octavo {

const KernelTable* avx512_vnni_kernels() {
#if OCTAVO_HAS_AVX512_VNNI
  static const KernelTable table = [] {
    KernelTable copy = *avx512_kernels();
    copy.name = "avx512_vnni";
    copy.linear_int8 = &linear_int8<DotAvx512Vnni>;
    return copy;
  }();
  return &table;
#else
  return nullptr;
#endif
}

}  // namespace octavo
