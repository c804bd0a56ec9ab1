// The kernels for NEON (64-bit ARM); nothing where the target or the compiler has no such instructions.
#include "../kernels/table.hpp"

#if OCTAVO_HAS_NEON
#include "../kernels/make_table.hpp"
#include "../simd/dot_neon.hpp"
#endif

namespace octavo {

const KernelTable* neon_kernels() {
#if OCTAVO_HAS_NEON
  static constexpr KernelTable table = make_table<Neon, DotNeon>();
  return &table;
#else
  return nullptr;
#endif
}

}  // namespace octavo
