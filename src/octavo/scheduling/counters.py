"""Counters of one scheduler. They only grow.

Owns: the sums. Gauges are not here: they are read from the queues and the pool.
"""

from __future__ import annotations

from typing import get_args

from octavo.contracts.delta import FinishReason
from octavo.scheduling.request import Request


class Counters:
    """Tokens and requests since the start."""

    def __init__(self) -> None:
        self.num_preemptions = 0
        self.num_prompt_tokens = 0  # of admitted requests, once each, cached tokens included
        self.num_generation_tokens = 0
        self.prefix_query_tokens = 0
        self.prefix_hit_tokens = 0
        reasons: tuple[FinishReason, ...] = get_args(FinishReason)
        self.num_finished = dict.fromkeys(reasons, 0)

    def count_admission(self, request: Request) -> None:
        """A request runs for the first time; coming back from a preemption does not count."""
        self.num_prompt_tokens += request.num_prompt_tokens
        if request.table.reads_cache:
            self.prefix_query_tokens += request.num_prompt_tokens
            self.prefix_hit_tokens += request.num_cached_tokens
