#include "host_pool.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace octavo {
namespace {

constexpr int64_t kLine = 64;

// Room for all slots is taken now: a full disk must be an error here, and not the end of the process when
// a page cannot be written later. Returns 0 or an error number.
int take_room(int file, int64_t bytes) {
#if defined(__APPLE__)
  fstore_t store = {F_ALLOCATEALL, F_PEOFPOSMODE, 0, bytes, 0};
  if (fcntl(file, F_PREALLOCATE, &store) != 0) return errno;
  return ftruncate(file, bytes) == 0 ? 0 : errno;
#else
  return posix_fallocate(file, 0, bytes);
#endif
}

[[noreturn]] void refuse(const std::string& folder, int64_t bytes, int error) {
  throw std::runtime_error("no swap file of " + std::to_string(bytes) + " bytes in " + folder +
                           ": " + std::strerror(error));
}

uint8_t* map_file(const std::string& folder, int64_t bytes) {
  std::string name = folder + "/octavo-swap-XXXXXX";
  const int file = mkstemp(name.data());
  if (file < 0) refuse(folder, bytes, errno);
  unlink(name.c_str());
  const int error = take_room(file, bytes);
  if (error != 0) {
    close(file);
    refuse(folder, bytes, error);
  }
  const size_t size = static_cast<size_t>(bytes);
  void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int map_error = errno;
  close(file);  // the mapping keeps the file
  if (mapped == MAP_FAILED) refuse(folder, bytes, map_error);
  return static_cast<uint8_t*>(mapped);
}

}  // namespace

HostPool::HostPool(int64_t num_slots, int64_t slot_bytes, const std::string& folder)
    : num_slots_(num_slots),
      slot_bytes_(slot_bytes),
      stride_((slot_bytes + kLine - 1) / kLine * kLine) {
  if (num_slots < 1 || slot_bytes < 1) {
    throw std::invalid_argument("a host pool needs at least one slot of at least one byte");
  }
  const int64_t bytes = num_slots * stride_;
  if (folder.empty()) {
    memory_ = Memory(bytes);
    data_ = memory_.data();
  } else {
    data_ = map_file(folder, bytes);
    mapped_bytes_ = bytes;
  }
}

HostPool::~HostPool() {
  if (mapped_bytes_ != 0) munmap(data_, static_cast<size_t>(mapped_bytes_));
}

}  // namespace octavo
