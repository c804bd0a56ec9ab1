// Gated MLPs of which every token goes through a few: what a step of them needs and how threads share it.
//
// Tokens are gathered by expert, so that the weights of an expert are read once for all of its tokens. What
// comes out for a token does not depend on its neighbours: each product is one chain (kernels/linear.hpp),
// and the experts of a token are added up in the order in which its router named them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/table.hpp"
#include "memory.hpp"
#include "program.hpp"
#include "share.hpp"
#include "threads.hpp"

namespace octavo {

// Working memory of all ExpertsOps of one program, which use it one after the other.
class ExpertsRun {
 public:
  ExpertsRun(const Program& program, const KernelTable& kernels, ThreadPool& threads);

  // Bytes that a run of these takes.
  static int64_t workspace_bytes(const Program& program, int num_threads);

  // Called by every thread of a region; they have met since inputs were written. `arena`: of the program,
  // `scratch`: of this thread, as large as products ask for. Threads have met since inputs were read when
  // it returns, and have written rows of `out` in even shares.
  void run(const ExpertsOp& op, int64_t num_rows, float* arena, float* scratch, int thread);

 private:
  struct Slice;  // some tokens, and what is known of them

  Slice slice_of(const ExpertsOp& op, float* arena, int64_t begin, int64_t end, int thread);
  void group(Slice& slice) const;
  void gather(const Slice& slice, int thread);
  template <class Visit>
  void each_share(const Slice& slice, const std::vector<const Matrix*>& matrices, int thread,
                  const Visit& visit) const;
  void multiply_in(const Slice& slice, float* scratch, int thread);
  void activate(const Slice& slice, int thread);
  void multiply_out(const Slice& slice, float* scratch, int thread);
  void combine(const Slice& slice, const Share& rows) const;

  const Weights& weights_;
  const Rounding rounding_;
  const KernelTable& kernels_;
  ThreadPool& threads_;
  Memory floats_;  // gathered rows, results of products
  Memory counts_;  // of each thread
  int64_t counts_stride_ = 0;
};

}  // namespace octavo
