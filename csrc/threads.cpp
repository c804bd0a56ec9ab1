#include "threads.hpp"

#include <chrono>
#include <stdexcept>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif

namespace octavo {
namespace {

// Denormal numbers count as zero while this lives: they are slow on many processors and far below what
// any result here depends on. The thread's own mode comes back afterwards.
class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040u); }  // FTZ and DAZ
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#elif defined(__aarch64__)
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" : : "r"(before_ | (uint64_t{1} << 24)));  // FZ
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" : : "r"(before_)); }

 private:
  uint64_t before_;
#endif
};

// Bind the calling thread to the index-th core that the process may use.
void pin_to_core(int index) {
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  const int count = CPU_COUNT(&allowed);
  if (count == 0) return;
  int remaining = index % count;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || remaining-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);
    return;
  }
#else
  (void)index;
#endif
}

}  // namespace

int64_t current_process_id() {
#if defined(__unix__) || defined(__APPLE__)
  return getpid();
#else
  return 0;  // a system without fork()
#endif
}

void name_thread(const char* name) {
#if defined(__linux__)
  pthread_setname_np(pthread_self(), name);
#else
  (void)name;
#endif
}

#if defined(__unix__) || defined(__APPLE__)
BlockSignals::BlockSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
}

BlockSignals::~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
#endif

void WaitPoint::pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int64_t WaitPoint::now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

ThreadPool::ThreadPool(int num_threads, bool pin)
    : num_threads_(num_threads),
      process_id_(current_process_id()),
      team_(std::make_unique<Team>()) {
  if (num_threads < 1) {
    throw std::invalid_argument("a thread pool needs at least one thread, got " +
                                std::to_string(num_threads));
  }
  const BlockSignals block;  // inherited by the threads started here
  try {
    for (int thread = 1; thread < num_threads; ++thread) {
      team_->workers.emplace_back([this, thread, pin] {
        name_thread(("octavo-" + std::to_string(thread)).c_str());
        if (pin) pin_to_core(thread);
        work(thread);
      });
    }
  } catch (...) {
    stop_workers();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  if (current_process_id() != process_id_) {
    team_.release();
    return;
  }
  stop_workers();
}

void ThreadPool::stop_workers() {
  stopping_.store(true);
  team_->work.wake();
  for (std::thread& worker : team_->workers) worker.join();
}

void ThreadPool::run_region(RegionFunction function, void* body) {
  if (current_process_id() != process_id_) {
    throw std::runtime_error(
        "this process was forked from the one that started the engine, and compute threads do not "
        "survive a fork; create the engine after forking, or use the 'spawn' start method");
  }
  const std::lock_guard<std::mutex> one_caller(caller_mutex_);
  function_ = function;
  body_ = body;
  error_ = nullptr;
  failed_.store(false, std::memory_order_relaxed);
  arrived_.store(0, std::memory_order_relaxed);
  next_.store(0, std::memory_order_relaxed);
  unfinished_.store(num_threads_ - 1, std::memory_order_relaxed);
  region_.fetch_add(1, std::memory_order_release);
  team_->work.wake();
  take_part(0);
  team_->meeting.await([this] { return unfinished_.load(std::memory_order_acquire) == 0; });
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::work(int thread) {
  uint32_t seen = 0;
  while (true) {
    team_->work.await([this, seen] {
      return region_.load(std::memory_order_acquire) != seen ||
             stopping_.load(std::memory_order_acquire);
    });
    if (region_.load(std::memory_order_acquire) == seen) return;  // stopping
    ++seen;
    take_part(thread);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) team_->meeting.wake();
  }
}

void ThreadPool::take_part(int thread) noexcept {
  const FlushDenormals flush;
  try {
    function_(body_, thread);
  } catch (const RegionAborted&) {
    // The thread that failed has left its exception already.
  } catch (...) {
    {
      const std::lock_guard<std::mutex> lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
    failed_.store(true, std::memory_order_release);
    team_->meeting.wake();
  }
}

void ThreadPool::barrier() {
  if (num_threads_ == 1) {
    next_.store(0, std::memory_order_relaxed);
    return;
  }
  // Cannot advance before we have arrived, so this is the number of the barrier that we wait at.
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == num_threads_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    next_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    team_->meeting.wake();
    return;
  }
  team_->meeting.await([this, phase] {
    return phase_.load(std::memory_order_acquire) != phase ||
           failed_.load(std::memory_order_acquire);
  });
  if (phase_.load(std::memory_order_acquire) == phase) throw RegionAborted();
}

}  // namespace octavo
