// Checks of the thread that makes masks, outside Python:
//
//   g++ -std=c++17 -O2 -pthread csrc/tests/test_mask_filler.cpp csrc/mask_filler.cpp csrc/threads.cpp
//     -o test_mask_filler && ./test_mask_filler
#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "../mask_filler.hpp"
#include "check.hpp"

namespace octavo::tests {
namespace {

constexpr size_t kBytes = 8;

int32_t fill_with_ones(void*, uint32_t* bits, size_t num_bytes) {
  for (size_t i = 0; i < num_bytes / sizeof(uint32_t); ++i) bits[i] = ~0u;
  return 0;
}

int32_t fail(void*, uint32_t*, size_t) { return -1; }

void masks_of_every_step_are_made() {
  MaskFiller filler(true);
  for (int step = 0; step < 200; ++step) {
    filler.start({{fill_with_ones, nullptr, nullptr, kBytes}, {fill_with_ones, nullptr, nullptr, kBytes}});
    for (size_t mask = 0; mask < 2; ++mask) {
      for (size_t byte = 0; byte < kBytes; ++byte) {
        check(filler.get(mask)[byte] == 0xff, "step %d: byte %d of mask %d", step, int(byte), int(mask));
      }
    }
    filler.finish();
  }
}

void a_mask_that_cannot_be_made_is_an_error() {
  MaskFiller filler(true);
  filler.start({{fail, nullptr, nullptr, kBytes}});
  bool has_thrown = false;
  try {
    filler.get(0);
  } catch (const std::runtime_error&) {
    has_thrown = true;
  }
  filler.finish();
  check(has_thrown, "no error");
}

int32_t fits_if_even(void* times_asked, const uint32_t* tokens, size_t) {
  ++*static_cast<int*>(times_asked);
  return tokens[0] % 2 == 0;
}

int32_t fill_with_even(void*, uint32_t* bits, size_t num_bytes) {
  for (size_t i = 0; i < num_bytes / sizeof(uint32_t); ++i) bits[i] = 0x55555555;
  return 0;
}

void single_tokens_are_asked_about_where_no_core_makes_masks() {
  for (const bool has_idle_core : {false, true}) {
    int times_asked = 0;
    MaskFiller filler(has_idle_core);
    filler.start({{fill_with_even, fits_if_even, &times_asked, kBytes}});
    check(filler.has(0, 6) && !filler.has(0, 7), "idle %d: another answer", int(has_idle_core));
    check(times_asked == (has_idle_core ? 0 : 2), "idle %d: asked %d times", int(has_idle_core), times_asked);
    check(filler.get(0)[0] == 0x55, "idle %d: another mask", int(has_idle_core));
    times_asked = 0;
    check(filler.has(0, 6) && !filler.has(0, 7) && times_asked == 0, "asked beside a mask%s", "");
    filler.finish();
  }
}

void an_only_token_needs_no_source() {
  for (const bool has_idle_core : {false, true}) {
    MaskFiller filler(has_idle_core);
    filler.start({{fail, nullptr, nullptr, kBytes, 37}});
    check(filler.only(0) == 37, "idle %d: not told", int(has_idle_core));
    for (int32_t token = 0; token < int32_t{kBytes} * 8; ++token) {
      check(filler.has(0, token) == (token == 37), "token %d", token);
    }
    filler.finish();
  }
}

#if defined(__GLIBC__)
// Makes every new thread fail, as on a system that has no more of them: its stack would not fit anywhere.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 47);
    is_set_ = pthread_setattr_default_np(&huge) == 0;
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  bool is_set() const { return is_set_; }

 private:
  pthread_attr_t before_;
  bool is_set_ = false;
};

bool cannot_start(MaskFiller& filler) {
  const NoThreads none;
  check(none.is_set(), "the size of stacks cannot be set");
  try {
    filler.start({{fill_with_ones, nullptr, nullptr, kBytes}});
  } catch (const std::system_error&) {
    return true;
  }
  return false;
}

void a_thread_that_cannot_be_made_is_an_error_and_the_next_step_tries_again() {
  {  // A filler that never had a thread ends without joining one.
    MaskFiller filler(true);
    check(cannot_start(filler), "a thread was made");
  }
  MaskFiller filler(true);
  check(cannot_start(filler), "a thread was made");
  filler.start({{fill_with_ones, nullptr, nullptr, kBytes}});
  check(filler.get(0)[0] == 0xff, "no mask after a step that failed");
  filler.finish();
}
#endif

}  // namespace
}  // namespace octavo::tests

int main() {
  using namespace octavo::tests;
  run("masks of every step are made", masks_of_every_step_are_made);
  run("a mask that cannot be made is an error", a_mask_that_cannot_be_made_is_an_error);
  run("single tokens are asked about where no core makes masks",
      single_tokens_are_asked_about_where_no_core_makes_masks);
  run("an only token needs no source", an_only_token_needs_no_source);
#if defined(__GLIBC__)
  run("a thread that cannot be made is an error, and the next step tries again",
      a_thread_that_cannot_be_made_is_an_error_and_the_next_step_tries_again);
#endif
  return result();
}
