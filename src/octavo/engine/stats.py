"""What the engine core can tell about itself: one record, made from live state when asked for.

Owns: the shape of the record and the sum of step times.
Does not know: how anybody shows it (metrics endpoint, `octavo bench`, a live view).

Gauges (`num_running`, `num_used_blocks`, ...) are read from the queues and the pool at that moment,
so they cannot drift. Counters only grow; take two snapshots and subtract.
"""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from octavo.contracts.delta import FinishReason

# Upper bounds of the counts of tokens per step; one more count holds what is above the last.
STEP_SIZE_BOUNDS = tuple(2**power for power in range(15))


class StepStats(msgspec.Struct, frozen=True, kw_only=True):
    """One step that ran. Times in seconds."""

    num_rows: int
    num_tokens: int  # tokens computed
    python_s: float  # everything else: planning, handing over, committing
    compute_s: float  # computing, see `Executor.compute_s`


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of one engine core."""

    # gauges
    num_running: int
    num_waiting: int  # preempted requests wait too
    num_used_blocks: int  # blocks that some request holds; cached ones that nobody holds are free
    num_blocks: int
    # counters
    prefix_query_tokens: int  # known tokens of requests at first admission that may read the cache
    prefix_hit_tokens: int
    num_preemptions: int
    num_prompt_tokens: int  # of admitted requests, once each, cached tokens included
    num_generation_tokens: int
    num_finished: dict[FinishReason, int]  # every request once, by its last state
    num_steps: int
    steps_by_size: list[int]  # steps of up to STEP_SIZE_BOUNDS[i] tokens, not of fewer
    num_step_tokens: int  # tokens computed in all steps
    python_s: float
    compute_s: float
    last_step: StepStats | None  # None before the first step

    @property
    def kv_cache_usage(self) -> float:
        """Share of the pool in use, between 0 and 1."""
        return self.num_used_blocks / self.num_blocks


class StepTimes:
    """Sums the times of steps. One per engine core."""

    def __init__(self) -> None:
        self.num_steps = 0
        self.by_size = [0] * (len(STEP_SIZE_BOUNDS) + 1)
        self.num_tokens = 0
        self.python_s = 0.0
        self.compute_s = 0.0
        self.last: StepStats | None = None

    def add(self, step: StepStats) -> None:
        """Count one step that ran."""
        self.num_steps += 1
        self.by_size[bisect_left(STEP_SIZE_BOUNDS, step.num_tokens)] += 1
        self.num_tokens += step.num_tokens
        self.python_s += step.python_s
        self.compute_s += step.compute_s
        self.last = step
