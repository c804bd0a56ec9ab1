// The static split of work over threads.
#pragma once

#include <cstdint>

namespace octavo {

struct Share {
  int64_t begin, end;
};

// The consecutive part of [0, count) that `thread` of `num_threads` does; parts differ by at most one.
inline Share share_of(int64_t count, int thread, int num_threads) {
  return {count * thread / num_threads, count * (thread + 1) / num_threads};
}

}  // namespace octavo
