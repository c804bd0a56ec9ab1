// The kernels for AVX2 with VNNI (256 bits): those of avx2.cpp, but for products of int8 activations. Nothing where the
// target or the compiler has no such instructions.
#include "../kernels/table.hpp"

#if OCTAVO_HAS_AVX_VNNI
#include "../kernels/linear_int8.hpp"
#include "../simd/dot_vnni.hpp"
#endif

namespace octavo {

const KernelTable* avx_vnni_kernels() {
#if OCTAVO_HAS_AVX_VNNI
  static const KernelTable table = [] {
    KernelTable copy = *avx2_kernels();
    copy.name = "avx_vnni";
    copy.linear_int8 = &linear_int8<DotAvxVnni>;
    return copy;
  }();
  return &table;
#else
  return nullptr;
#endif
}

}  // namespace octavo
