// The kernels for AVX-512 F, BW, DQ and VL; nothing where the target or the compiler has no such instructions.
#include "../kernels/table.hpp"

#if OCTAVO_HAS_AVX512
#include "../kernels/make_table.hpp"
#include "../simd/avx512.hpp"
#include "../simd/dot_avx2.hpp"
#endif

namespace octavo {

const KernelTable* avx512_kernels() {
#if OCTAVO_HAS_AVX512
  static constexpr KernelTable table = make_table<Avx512, DotAvx2<Avx512>>();
  return &table;
#else
  return nullptr;
#endif
}

}  // namespace octavo
