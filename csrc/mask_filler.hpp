// Masks of tokens that are made while the step computes.
//
// What may come next in an answer of some form is known once the token before it is, and needed only when
// logits are there. So where a core is idle a thread of our own makes the masks of a step, one after the
// other, from its beginning; they cost nothing then. A compute thread that needs one which nobody has begun
// makes it itself. Where no core is idle that is the only way: another thread would take the core of a
// compute thread, and all others would wait for that one at the next barrier.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "threads.hpp"

namespace octavo {

// Who knows a mask: a C function that writes exactly num_bytes of it and returns 0 if it could. Bit i of
// the mask is bit i % 32 of word i / 32. One thread at a time calls it for one state.
struct MaskSource {
  using Fill = int32_t (*)(void* state, uint32_t* bits, size_t num_bytes);
  Fill fill = nullptr;
  void* state = nullptr;
  size_t num_bytes = 0;
};

class MaskFiller {
 public:
  explicit MaskFiller(bool has_idle_core);
  ~MaskFiller();
  MaskFiller(const MaskFiller&) = delete;
  MaskFiller& operator=(const MaskFiller&) = delete;

  // Begin with the masks of a step. The states belong to the filler until finish().
  void start(const std::vector<MaskSource>& sources);

  // Mask `index` of the step: made when this returns, alive until the next start(). Any thread may call.
  // Throws std::runtime_error if it could not be made.
  const uint8_t* get(size_t index);

  // Nothing is being made when this returns, and nothing more will be.
  void finish();

 private:
  enum State : int { kFree, kTaken, kMade, kFailed };

  struct Mask {
    MaskSource source;
    std::vector<uint32_t> bits;
    std::atomic<int> state{kFree};
  };

  // Held by pointer because a forked child can neither join the thread nor destroy what it waits at.
  struct Worker {
    WaitPoint work{0};
    std::thread thread;
  };

  static constexpr int64_t kOneMaskNs = 100'000;

  bool make(Mask& mask);  // unless somebody else has begun
  void run(Worker& worker);

  std::vector<std::unique_ptr<Mask>> masks_;  // the first num_masks_ are those of the step
  size_t num_masks_ = 0;
  std::mutex making_;                         // the worker holds it while it looks at masks_
  std::atomic<uint64_t> step_{0};
  std::atomic<bool> is_over_{true};           // the step needs nothing more
  std::atomic<bool> stopping_{false};
  WaitPoint made_{kOneMaskNs};
  bool has_idle_core_;
  int64_t process_id_;
  std::unique_ptr<Worker> worker_;
};

}  // namespace octavo
