// Host slots: places outside the KV pool where whole blocks wait. In memory, or in a file.
//
// Owns the memory. Does not know what a slot holds or who uses it: a step and another thread may use
// different slots at the same time.
#pragma once

#include <cstdint>
#include <string>

#include "memory.hpp"

namespace octavo {

class HostPool {
 public:
  // With an empty `folder` slots lie in memory, which is taken from the system only as slots are
  // written. Otherwise they lie in a file in that folder, which has its full size at once, has no name
  // and goes when the pool goes. Throws std::runtime_error when there is no such file to be had.
  HostPool(int64_t num_slots, int64_t slot_bytes, const std::string& folder);
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  int64_t num_slots() const { return num_slots_; }
  int64_t slot_bytes() const { return slot_bytes_; }
  uint8_t* slot(int64_t index) const { return data_ + index * stride_; }

 private:
  int64_t num_slots_, slot_bytes_, stride_;
  Memory memory_;
  uint8_t* data_ = nullptr;
  int64_t mapped_bytes_ = 0;  // of the file
};

}  // namespace octavo
