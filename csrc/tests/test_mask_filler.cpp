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

MaskSource source_of(decltype(MaskSource::fill) fill) {
  MaskSource source;
  source.fill = fill;
  source.num_bytes = kBytes;
  return source;
}

void masks_of_every_step_are_made() {
  MaskFiller filler(true);
  MaskSource first = source_of(fill_with_ones), second = first;
  for (int step = 0; step < 200; ++step) {
    filler.start({&first, &second});
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
  MaskSource source = source_of(fail);
  filler.start({&source});
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
    MaskSource source = source_of(fill_with_even);
    source.count_fitting = fits_if_even;
    source.state = &times_asked;
    filler.start({&source});
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
    MaskSource source = source_of(fail);
    source.only = 37;
    filler.start({&source});
    check(filler.only(0) == 37, "idle %d: not told", int(has_idle_core));
    for (int32_t token = 0; token < int32_t{kBytes} * 8; ++token) {
      check(filler.has(0, token) == (token == 37), "token %d", token);
    }
    filler.finish();
  }
}

// A text that must be 5, 6, 7: the state is the token that comes next.
int32_t consume_the_next(void* state, uint32_t token) {
  return static_cast<int>(token) == (*static_cast<int*>(state))++ ? 0 : -1;
}
bool is_behind_seven(void* state) { return *static_cast<int*>(state) > 7; }
int32_t find_the_next(void* state, uint32_t* tokens, size_t) {
  tokens[0] = static_cast<uint32_t>(*static_cast<int*>(state));
  return 1;
}

void a_source_goes_on_by_the_token_that_it_is_told() {
  for (const bool has_idle_core : {false, true}) {
    int next = 5;
    MaskSource source = source_of(fill_with_ones);
    source.state = &next;
    source.consume = consume_the_next;
    source.is_over = is_behind_seven;
    source.find_only = find_the_next;
    MaskFiller filler(has_idle_core);
    for (int32_t token = 5; token <= 7; ++token) {
      filler.start({&source});
      check(filler.has(0, token), "token %d is none", token);
      filler.tell(0, token);
      check(source.told == token && source.status == 0, "token %d is not told", token);
      check(source.has_ended == (token == 7) && source.only == (token == 7 ? -1 : token + 1),
            "after %d: ended %d, only %d", token, source.has_ended, source.only);
      filler.finish();
    }
    filler.start({&source});
    filler.tell(0, 3);
    check(source.told == 3 && source.status != 0, "a wrong token passes%s", "");
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
  MaskSource source = source_of(fill_with_ones);
  try {
    filler.start({&source});
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
  MaskSource source = source_of(fill_with_ones);
  filler.start({&source});
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
  run("a source goes on by the token that it is told", a_source_goes_on_by_the_token_that_it_is_told);
#if defined(__GLIBC__)
  run("a thread that cannot be made is an error, and the next step tries again",
      a_thread_that_cannot_be_made_is_an_error_and_the_next_step_tries_again);
#endif
  return result();
}
