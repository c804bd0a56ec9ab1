// The least that a check program needs: a counter of failures, random numbers, a clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <random>
#include <vector>

namespace octavo::tests {

// Sanitizers and emulators make kernels many times slower: long programs check a sample of their cases then.
#if defined(OCTAVO_TEST_EMULATED)
#define OCTAVO_TEST_SAMPLED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OCTAVO_TEST_SAMPLED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OCTAVO_TEST_SAMPLED 1
#endif
#ifdef OCTAVO_TEST_SAMPLED
constexpr bool kIsSampled = true;
#else
constexpr bool kIsSampled = false;
#endif

// All of these, or, where programs are slow, the first and the last.
template <class Item>
std::vector<Item> sample_of(const std::vector<Item>& items) {
  if (!kIsSampled || items.size() < 3) return items;
  return {items.front(), items.back()};
}

inline int failures = 0;

// Reports at most twenty failures in full, counts all.
template <class... Values>
void check(bool holds, const char* format, Values... values) {
  if (holds) return;
  if (++failures > 20) return;
  std::printf("  FAILED: ");
  std::printf(format, values...);
  std::printf("\n");
}

// Runs one test, prints its sentence and time.
template <class Test>
void run(const char* sentence, Test test) {
  const int before = failures;
  const auto start = std::chrono::steady_clock::now();
  test();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  std::printf("%s  %s (%.2f s)\n", failures == before ? "ok  " : "FAIL", sentence, elapsed.count());
  std::fflush(stdout);
}

// The exit status of the program.
inline int result() {
  if (failures > 0) std::printf("%d checks failed\n", failures);
  return failures > 0 ? 1 : 0;
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  float normal(float scale = 1.0f) { return scale * normal_(engine_); }
  int64_t below(int64_t end) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(end)); }
  int64_t between(int64_t first, int64_t last) { return first + below(last - first + 1); }
  std::vector<float> normals(int64_t size, float scale = 1.0f) {
    std::vector<float> values(static_cast<size_t>(size));
    for (float& value : values) value = normal(scale);
    return values;
  }
  template <class Item>
  Item pick(const std::vector<Item>& items) {
    return items[static_cast<size_t>(below(static_cast<int64_t>(items.size())))];
  }
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<float> normal_;
};

// The least processor time of `repeats` runs, in seconds, over all threads together. Unlike the time on
// the wall it means something on a machine that others use as well.
template <class Work>
double best_seconds(int repeats, Work work) {
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const std::clock_t start = std::clock();
    work();
    const double elapsed = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    if (elapsed < best) best = elapsed;
  }
  return best;
}

}  // namespace octavo::tests
