"""Executors of the serving benchmarks: one costs virtual time, one watches another executor.

Owns: the move of the virtual clock, what a step is made of, leftover rows between two runs.
Does not know: policies. Both work for whatever makes plans.
"""

from __future__ import annotations

import math
import random
import time
from typing import Any

from benchmarks.cost_model import CostModel, MeasuredStep
from benchmarks.kv_meter import KVMeter
from octavo.contracts.kv_plan import KVPlan, MemoryPlan
from octavo.contracts.progress import ReportProgress
from octavo.contracts.step import StepPlan, StepResult, TokenLogprobs
from octavo.executor.base import Executor
from octavo.foundation.clock import ManualClock

_FIRST_BEST = 1 << 20  # ids of the further tokens that a beam search is offered begin here


class CostExecutor:
    """An `Executor` without a model that moves a clock by what each step would take.

    Beam searches are offered tokens with random probabilities, in which the best one has about a
    third of the mass on average.
    """

    def __init__(
        self,
        cost: CostModel,
        kv_plan: KVPlan,
        clock: ManualClock,
        meter: KVMeter,
        *,
        max_model_len: int,
    ) -> None:
        self._cost = cost
        self._clock = clock
        self._meter = meter
        self._memory_plan = MemoryPlan(
            limit_bytes=0,
            usable_bytes=0,
            weights_bytes=0,
            workspace_bytes=0,
            kv=kv_plan,
            max_model_len=max_model_len,
        )
        self._compute_s = 0.0
        self._num_logprobs: dict[int, int] = {}  # of rows that want some
        self._random = random.Random(0)  # noqa: S311 - made-up probabilities

    def start(self, report: ReportProgress) -> MemoryPlan:
        """See `Executor`."""
        return self._memory_plan

    def run(self, plan: StepPlan) -> StepResult:
        """See `Executor`. Only virtual time passes."""
        cost, meter = self._cost, self._meter
        meter.see(plan)
        seconds = cost.step_s(plan.total_tokens, len(plan.rows), meter.num_context_tokens)
        swap_s = cost.moved_block_s * (len(plan.swap_in_to) + len(plan.swap_out_to))
        seconds += cost.moved_block_s * len(plan.copy_to)
        self._clock.advance(seconds + swap_s)
        self._compute_s += seconds + swap_s
        meter.spend(seconds + swap_s)
        # Different tokens for the rows of a step: samples of one prompt must not become equal.
        first = plan.step_id * 31 % 4096
        result = StepResult(
            step_id=plan.step_id, sampled=list(range(first, first + sum(plan.samples)))
        )
        result.swap_s = swap_s
        if plan.freed_rows or plan.new_rows:
            self._note_rows(plan)
        if self._num_logprobs:
            self._offer_logprobs(plan, result)
        return result

    @property
    def compute_s(self) -> float:
        """See `Executor`. Virtual seconds."""
        return self._compute_s

    def describe(self) -> str:
        """See `Executor`."""
        return f"no model; {self._cost.origin}"

    def kv_tier(self) -> None:
        """There is no disk."""

    def stop(self) -> None:
        """See `Executor`."""

    def _note_rows(self, plan: StepPlan) -> None:
        for row in plan.freed_rows:
            self._num_logprobs.pop(row, None)
        for new in plan.new_rows:
            if new.sampling.num_logprobs >= 0:
                self._num_logprobs[new.row] = new.sampling.num_logprobs

    def _offer_logprobs(self, plan: StepPlan, result: StepResult) -> None:
        sampling_rows = [
            row for row, samples in zip(plan.rows, plan.samples, strict=True) if samples
        ]
        for row, token_id in zip(sampling_rows, result.sampled, strict=True):
            num_best = self._num_logprobs.get(row)
            if num_best is not None:
                result.logprobs[row] = [self._random_logprobs(token_id, num_best)]

    def _random_logprobs(self, token_id: int, num_best: int) -> TokenLogprobs:
        masses = sorted(
            (self._random.paretovariate(0.7) for _ in range(num_best + 1)), reverse=True
        )
        total = sum(masses)
        scores = [math.log(mass / total) for mass in masses]
        others = range(_FIRST_BEST, _FIRST_BEST + num_best)
        best = [token_id, *others][:num_best]
        return TokenLogprobs([token_id, *best], [scores[0], *scores[:num_best]], 1)


class WatchedExecutor:
    """A started executor, shared by several runs one after another. Watches every step.

    A run may end with rows that it has not freed yet; the next run's first plan frees them.
    """

    def __init__(self, executor: Executor, memory_plan: MemoryPlan) -> None:
        self.steps: list[MeasuredStep] | None = None  # a list here gets every step
        self._executor = executor
        self._memory_plan = memory_plan
        self._meter: KVMeter | None = None
        self._leftover_rows: list[int] = []

    def use_meter(self, meter: KVMeter) -> None:
        """A new run begins."""
        if self._meter is not None:
            self._leftover_rows += self._meter.live_rows
        self._meter = meter

    def start(self, report: ReportProgress) -> MemoryPlan:
        """See `Executor`. The executor inside runs already."""
        return self._memory_plan

    def run(self, plan: StepPlan) -> StepResult:
        """See `Executor`."""
        assert self._meter is not None, "use_meter comes first"
        self._meter.see(plan)
        if self._leftover_rows:
            plan.freed_rows = sorted({*plan.freed_rows, *self._leftover_rows})
            self._leftover_rows = []
        begin_s = time.perf_counter()
        result = self._executor.run(plan)
        seconds = time.perf_counter() - begin_s
        self._meter.spend(seconds)
        if self.steps is not None:
            self.steps.append(
                MeasuredStep(
                    seconds, plan.total_tokens, len(plan.rows), self._meter.num_context_tokens
                )
            )
        return result

    @property
    def compute_s(self) -> float:
        """See `Executor`."""
        return self._executor.compute_s

    def describe(self) -> str:
        """See `Executor`."""
        return self._executor.describe()

    def stop(self) -> None:
        """The executor inside belongs to whoever made it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)
