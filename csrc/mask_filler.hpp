// What may come next in an answer of some form: known once the token before it is, and needed only when logits
// are there.
//
// Where a core is idle a thread of our own makes the masks of a step, one after the other, from its beginning;
// they cost nothing then. A compute thread that needs one which nobody has begun makes it itself. Where no
// core is idle that would be the only way: another thread would take the core of a compute thread, and all
// others would wait for that one at the next barrier. There a compute thread asks about single tokens, and
// makes a mask only where that is not enough.
//
// Nearly all of what a question costs is that the weights of a step have driven its state out of the caches.
// So a compute thread that has no row to draw helps one that does: it asks about the likeliest token while
// the other draws, and answers for that state from then on, with all of it in the cache of its core.
//
// All of them know the same, so it cannot be seen in any answer who was asked.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "allowed.hpp"
#include "threads.hpp"

namespace octavo {

// Who knows a mask, and what it said: MaskSource in contracts/grammar.py. Bit i of the mask is bit i % 32 of
// word i / 32. One thread at a time calls the functions for one state.
struct MaskSource {
  int32_t (*fill)(void* state, uint32_t* bits, size_t num_bytes) = nullptr;
  int32_t (*count_fitting)(void* state, const uint32_t* tokens, size_t count) = nullptr;
  int32_t (*consume)(void* state, uint32_t token) = nullptr;
  bool (*is_over)(void* state) = nullptr;
  int32_t (*find_only)(void* state, uint32_t* tokens, size_t capacity) = nullptr;
  void* state = nullptr;
  size_t num_bytes = 0;
  int32_t only = -1;
  int32_t told = -1;
  int32_t status = 0;
  int32_t has_ended = 0;
};

class MaskFiller {
 public:
  explicit MaskFiller(bool has_idle_core);
  ~MaskFiller();
  MaskFiller(const MaskFiller&) = delete;
  MaskFiller& operator=(const MaskFiller&) = delete;

  // Begin with the masks of a step. The states belong to the filler until finish().
  void start(const std::vector<MaskSource*>& sources);

  // Mask `index` of the step: made when this returns, alive until the next start(). Any thread may call.
  // Throws std::runtime_error if it could not be made.
  const uint8_t* get(size_t index);

  // The only token of mask `index`, where its source says so; else -1.
  int32_t only(size_t index) const { return masks_[index]->only; }

  // For a compute thread without a row to draw: answers the questions of the others, until *num_drawn is
  // num_rows. Whoever makes it so calls end_help().
  void help(int thread, const std::atomic<int64_t>& num_drawn, int64_t num_rows);
  void end_help() { helping_.wake(); }

  // Mask `index` will be asked for a token soon, probably for this one.
  void expect(size_t index, int32_t token);

  // Whether mask `index` has a token. Any thread may call, one at a time for a mask. Throws as get() does.
  bool has(size_t index, int32_t token);

  // The token that was drawn under mask `index`: its source goes on by it, while all of it is in the cache.
  // A thread that helps may still be at it when this returns; it is through when help() returns.
  void tell(size_t index, int32_t token);

  // Nothing is being made when this returns, and nothing more will be.
  void finish();

 private:
  enum State : int { kFree, kTaken, kMade, kFailed };
  enum Holder : int { kNobody, kDrawer, kHelper };
  static constexpr int32_t kNoToken = -1;
  static constexpr int32_t kAllTokens = -2;

  struct Mask {
    MaskSource* source = nullptr;
    int32_t only = -1;  // its source's when the step began
    std::vector<uint32_t> bits;
    std::atomic<int> state{kFree};

    // Where single tokens are asked about. Only `holder` calls the functions of the source.
    std::atomic<int> holder{kNobody};         // or who draws, or kHelper + a thread
    std::atomic<int32_t> expected{kNoToken};  // read where nobody holds the mask
    std::atomic<int32_t> question{kNoToken};  // to the helper, until it is answered
    std::atomic<int32_t> drawn{kNoToken};     // what the helper has been told
    int32_t asked = kNoToken;                 // what the source was asked last
    bool fits = false;                        // and what it said
  };

  // Held by pointer because a forked child can neither join the thread nor destroy what it waits at.
  struct Worker {
    WaitPoint work{0};
    std::thread thread;
  };

  static constexpr int64_t kOneMaskNs = 100'000;
  static constexpr int64_t kOneQuestionNs = 100'000;
  static constexpr int64_t kOneDrawNs = 500'000;

  static bool is_helped(Mask& mask);  // else who draws holds it when this returns
  static bool needs(const Mask& mask, int helper);
  void serve(Mask& mask, int helper);
  void ask_helper(Mask& mask, int32_t question);
  static bool ask(Mask& mask, int32_t token);
  static void go_on(MaskSource& source, int32_t token);
  static bool write(Mask& mask);  // whether it could
  bool make(Mask& mask);  // unless somebody else has begun
  void run(Worker& worker);

  std::vector<std::unique_ptr<Mask>> masks_;  // the first num_masks_ are those of the step
  size_t num_masks_ = 0;
  std::mutex making_;                         // the worker holds it while it looks at masks_
  std::atomic<uint64_t> step_{0};
  std::atomic<bool> is_over_{true};           // the step needs nothing more
  std::atomic<bool> stopping_{false};
  WaitPoint made_{kOneMaskNs};
  WaitPoint answered_{kOneQuestionNs};        // who draws, by helpers
  WaitPoint helping_{kOneDrawNs};             // helpers, by who draws
  bool has_idle_core_;
  int64_t process_id_;
  std::unique_ptr<Worker> worker_;
};

// One mask of the step in progress.
class PendingMask final : public Allowed {
 public:
  PendingMask(MaskFiller& filler, size_t index) : filler_(filler), index_(index) {}
  int32_t only() const override { return filler_.only(index_); }
  void expect(int32_t token) override { filler_.expect(index_, token); }
  bool has(int32_t token) override { return filler_.has(index_, token); }
  const uint8_t* bits() override { return filler_.get(index_); }

 private:
  MaskFiller& filler_;
  size_t index_;
};

}  // namespace octavo
