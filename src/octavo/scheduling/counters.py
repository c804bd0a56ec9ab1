"""Counters of one scheduler. They only grow.

Owns: the sums. Gauges are not here: they are read from the queues and the pool.
"""

from __future__ import annotations

from typing import get_args

from octavo.contracts.delta import FinishReason
from octavo.contracts.step import StepPlan
from octavo.scheduling.request import Request


class Counters:
    """Tokens, requests and moved blocks since the start."""

    def __init__(self) -> None:
        self.num_preemptions = 0
        self.num_swaps = 0  # preemptions that moved the blocks instead of dropping them
        self.num_blocks_swapped_out = 0  # to host slots, on the way to a lower tier too
        self.num_blocks_swapped_in = 0
        self.num_blocks_copied = 0
        self.num_missed_deadlines = 0
        self.num_prompt_tokens = 0  # of admitted requests, once each, cached tokens included
        self.num_generation_tokens = 0
        self.num_drafts = 0  # rows that tested some, over all steps
        self.num_draft_tokens = 0
        self.num_accepted_tokens = 0
        self.num_accepted_by_place: list[int] = []  # of these the first drafts, the second ones, ..
        self.prefix_query_tokens = 0
        self.prefix_hit_tokens = 0
        reasons: tuple[FinishReason, ...] = get_args(FinishReason)
        self.num_finished = dict.fromkeys(reasons, 0)

    def count_admission(self, request: Request) -> None:
        """A request runs for the first time; coming back from a preemption does not count.

        Nor does a choice that shares the computed prompt of another: it brings none of its own.
        """
        self.num_prompt_tokens += request.num_prompt_tokens
        if request.table.reads_cache:
            self.prefix_query_tokens += request.num_prompt_tokens
            self.prefix_hit_tokens += request.num_cached_tokens

    def count_moves(self, plan: StepPlan) -> None:
        """A plan leaves with these moves."""
        self.num_blocks_swapped_out += len(plan.swap_out_to)
        self.num_blocks_swapped_in += len(plan.swap_in_to)
        self.num_blocks_copied += len(plan.copy_to)

    def count_drafts(self, num_drafts: int, num_accepted: int) -> None:
        """A step has tested the drafts of a row. `num_accepted_by_place` is long enough."""
        self.num_drafts += 1
        self.num_draft_tokens += num_drafts
        self.num_accepted_tokens += num_accepted
        for place in range(num_accepted):
            self.num_accepted_by_place[place] += 1

    @property
    def num_ended(self) -> int:
        """Requests that have ended, for whatever reason."""
        return sum(self.num_finished.values())
