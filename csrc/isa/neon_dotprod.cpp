// The kernels for NEON with dot products of bytes (Armv8.2 `sdot`): those of neon.cpp, but for products of
// int8 activations. Nothing where the target or the compiler has no such instructions.
#include "../kernels/table.hpp"

#if OCTAVO_HAS_NEON_DOTPROD
#include "../kernels/linear_int8.hpp"
#include "../simd/dot_neon.hpp"
#endif

namespace octavo {

const KernelTable* neon_dotprod_kernels() {
#if OCTAVO_HAS_NEON_DOTPROD
  static const KernelTable table = [] {
    KernelTable copy = *neon_kernels();
    copy.name = "neon_dotprod";
    copy.linear_int8 = &linear_int8<DotNeon>;
    return copy;
  }();
  return &table;
#else
  return nullptr;
#endif
}

}  // namespace octavo
