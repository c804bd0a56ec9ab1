// The kernels in plain C++: the fallback, and the twin that the other instruction sets are compared with.
#include "../kernels/make_table.hpp"
#include "../simd/dot.hpp"
#include "../simd/scalar.hpp"

namespace octavo {

const KernelTable* scalar_kernels() {
  static constexpr KernelTable table = make_table<Scalar, DotGeneric<Scalar>>();
  return &table;
}

}  // namespace octavo
