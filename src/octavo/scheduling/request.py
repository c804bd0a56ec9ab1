"""Request: one sequence inside the engine core, from `add` to its last delta.

Owns: the known tokens, how many of them are computed, the status and its legal moves.
Does not know: queues, budgets, blocks beyond the table that the KV manager keeps in it.

    WAITING ----> RUNNING ----> FINISHED
       |          |     ^           ^
       |          v     |           |
       |        PREEMPTED ----------+
       +----------------------------+
"""

from __future__ import annotations

from array import array
from enum import Enum

from octavo.contracts.request import EngineRequest
from octavo.contracts.step import SamplingSpec
from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.manager import KVManager
from octavo.scheduling.policy import SortKey


class Status(Enum):
    """Where a request stands."""

    WAITING = "waiting"  # never ran: no row, no blocks
    RUNNING = "running"  # has a row and blocks
    PREEMPTED = "preempted"  # ran, gave its row and blocks back, waits to be computed again
    FINISHED = "finished"  # the last delta is made; it may still be in the step in flight


_LEGAL_MOVES = {
    Status.WAITING: (Status.RUNNING, Status.FINISHED),
    Status.RUNNING: (Status.PREEMPTED, Status.FINISHED),
    Status.PREEMPTED: (Status.RUNNING, Status.FINISHED),
    Status.FINISHED: (),
}


class Request:
    """One sequence. Made once when added, changed by the scheduler only.

    Tokens are 4 bytes each. `row` exists only while the request is RUNNING.
    """

    __slots__ = (
        "eos_token_ids",
        "id",
        "max_num_tokens",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_preemptions",
        "num_prompt_logprobs_sent",
        "num_prompt_tokens",
        "order",
        "priority",
        "row",
        "sampling",
        "status",
        "stop_token_ids",
        "table",
        "token_ids",
    )

    row: int

    def __init__(
        self, source: EngineRequest, order: SortKey, max_model_len: int, kv: KVManager
    ) -> None:
        """Take `source` in. `order` is its place among all requests, by the policy."""
        self.id = source.request_id
        self.order = order
        self.priority = source.priority
        self.sampling: SamplingSpec = source.sampling
        self.token_ids = array("i", source.prompt_token_ids)  # the prompt, then the output
        self.num_prompt_tokens = len(self.token_ids)
        # Intake keeps prompt + max_tokens within the context; the minimum guards the runner's rows.
        self.max_num_tokens = min(self.num_prompt_tokens + source.max_tokens, max_model_len)
        self.eos_token_ids = frozenset(source.eos_token_ids)
        self.stop_token_ids = frozenset(source.stop_token_ids)
        self.status = Status.WAITING
        self.num_computed_tokens = 0
        self.num_cached_tokens = 0  # prompt tokens from the prefix cache at first admission
        self.num_preemptions = 0
        self.num_prompt_logprobs_sent = 0
        self.table: BlockTable = kv.open_table(
            self.token_ids,
            cache_salt=source.cache_salt,
            reads_cache=not source.skip_prefix_cache,
        )

    @property
    def num_tokens(self) -> int:
        """Known tokens: prompt and output so far."""
        return len(self.token_ids)

    @property
    def num_missing_tokens(self) -> int:
        """Known tokens that are not computed. Between steps: 1 for a request that decodes."""
        return len(self.token_ids) - self.num_computed_tokens

    def move_to(self, status: Status) -> None:
        """Change the status. An illegal move is a fault of the scheduler."""
        assert status in _LEGAL_MOVES[self.status], f"{self}: illegal move to {status.name}"
        self.status = status

    def __repr__(self) -> str:
        return (
            f"Request({self.id}, {self.status.name}, {self.num_computed_tokens} of "
            f"{self.num_tokens} tokens computed, {self.num_prompt_tokens} of them prompt)"
        )
