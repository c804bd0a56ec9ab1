// Large memory: weights, KV pool, activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace octavo {

// Zeroed memory that starts at a cache line (64 bytes). Large pieces come straight from the system: they
// take no physical memory until they are touched, and use huge pages where the system offers them and
// `huge_pages` asks for them: clearing one takes milliseconds, so memory that is first touched in the
// middle of serving is better off without.
class Memory {
 public:
  Memory() = default;
  explicit Memory(int64_t bytes, bool huge_pages = true);  // throws std::bad_alloc
  ~Memory();
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept;

  uint8_t* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }
  int64_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
  void* base_ = nullptr;  // what the system gave; data_ is the first aligned address in it
  size_t base_size_ = 0;  // 0: base_ came from calloc
};

}  // namespace octavo
