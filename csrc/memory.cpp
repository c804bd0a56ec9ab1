#include "memory.hpp"

#include <cstdlib>
#include <new>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#define OCTAVO_HAS_MMAP 1
#else
#define OCTAVO_HAS_MMAP 0
#endif

namespace octavo {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;

uint8_t* align_up(void* address, size_t alignment) {
  const uintptr_t value = reinterpret_cast<uintptr_t>(address);
  return reinterpret_cast<uint8_t*>((value + alignment - 1) / alignment * alignment);
}

}  // namespace

Memory::Memory(int64_t bytes, bool huge_pages) : size_(bytes) {
  const size_t wanted = static_cast<size_t>(bytes);
#if OCTAVO_HAS_MMAP
  if (wanted >= kHugePage) {
    base_size_ = wanted + kHugePage;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#if defined(MAP_NORESERVE)
    flags |= MAP_NORESERVE;
#endif
    base_ = mmap(nullptr, base_size_, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (base_ == MAP_FAILED) {
      base_ = nullptr;
      throw std::bad_alloc();
    }
    data_ = align_up(base_, kHugePage);
#if defined(MADV_HUGEPAGE)
    if (huge_pages) madvise(data_, wanted, MADV_HUGEPAGE);  // a wish; refused on systems without huge pages
#endif
    return;
  }
#endif
  base_ = std::calloc(wanted + kLine, 1);
  if (base_ == nullptr) throw std::bad_alloc();
  data_ = align_up(base_, kLine);
}

Memory::~Memory() {
#if OCTAVO_HAS_MMAP
  if (base_size_ != 0) {
    munmap(base_, base_size_);
    return;
  }
#endif
  std::free(base_);
}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(base_, other.base_);
  std::swap(base_size_, other.base_size_);
  return *this;
}

}  // namespace octavo
