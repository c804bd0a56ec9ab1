"""What the engine core can tell about itself: one record, made from live state when asked for.

Owns: the shape of the record, where each number is read, and the sum of step times.
Does not know: how anybody shows it (metrics endpoint, `octavo bench`, a live view).

Gauges (`num_running`, `num_used_blocks`, ...) are read from the queues and the pool at that moment,
so they cannot drift. Counters only grow; take two snapshots and subtract.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec

from octavo.contracts.delta import FinishReason
from octavo.contracts.tracing import StepTotals

if TYPE_CHECKING:
    from octavo.kvcache.manager import KVManager
    from octavo.scheduling.scheduler import Scheduler

# Upper bounds of the counts of tokens per step; one more count holds what is above the last.
STEP_SIZE_BOUNDS = tuple(2**power for power in range(15))
# The same for seconds of a step.
STEP_TIME_BOUNDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01),
    *(0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)


class StepStats(msgspec.Struct, frozen=True, kw_only=True):
    """One step that ran. Times in seconds."""

    num_rows: int
    num_tokens: int  # tokens computed
    python_s: float  # everything else: planning, handing over, committing
    compute_s: float  # computing, see `Executor.compute_s`
    swap_s: float = 0.0  # of them, moving blocks to and from host slots
    sample_s: float = 0.0  # of them, drawing and scoring tokens


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of one engine core."""

    # gauges
    num_running: int
    num_waiting: int  # preempted requests wait too
    num_used_blocks: int  # blocks that some request holds; cached ones that nobody holds are free
    num_blocks: int
    # counters
    prefix_query_tokens: int  # known tokens of requests at first admission that may read the cache
    prefix_hit_tokens: int  # of them, those found in the pool or in the disk tier
    num_preemptions: int
    num_prompt_tokens: int  # of admitted requests, once each, cached tokens included
    num_generation_tokens: int
    num_finished: dict[FinishReason, int]  # every request once, by its last state
    num_steps: int
    steps_by_size: list[int]  # steps of up to STEP_SIZE_BOUNDS[i] tokens, not of fewer
    num_step_tokens: int  # tokens computed in all steps
    python_s: float
    compute_s: float
    sample_s: float
    steps_by_python_s: list[int]  # as `steps_by_size`, by STEP_TIME_BOUNDS
    steps_by_compute_s: list[int]
    steps_by_sample_s: list[int]
    last_step: StepStats | None  # None before the first step
    # lower tiers, forks and deadlines
    num_waiting_deferred: int = 0  # of those that wait: for something else than room
    external_query_tokens: int = 0  # prompt tokens looked up in the disk tier, and found there
    external_hit_tokens: int = 0
    num_swaps: int = 0  # preemptions that moved the blocks away instead of dropping them
    num_blocks_swapped_out: int = 0  # to host slots, on the way to the disk tier too
    num_blocks_swapped_in: int = 0
    num_blocks_copied: int = 0  # written to while they were shared, or reused in part
    num_missed_deadlines: int = 0
    swap_s: float = 0.0
    num_drafts: int = 0  # rows that tested guesses of their next tokens, over all steps
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_by_place: list[
        int
    ] = []  # of these the first of a row, the second, ..; if it is on

    @property
    def kv_cache_usage(self) -> float:
        """Share of the pool in use, between 0 and 1."""
        return self.num_used_blocks / self.num_blocks

    @property
    def pool_hit_tokens(self) -> int:
        """Tokens found in the pool: hits without those that the disk tier had."""
        return self.prefix_hit_tokens - self.external_hit_tokens


class StepTimes:
    """Sums the times of steps. One per engine core."""

    def __init__(self) -> None:
        self.num_steps = 0
        self.by_size = [0] * (len(STEP_SIZE_BOUNDS) + 1)
        self.by_python_s = [0] * (len(STEP_TIME_BOUNDS) + 1)
        self.by_compute_s = [0] * (len(STEP_TIME_BOUNDS) + 1)
        self.by_sample_s = [0] * (len(STEP_TIME_BOUNDS) + 1)
        self.num_tokens = 0
        self.python_s = 0.0
        self.compute_s = 0.0
        self.swap_s = 0.0
        self.sample_s = 0.0
        self.last: StepStats | None = None

    def add(self, step: StepStats) -> None:
        """Count one step that ran."""
        self.num_steps += 1
        self.by_size[bisect_left(STEP_SIZE_BOUNDS, step.num_tokens)] += 1
        self.num_tokens += step.num_tokens
        self.python_s += step.python_s
        self.compute_s += step.compute_s
        self.swap_s += step.swap_s
        self.sample_s += step.sample_s
        self.by_python_s[bisect_left(STEP_TIME_BOUNDS, step.python_s)] += 1
        self.by_compute_s[bisect_left(STEP_TIME_BOUNDS, step.compute_s)] += 1
        self.by_sample_s[bisect_left(STEP_TIME_BOUNDS, step.sample_s)] += 1
        self.last = step

    def totals(self) -> StepTotals:
        """Seconds of all steps so far, as traces show them."""
        forward_s = self.compute_s - self.sample_s - self.swap_s
        return StepTotals(self.python_s, forward_s, self.compute_s)


def take_stats(scheduler: Scheduler, times: StepTimes) -> EngineStats:
    """Read everything between two steps."""
    counters, kv = scheduler.counters, scheduler.kv
    num_looked_up, num_found = _external_tokens(
        kv, counters.prefix_query_tokens, counters.prefix_hit_tokens
    )
    num_waiting = scheduler.roster.num_waiting
    return EngineStats(
        num_running=len(scheduler.running),
        num_waiting=num_waiting,
        num_used_blocks=kv.num_used_blocks,
        num_blocks=kv.num_blocks,
        prefix_query_tokens=counters.prefix_query_tokens,
        prefix_hit_tokens=counters.prefix_hit_tokens,
        num_preemptions=counters.num_preemptions,
        num_prompt_tokens=counters.num_prompt_tokens,
        num_generation_tokens=counters.num_generation_tokens,
        num_finished=dict(counters.num_finished),
        num_steps=times.num_steps,
        steps_by_size=list(times.by_size),
        num_step_tokens=times.num_tokens,
        python_s=times.python_s,
        compute_s=times.compute_s,
        sample_s=times.sample_s,
        steps_by_python_s=list(times.by_python_s),
        steps_by_compute_s=list(times.by_compute_s),
        steps_by_sample_s=list(times.by_sample_s),
        last_step=times.last,
        num_waiting_deferred=num_waiting - len(scheduler.waiting),
        external_query_tokens=num_looked_up,
        external_hit_tokens=num_found,
        num_swaps=counters.num_swaps,
        num_blocks_swapped_out=counters.num_blocks_swapped_out,
        num_blocks_swapped_in=counters.num_blocks_swapped_in,
        num_blocks_copied=counters.num_blocks_copied,
        num_missed_deadlines=counters.num_missed_deadlines,
        swap_s=times.swap_s,
        num_drafts=counters.num_drafts,
        num_draft_tokens=counters.num_draft_tokens,
        num_accepted_tokens=counters.num_accepted_tokens,
        num_accepted_by_place=list(counters.num_accepted_by_place),
    )


def _external_tokens(kv: KVManager, num_queried: int, num_hit: int) -> tuple[int, int]:
    """Prompt tokens that the pool lacked and the disk tier was asked for, and those it gave."""
    if kv.link is None:
        return 0, 0
    num_found = kv.link.num_loaded * kv.block_size // len(kv.groups)
    return max(0, num_queried - num_hit) + num_found, num_found
