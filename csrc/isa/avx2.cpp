// The kernels for AVX2, FMA and F16C; nothing where the target or the compiler has no such instructions.
#include "../kernels/table.hpp"

#if OCTAVO_HAS_AVX2
#include "../kernels/make_table.hpp"
#include "../simd/dot_avx2.hpp"
#endif

namespace octavo {

const KernelTable* avx2_kernels() {
#if OCTAVO_HAS_AVX2
  static constexpr KernelTable table = make_table<Avx2, DotAvx2<Avx2>>();
  return &table;
#else
  return nullptr;
#endif
}

}  // namespace octavo
