// The only thread pool: a fixed team of threads that runs one parallel region at a time.
//
// A step is one region, and threads meet at barriers inside it, because waking a team costs more than a
// whole layer of a small model. Waiting is by spinning for some microseconds, as long as that pays, and
// then by sleeping: an idle engine uses no CPU, and a busy machine is not made busier.
//
// Several pools may live in one process. A pool does not survive fork(): using it in the child throws.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <signal.h>
#endif

namespace octavo {

// Threads do not survive fork(): a child that holds objects with threads knows them by another process.
int64_t current_process_id();

// How the calling thread is called in a list of threads: up to 15 characters.
void name_thread(const char* name);

// Signals are for the interpreter's own threads: none reaches those that start while this lives.
class BlockSignals {
 public:
#if defined(__unix__) || defined(__APPLE__)
  BlockSignals();
  ~BlockSignals();

 private:
  sigset_t before_;
#endif
};

// Where threads wait for a condition over atomics that another thread makes true.
class WaitPoint {
 public:
  // A wait that is over after most_spin_ns pays to be spun through.
  explicit WaitPoint(int64_t most_spin_ns) : most_spin_ns_(most_spin_ns), budget_ns_(most_spin_ns) {}

  // Returns when done() is true. Spins as long as spinning pays lately, then sleeps until wake().
  template <class Done>
  void await(const Done& done) {
    for (int i = 0; i < kFreeSpins; ++i) {
      if (done()) return;
      pause();
    }
    const int64_t start = now_ns();
    const int64_t budget = budget_ns_.load(std::memory_order_relaxed);
    if (!spin(done, start + budget)) sleep(done);
    const bool pays = now_ns() - start <= most_spin_ns_;
    const int64_t next = pays ? budget + most_spin_ns_ / kSpinSteps : budget / 2;
    budget_ns_.store(next < most_spin_ns_ ? next : most_spin_ns_, std::memory_order_relaxed);
  }

  // Call after the change that may make a waiter's condition true.
  void wake() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (sleepers_.load() == 0) return;
    std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
  }

 private:
  template <class Done>
  static bool spin(const Done& done, int64_t end_ns) {
    while (now_ns() < end_ns) {
      for (int i = 0; i < 16; ++i) {
        if (done()) return true;
        pause();
      }
    }
    return false;
  }

  template <class Done>
  void sleep(const Done& done) {
    std::unique_lock<std::mutex> lock(mutex_);
    sleepers_.fetch_add(1);
    // Pairs with the fence in wake(): either we see the new value, or the waker sees a sleeper.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    while (!done()) changed_.wait(lock);
    sleepers_.fetch_sub(1);
  }

  static void pause();
  static int64_t now_ns();

  // On a quiet machine a wait is over in microseconds, and sleeping would make it ten times longer.
  // Where others want the cores, the thread that is waited for may have none for milliseconds, and one
  // that spins or yields meanwhile is put behind the others when it is needed again: ten times longer
  // as well. So a wait that spinning could not have covered halves the next spins, and one that it
  // could have covered makes them a step longer.
  static constexpr int kFreeSpins = 32;           // before the clock is read; about 1 us
  static constexpr int64_t kSpinSteps = 200;  // from none to the longest

  const int64_t most_spin_ns_;
  std::atomic<int64_t> budget_ns_;
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

class ThreadPool {
 public:
  // The calling thread is thread 0, so num_threads - 1 are started. `pin` binds each started thread to
  // one core of the process's affinity mask; the caller's own thread is left alone.
  ThreadPool(int num_threads, bool pin);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Run body(thread) once on every thread and return when all are through. Inside, denormal numbers
  // count as zero. The first exception of any thread is thrown to the caller; threads that wait at a
  // barrier meanwhile are released. Regions of several callers follow one another; a body must not
  // call run() of its own pool.
  template <class Body>
  void run(Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_region([](void* target, int thread) { (*static_cast<Plain*>(target))(thread); },
               const_cast<void*>(static_cast<const void*>(&body)));
  }

  // Inside a region: wait until every thread of it has come here.
  void barrier();

  // Inside a region: 0, 1, 2, ... since the last barrier, each number to one thread only, so that a
  // thread which is done early takes more.
  int64_t take() { return next_.fetch_add(1, std::memory_order_relaxed); }

 private:
  using RegionFunction = void (*)(void* body, int thread);

  // More than sleeping and waking take; and longer than the time between two steps, because on a virtual
  // machine a core whose thread sleeps is given away: 1 % of the steps took 15 ms longer.
  static constexpr int64_t kMeetingNs = 100'000;
  static constexpr int64_t kBetweenStepsNs = 200'000;

  // Held by pointer because in a forked child it can neither be joined nor destroyed: destroying a
  // condition variable waits for its sleepers, who live in the parent.
  struct Team {
    WaitPoint work{kBetweenStepsNs};  // workers between regions
    WaitPoint meeting{kMeetingNs};    // threads at a barrier, and the caller at the end of a region
    std::vector<std::thread> workers;
  };

  struct RegionAborted {};  // thrown at a barrier of a region in which another thread failed

  void run_region(RegionFunction function, void* body);
  void take_part(int thread) noexcept;
  void work(int thread);
  void stop_workers();

  // One cache line per atomic that different threads write.
  alignas(64) std::atomic<uint32_t> region_{0};   // number of the current region
  alignas(64) std::atomic<uint32_t> phase_{0};    // number of barriers passed
  alignas(64) std::atomic<int> arrived_{0};       // threads at the current barrier
  alignas(64) std::atomic<int> unfinished_{0};    // workers still inside the region
  alignas(64) std::atomic<bool> failed_{false};   // a thread of the region has thrown
  alignas(64) std::atomic<int64_t> next_{0};      // of take()
  std::atomic<bool> stopping_{false};

  RegionFunction function_ = nullptr;
  void* body_ = nullptr;
  std::mutex error_mutex_;
  std::exception_ptr error_;

  const int num_threads_;
  std::mutex caller_mutex_;
  int64_t process_id_;
  std::unique_ptr<Team> team_;
};

}  // namespace octavo
