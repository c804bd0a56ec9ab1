// Checks of the thread pool, outside Python:
//
//   g++ -std=c++17 -O2 -pthread csrc/tests/test_threads.cpp csrc/threads.cpp -o test_threads && ./test_threads
#if defined(__linux__)
#include <sched.h>
#endif
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../share.hpp"
#include "../threads.hpp"
#include "check.hpp"

namespace octavo::tests {
namespace {

const std::vector<int> kTeamSizes = {1, 2, 3, 5};

// What is thrown by run(), as text; empty when nothing is.
template <class Body>
std::string fault_of(ThreadPool& pool, Body body) {
  try {
    pool.run(body);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void every_thread_runs_the_body_once() {
  for (const int size : kTeamSizes) {
    ThreadPool pool(size, false);
    for (int region = 0; region < 200; ++region) {
      std::vector<int> calls(static_cast<size_t>(size));
      pool.run([&](int thread) { ++calls[static_cast<size_t>(thread)]; });
      for (const int count : calls) check(count == 1, "%d threads: %d calls", size, count);
    }
  }
}

// Each thread writes its own place and, after a barrier, reads all of them. No place is atomic, so a
// barrier that lets anybody through too early or hides a write shows as a wrong sum.
void a_barrier_makes_all_writes_before_it_visible_after_it() {
  for (const int size : kTeamSizes) {
    ThreadPool pool(size, false);
    std::vector<int64_t> places(static_cast<size_t>(size));
    std::atomic<int> wrong{0};
    for (int region = 0; region < 20; ++region) {
      pool.run([&](int thread) {
        for (int64_t round = 0; round < 100; ++round) {
          places[static_cast<size_t>(thread)] = round + thread;
          pool.barrier();
          int64_t sum = 0;
          for (const int64_t place : places) sum += place;
          if (sum != size * round + size * (size - 1) / 2) ++wrong;
          pool.barrier();
        }
      });
    }
    check(wrong == 0, "%d threads: %d wrong sums", size, wrong.load());
  }
}

void threads_wait_for_one_that_is_late() {
  ThreadPool pool(3, false);
  for (int late = 0; late < 3; ++late) {
    std::atomic<bool> arrived{false};
    std::atomic<int> early{0};
    pool.run([&](int thread) {
      if (thread == late) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the others are asleep by now
        arrived = true;
      }
      pool.barrier();
      if (!arrived) ++early;
    });
    check(early == 0, "thread %d was not waited for", late);
  }
}

void an_exception_of_any_thread_reaches_the_caller_and_frees_the_others() {
  for (const int size : {2, 3, 5}) {
    ThreadPool pool(size, false);
    for (int failing = 0; failing < size; ++failing) {
      const std::string fault = fault_of(pool, [&](int thread) {
        pool.barrier();
        if (thread == failing) throw std::runtime_error("thread " + std::to_string(thread));
        pool.barrier();  // would wait for ever for the one that failed
        check(false, "a thread passed a barrier that not everybody reached");
      });
      check(fault == "thread " + std::to_string(failing), "got '%s'", fault.c_str());
      std::atomic<int> calls{0};
      pool.run([&](int) {
        pool.barrier();
        ++calls;
      });
      check(calls == size, "after a fault only %d of %d threads came back", calls.load(), size);
    }
  }
}

// Numbers start at zero again after every barrier, also for a thread that took none.
void each_number_is_taken_by_one_thread_and_again_after_a_barrier() {
  constexpr int kRegions = 5, kRounds = 20, kCount = 50;
  for (const int size : kTeamSizes) {
    ThreadPool pool(size, false);
    std::vector<std::atomic<int>> taken(kCount);
    for (int region = 0; region < kRegions; ++region) {
      pool.run([&](int) {
        for (int round = 0; round < kRounds; ++round) {
          for (int64_t i = pool.take(); i < kCount; i = pool.take()) {
            ++taken[static_cast<size_t>(i)];
          }
          pool.barrier();
        }
      });
    }
    for (const std::atomic<int>& count : taken) {
      check(count == kRegions * kRounds, "%d threads: taken %d times", size, count.load());
    }
  }
}

void two_pools_do_not_disturb_each_other() {
  ThreadPool first(2, false), second(3, false);
  std::atomic<int64_t> sums[2] = {{0}, {0}};
  const auto use = [&](ThreadPool& pool, std::atomic<int64_t>& sum) {
    for (int region = 0; region < 300; ++region) {
      pool.run([&](int thread) {
        sum += thread;
        pool.barrier();
      });
    }
  };
  std::thread other([&] { use(second, sums[1]); });
  use(first, sums[0]);
  other.join();
  check(sums[0] == 300, "two threads: %ld", static_cast<long>(sums[0]));
  check(sums[1] == 900, "three threads: %ld", static_cast<long>(sums[1]));
}

void regions_of_two_callers_follow_one_another() {
  ThreadPool pool(2, false);
  std::atomic<int> inside{0};
  std::atomic<int> overlaps{0};
  const auto use = [&] {
    for (int region = 0; region < 200; ++region) {
      pool.run([&](int thread) {
        if (thread == 0 && inside.fetch_add(1) != 0) ++overlaps;
        pool.barrier();
        if (thread == 0) inside.fetch_sub(1);
      });
    }
  };
  std::thread other(use);
  use();
  other.join();
  check(overlaps == 0, "%d regions overlapped", overlaps.load());
}

void denormals_are_zero_inside_and_only_there() {
  ThreadPool pool(3, false);
  volatile float tiny = std::numeric_limits<float>::min();
  check(tiny / 2 != 0.0f, "denormals are flushed outside");
  std::atomic<int> kept{0};
  pool.run([&](int) {
    if (tiny / 2 != 0.0f) ++kept;
  });
  check(kept == 0, "%d threads kept denormals", kept.load());
  check(tiny / 2 != 0.0f, "the caller's mode did not come back");
  fault_of(pool, [](int) { throw std::runtime_error("fault"); });
  check(tiny / 2 != 0.0f, "the caller's mode did not come back after a fault");
}

void a_forked_child_is_told_and_can_leave(bool workers_are_asleep) {
  ThreadPool* pool = new ThreadPool(3, false);
  pool->run([](int) {});
  if (workers_are_asleep) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const pid_t child = fork();
  if (child == 0) {
    const std::string fault = fault_of(*pool, [](int) {});
    delete pool;
    _exit(fault.find("fork") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with status %d", status);
  pool->run([](int) {});
  delete pool;
}

#if defined(__linux__)
int num_cores_of_this_thread() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : -1;
}

void started_threads_are_pinned_when_asked_and_the_caller_never_is() {
  const int before = num_cores_of_this_thread();
  for (const bool pin : {false, true}) {
    ThreadPool pool(3, pin);
    std::vector<int> cores(3);
    pool.run([&](int thread) { cores[static_cast<size_t>(thread)] = num_cores_of_this_thread(); });
    check(cores[0] == before, "the caller may use %d cores instead of %d", cores[0], before);
    const int expected = pin ? 1 : before;
    for (const int thread : {1, 2}) {
      const int count = cores[static_cast<size_t>(thread)];
      check(count == expected, "thread %d may use %d cores instead of %d", thread, count, expected);
    }
  }
}
#endif

void shares_cover_all_work_once() {
  for (int64_t count = 0; count < 40; ++count) {
    for (int threads = 1; threads < 9; ++threads) {
      int64_t next = 0;
      for (int thread = 0; thread < threads; ++thread) {
        const Share share = share_of(count, thread, threads);
        check(share.begin == next && share.end >= share.begin, "a gap in %ld items", long{count});
        check(share.end - share.begin <= count / threads + 1, "an uneven share");
        next = share.end;
      }
      check(next == count, "%ld of %ld items", long{next}, long{count});
    }
  }
}

void a_pool_without_threads_is_refused() {
  bool refused = false;
  try {
    ThreadPool pool(0, false);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  check(refused, "zero threads were accepted");
}

}  // namespace
}  // namespace octavo::tests

int main() {
  using namespace octavo::tests;
  run("every thread runs the body once", every_thread_runs_the_body_once);
  run("a barrier makes all writes before it visible after it",
      a_barrier_makes_all_writes_before_it_visible_after_it);
  run("threads wait for one that is late", threads_wait_for_one_that_is_late);
  run("an exception of any thread reaches the caller and frees the others",
      an_exception_of_any_thread_reaches_the_caller_and_frees_the_others);
  run("each number is taken by one thread and again after a barrier",
      each_number_is_taken_by_one_thread_and_again_after_a_barrier);
  run("two pools do not disturb each other", two_pools_do_not_disturb_each_other);
  run("regions of two callers follow one another", regions_of_two_callers_follow_one_another);
  run("denormals are zero inside and only there", denormals_are_zero_inside_and_only_there);
  run("a forked child of a busy pool is told and can leave",
      [] { a_forked_child_is_told_and_can_leave(false); });
  run("a forked child of an idle pool is told and can leave",
      [] { a_forked_child_is_told_and_can_leave(true); });
#if defined(__linux__)
  run("started threads are pinned when asked and the caller never is",
      started_threads_are_pinned_when_asked_and_the_caller_never_is);
#endif
  run("shares cover all work once", shares_cover_all_work_once);
  run("a pool without threads is refused", a_pool_without_threads_is_refused);
  return result();
}
