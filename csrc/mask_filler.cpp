#include "mask_filler.hpp"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>

namespace octavo {

MaskFiller::MaskFiller(bool has_idle_core)
    : has_idle_core_(has_idle_core), process_id_(current_process_id()) {}

MaskFiller::~MaskFiller() {
  if (worker_ == nullptr) return;
  if (current_process_id() != process_id_) {
    worker_.release();
    return;
  }
  stopping_.store(true);
  worker_->work.wake();
  worker_->thread.join();
}

void MaskFiller::start(const std::vector<MaskSource*>& sources) {
  {
    const std::lock_guard<std::mutex> lock(making_);
    while (masks_.size() < sources.size()) masks_.push_back(std::make_unique<Mask>());
    for (size_t i = 0; i < sources.size(); ++i) {
      Mask& mask = *masks_[i];
      mask.source = sources[i];
      mask.only = sources[i]->only;
      mask.bits.resize((sources[i]->num_bytes + 3) / 4);
      mask.state.store(kFree, std::memory_order_relaxed);
      mask.holder.store(kNobody, std::memory_order_relaxed);
      for (auto* token : {&mask.expected, &mask.question, &mask.drawn}) {
        token->store(kNoToken, std::memory_order_relaxed);
      }
      mask.asked = kNoToken;
    }
    num_masks_ = sources.size();
    is_over_.store(num_masks_ == 0);
  }
  if (num_masks_ == 0 || !has_idle_core_) return;
  if (worker_ == nullptr) {
    auto worker = std::make_unique<Worker>();
    const BlockSignals block;  // inherited by the thread
    worker->thread = std::thread([this, at = worker.get()] { run(*at); });
    worker_ = std::move(worker);  // not before: a thread that could not be made cannot be joined
  }
  step_.fetch_add(1, std::memory_order_release);
  worker_->work.wake();
}

const uint8_t* MaskFiller::get(size_t index) {
  Mask& mask = *masks_[index];
  const bool is_free = mask.state.load(std::memory_order_acquire) == kFree;
  if (is_free && !has_idle_core_ && is_helped(mask)) {
    ask_helper(mask, kAllTokens);
  } else if (!make(mask)) {
    made_.await([&] { return mask.state.load(std::memory_order_acquire) >= kMade; });
  }
  if (mask.state.load(std::memory_order_acquire) == kFailed) {
    throw std::runtime_error(
        "no token is left to sample: the form of the answer became too complex to say what may come next");
  }
  return reinterpret_cast<const uint8_t*>(mask.bits.data());
}

void MaskFiller::expect(size_t index, int32_t token) {
  masks_[index]->expected.store(token, std::memory_order_release);
}

bool MaskFiller::has(size_t index, int32_t token) {
  Mask& mask = *masks_[index];
  const bool is_begun = has_idle_core_ || mask.state.load(std::memory_order_acquire) != kFree;
  if (is_begun || mask.source->count_fitting == nullptr) return is_marked(get(index), token);
  if (!is_helped(mask)) return ask(mask, token);
  ask_helper(mask, token);
  return mask.fits;
}

void MaskFiller::tell(size_t index, int32_t token) {
  Mask& mask = *masks_[index];
  if (mask.source->consume == nullptr) return;
  if (!is_helped(mask)) return go_on(*mask.source, token);
  mask.drawn.store(token, std::memory_order_release);
  helping_.wake();
}

void MaskFiller::ask_helper(Mask& mask, int32_t question) {
  mask.question.store(question, std::memory_order_release);
  helping_.wake();
  answered_.await([&] { return mask.question.load(std::memory_order_acquire) == kNoToken; });
}

bool MaskFiller::is_helped(Mask& mask) {
  int holder = kNobody;
  return !mask.holder.compare_exchange_strong(holder, kDrawer, std::memory_order_acq_rel) &&
         holder >= kHelper;
}

void MaskFiller::help(int thread, const std::atomic<int64_t>& num_drawn, int64_t num_rows) {
  if (num_masks_ == 0 || has_idle_core_) return;
  const int self = kHelper + thread;
  const auto is_over = [&] { return num_drawn.load(std::memory_order_acquire) >= num_rows; };
  const auto is_needed = [&] {
    return std::any_of(masks_.begin(), masks_.begin() + static_cast<std::ptrdiff_t>(num_masks_),
                       [self](const auto& mask) { return needs(*mask, self); });
  };
  for (bool is_last = false; !is_last;) {
    helping_.await([&] { return is_over() || is_needed(); });
    is_last = is_over();  // and what was asked before that is not answered yet
    for (size_t i = 0; i < num_masks_; ++i) {
      if (!needs(*masks_[i], self)) continue;
      serve(*masks_[i], self);
      answered_.wake();
    }
  }
}

// Whether a helper has something to do for a mask.
bool MaskFiller::needs(const Mask& mask, int helper) {
  const int holder = mask.holder.load(std::memory_order_acquire);
  if (holder == kNobody) return mask.expected.load(std::memory_order_relaxed) != kNoToken;
  return holder == helper && (mask.question.load(std::memory_order_relaxed) != kNoToken ||
                              mask.drawn.load(std::memory_order_relaxed) != kNoToken);
}

void MaskFiller::serve(Mask& mask, int helper) {
  int nobody = kNobody;
  if (mask.holder.compare_exchange_strong(nobody, helper, std::memory_order_acq_rel)) {
    const int32_t expected = mask.expected.load(std::memory_order_acquire);
    if (mask.source->count_fitting != nullptr) ask(mask, expected);
    return;
  }
  if (nobody != helper) return;
  const int32_t question = mask.question.load(std::memory_order_acquire);
  if (question != kNoToken) {
    if (question == kAllTokens) make(mask);
    else ask(mask, question);
    mask.question.store(kNoToken, std::memory_order_release);
  }
  const int32_t drawn = mask.drawn.exchange(kNoToken, std::memory_order_acq_rel);
  if (drawn != kNoToken) go_on(*mask.source, drawn);
}

bool MaskFiller::ask(Mask& mask, int32_t token) {
  if (mask.asked == token) return mask.fits;
  const uint32_t tokens[] = {static_cast<uint32_t>(token)};
  mask.asked = token;
  mask.fits = mask.source->count_fitting(mask.source->state, tokens, 1) == 1;
  return mask.fits;
}

void MaskFiller::go_on(MaskSource& source, int32_t token) {
  source.told = token;
  source.status = source.consume(source.state, static_cast<uint32_t>(token));
  source.has_ended = source.is_over(source.state);
  source.only = -1;
  if (source.has_ended != 0) return;
  uint32_t next[1];
  if (source.find_only(source.state, next, 1) > 0) source.only = static_cast<int32_t>(next[0]);
}

void MaskFiller::finish() {
  is_over_.store(true);
  const std::lock_guard<std::mutex> lock(making_);
}

bool MaskFiller::write(Mask& mask) {
  const MaskSource& source = *mask.source;
  if (mask.only < 0) return source.fill(source.state, mask.bits.data(), source.num_bytes) == 0;
  std::fill(mask.bits.begin(), mask.bits.end(), 0);
  mask.bits[static_cast<size_t>(mask.only) / 32] = uint32_t{1} << (mask.only % 32);
  return true;
}

bool MaskFiller::make(Mask& mask) {
  int free = kFree;
  if (!mask.state.compare_exchange_strong(free, kTaken, std::memory_order_acquire)) return false;
  const bool is_well = write(mask);
  mask.state.store(is_well ? kMade : kFailed, std::memory_order_release);
  made_.wake();
  return true;
}

void MaskFiller::run(Worker& worker) {
  name_thread("octavo-masks");
  uint64_t seen = 0;
  while (true) {
    worker.work.await([this, seen] {
      return step_.load(std::memory_order_acquire) != seen ||
             stopping_.load(std::memory_order_acquire);
    });
    if (stopping_.load(std::memory_order_acquire)) return;
    seen = step_.load(std::memory_order_acquire);
    const std::lock_guard<std::mutex> lock(making_);
    for (size_t i = 0; i < num_masks_ && !is_over_.load(); ++i) {
      if (masks_[i]->only < 0) make(*masks_[i]);
    }
  }
}

}  // namespace octavo
