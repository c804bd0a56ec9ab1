#include "dispatch.hpp"

#include <cstdint>
#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace octavo {
namespace {

#if defined(__x86_64__)

// What the processor has and the operating system saves on a context switch.
struct X86Features {
  bool avx2 = false;         // AVX2, FMA, F16C
  bool avx_vnni = false;     // AVX-VNNI besides
  bool avx512 = false;       // AVX-512 F, BW, DQ, VL besides AVX2
  bool avx512_vnni = false;  // AVX-512 VNNI besides
  bool avx512_bf16 = false;  // AVX-512 BF16 besides
};

constexpr bool has_bits(uint64_t value, uint64_t bits) { return (value & bits) == bits; }

constexpr uint32_t bit(int index) { return uint32_t{1} << index; }

// Which registers the operating system saves (XCR0).
uint64_t saved_registers() {
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

// Bits of the CPUID instruction: Intel Software Developer's Manual, volume 2A.
X86Features x86_features() {
  X86Features features;
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return features;
  const uint32_t fma = bit(12), osxsave = bit(27), avx = bit(28), f16c = bit(29);
  if (!has_bits(ecx, fma | osxsave | avx | f16c)) return features;
  const uint64_t saved = saved_registers();
  if (!has_bits(saved, 0x06)) return features;  // xmm and ymm
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return features;
  features.avx2 = has_bits(ebx, bit(5));
  const uint32_t avx512f = bit(16), avx512dq = bit(17), avx512bw = bit(30), avx512vl = bit(31);
  features.avx512 = features.avx2 && has_bits(ebx, avx512f | avx512dq | avx512bw | avx512vl) &&
                    has_bits(saved, 0xe6);  // mask registers and both halves of zmm as well
  features.avx512_vnni = features.avx512 && has_bits(ecx, bit(11));
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) {
    features.avx_vnni = features.avx2 && has_bits(eax, bit(4));
    features.avx512_bf16 = features.avx512_vnni && has_bits(eax, bit(5));
  }
  return features;
}

#endif

std::vector<const KernelTable*> available_tables() {
  std::vector<const KernelTable*> tables;
  const auto add = [&tables](const KernelTable* table) {
    if (table != nullptr) tables.push_back(table);
  };
#if defined(__x86_64__)
  const X86Features features = x86_features();
  if (features.avx512_bf16) add(avx512_bf16_kernels());
  if (features.avx512_vnni) add(avx512_vnni_kernels());
  if (features.avx512) add(avx512_kernels());
  if (features.avx_vnni) add(avx_vnni_kernels());
  if (features.avx2) add(avx2_kernels());
#endif
  add(neon_kernels());  // part of every 64-bit ARM processor; null elsewhere
  add(scalar_kernels());
  return tables;
}

}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const KernelTable* table : available_tables()) names.emplace_back(table->name);
  return names;
}

const KernelTable& find_kernels(const std::string& isa) {
  std::string choices;
  for (const KernelTable* table : available_tables()) {
    if (isa.empty() || isa == table->name) return *table;
    choices += choices.empty() ? table->name : std::string(", ") + table->name;
  }
  throw std::invalid_argument("instruction set '" + isa + "' is not available here; choose from " +
                              choices);
}

}  // namespace octavo
