// One program with its working memory, and how the threads of a region walk through it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "batch.hpp"
#include "experts.hpp"
#include "kernels/table.hpp"
#include "kv_pool.hpp"
#include "memory.hpp"
#include "program.hpp"
#include "share.hpp"
#include "threads.hpp"

namespace octavo {

// The largest step that will come.
struct StepLimits {
  int64_t max_rows;  // sequences
  int64_t max_len;   // tokens of one sequence
};

class Forward {
 public:
  // Throws std::invalid_argument when the pool's layers are not those of the program.
  Forward(std::shared_ptr<const Program> program, const KernelTable& kernels,
          std::shared_ptr<ThreadPool> threads, std::shared_ptr<const KvPool> kv,
          const StepLimits& limits);

  // Both are called by every thread of one region; the batch fits the limits and the program.
  // First the operations over tokens, then, for each slice of the wanted rows, those over wanted rows.
  // Threads have not met yet when these return.
  void run_tokens(const StepBatch& batch, int thread);
  void run_wanted(const StepBatch& batch, const Share& slice, int thread);

  // Logits of the i-th wanted row of the slice that ran last: [vocab_size].
  float* logits(int64_t index) {
    const View& view = program_->logits();
    return arena_.floats() + view.offset + index * view.stride;
  }
  float* arena() { return arena_.floats(); }

  const Program& program() const { return *program_; }
  const KernelTable& kernels() const { return kernels_; }
  ThreadPool& threads() { return *threads_; }
  const KvPool& kv() const { return *kv_; }
  // How far back the layers of each KV group look at most, the token itself included; 0: to the first.
  const std::vector<int64_t>& windows() const { return windows_; }

  // Bytes of working memory that a Forward of these takes.
  static int64_t workspace_bytes(const Program& program, const KernelTable& kernels,
                                 int num_threads, const StepLimits& limits);

 private:
  // What an operation needs besides itself.
  struct Context {
    const StepBatch& batch;
    int64_t num_rows;            // of the operation
    const int32_t* wanted;       // tokens of the slice
    int thread;
    const int32_t* wanted_first = nullptr;  // of the slice, where the batch has them
  };

  void run(const std::vector<Op>& ops, const Context& context);

  void execute(const EmbedOp& op, const Context& context);
  void execute(const RoundOp& op, const Context& context);
  void execute(const LinearOp& op, const Context& context);
  void execute(const NormOp& op, const Context& context);
  void execute(const RopeTableOp& op, const Context& context);
  void execute(const RotaryOp& op, const Context& context);
  void execute(const AttentionOp& op, const Context& context);
  void execute(const GatedOp& op, const Context& context);
  void execute(const ActivationOp& op, const Context& context);
  void execute(const AddOp& op, const Context& context);
  void execute(const ScaleOp& op, const Context& context);
  void execute(const SoftCapOp& op, const Context& context);
  void execute(const ReorderOp& op, const Context& context);
  void execute(const WantedRowsOp& op, const Context& context);
  void execute(const LayerNormOp& op, const Context& context);
  void execute(const RouteOp& op, const Context& context);
  void execute(const ExpertsOp& op, const Context& context);
  void execute(const MultiplyRowsOp& op, const Context& context);
  void execute(const HeadProductsOp& op, const Context& context);
  void execute(const JoinHeadsOp& op, const Context& context);
  void execute(const PositionFactorsOp& op, const Context& context);

  float* at(const View& view) { return arena_.floats() + view.offset; }
  uint8_t* bytes_at(const View& view) { return reinterpret_cast<uint8_t*>(at(view)); }
  float* own_scratch(const Context& context) {
    return scratch_.floats() + scratch_floats_ * context.thread;
  }
  Share own_rows(const Context& context) const {
    return share_of(context.num_rows, context.thread, threads_->num_threads());
  }

  std::shared_ptr<const Program> program_;
  const KernelTable& kernels_;
  std::shared_ptr<ThreadPool> threads_;
  std::shared_ptr<const KvPool> kv_;
  std::vector<int64_t> windows_;
  Memory arena_;
  Memory scratch_;               // one piece per thread
  int64_t scratch_floats_ = 0;   // of each piece
  ExpertsRun experts_;
  Memory partials_;              // of attention, shared by the threads
};

}  // namespace octavo
