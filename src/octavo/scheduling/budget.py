"""Step budget: how many tokens this step may still compute.

Owns: the count, and how a long gap is cut into chunks.
Does not know: blocks, queues.
"""

from __future__ import annotations

from octavo.config.engine import SchedulerConfig


class StepBudget:
    """Tokens of one step. Made for each plan."""

    __slots__ = ("_allows_chunks", "_max_num_tokens", "num_tokens_left")

    def __init__(self, config: SchedulerConfig) -> None:
        self._allows_chunks = config.enable_chunked_prefill
        self._max_num_tokens = config.max_num_batched_tokens
        self.num_tokens_left = config.max_num_batched_tokens

    def first_chunk(self, num_missing: int) -> int:
        """How many of its missing tokens a request would compute if it were admitted now.

        0 means not in this step. Without chunked prefill it is all or nothing, except for a gap
        longer than any step: a request that was preempted late must be able to come back.
        """
        if num_missing <= self.num_tokens_left:
            return num_missing
        if self._allows_chunks or num_missing > self._max_num_tokens:
            return self.num_tokens_left
        return 0

    def next_chunk(self, num_missing: int, num_kept: int) -> int:
        """The same for a running request, when `num_kept` tokens are kept for rows that decode."""
        return max(0, min(num_missing, self.num_tokens_left - num_kept))

    def spend(self, num_tokens: int) -> None:
        """Take tokens off the budget."""
        self.num_tokens_left -= num_tokens
        assert self.num_tokens_left >= 0, f"budget overdrawn by {-self.num_tokens_left} tokens"
